package firefox

import (
	"slices"

	pprof "github.com/google/pprof/profile"

	"hallmark/profile"
)

// tables builds the tables of a thread, each entry once.
type tables struct {
	builder       *builder
	stackTable    stackTable
	frameTable    frameTable
	funcTable     funcTable
	resourceTable resourceTable
	stringArray   []string

	strings   map[string]int
	locations map[*pprof.Location][]int // frames there, outermost first
	stacks    map[stackKey]int32
	funcs     map[funcKey]int
	resources map[int]int // by library
}

type stackKey struct{ prefix, frame int32 }

type funcKey struct {
	name, file string
	line       int64
	resource   int
}

// newTables returns tables that are empty: lists in JSON, where nil is null.
func newTables(b *builder) *tables {
	return &tables{
		builder:       b,
		frameTable:    frameTable{0, []int64{}, []int{}, []int{}, []int{}, []int{}, []*int{}, []int{}, []*int{}, []*int64{}, []*int64{}},
		funcTable:     funcTable{0, []int{}, []bool{}, []bool{}, []int{}, []*int{}, []*int64{}, []*int64{}},
		resourceTable: resourceTable{0, []*int{}, []int{}, []*int{}, []int{}},
		stringArray:   []string{},
		strings:       map[string]int{}, locations: map[*pprof.Location][]int{},
		stacks: map[stackKey]int32{}, funcs: map[funcKey]int{}, resources: map[int]int{},
	}
}

func (t *tables) string(s string) int {
	i, ok := t.strings[s]
	if !ok {
		i = len(t.stringArray)
		t.strings[s] = i
		t.stringArray = append(t.stringArray, s)
	}
	return i
}

// stack returns the index of a sample's stack, -1 for an empty one.
func (t *tables) stack(s *pprof.Sample) int {
	at := -1
	for _, l := range slices.Backward(s.Location) {
		for _, frame := range t.frames(l) {
			if at = t.push(at, frame); len(t.stackTable.frame) > t.builder.most {
				return at // write refuses all of it
			}
		}
	}
	return at
}

// index returns a pointer to i, nil for -1: null in JSON.
func index(i int) *int {
	if i < 0 {
		return nil
	}
	return &i
}

// push returns the stack of a frame that was called from another stack.
func (t *tables) push(prefix, frame int) int {
	key := stackKey{int32(prefix), int32(frame)}
	i, ok := t.stacks[key]
	if !ok {
		s := &t.stackTable
		i = int32(len(s.frame))
		t.stacks[key] = i
		s.frame, s.prefix = append(s.frame, key.frame), append(s.prefix, key.prefix)
	}
	return int(i)
}

// frames returns the frames at a location, the outermost first.
func (t *tables) frames(l *pprof.Location) []int {
	list, ok := t.locations[l]
	if ok {
		return list
	}
	calls := slices.Collect(profile.CallsAt(l))
	slices.Reverse(calls)
	for depth, c := range calls {
		list = append(list, t.frame(c, depth))
	}
	t.locations[l] = list
	return list
}

func (t *tables) frame(c profile.Call, depth int) int {
	f := &t.frameTable
	category := user
	switch {
	case c.Kernel():
		category = kernel
	case c.Location.Mapping == nil:
		category = other
	}
	lib := t.builder.lib(c.Location.Mapping)
	f.Address = append(f.Address, address(c.Location, lib))
	f.InlineDepth = append(f.InlineDepth, depth)
	f.Category = append(f.Category, category)
	f.Subcategory = append(f.Subcategory, 0)
	f.Func = append(f.Func, t.function(c, lib))
	f.NativeSymbol = append(f.NativeSymbol, nil)
	f.InnerWindowID = append(f.InnerWindowID, 0)
	f.Implementation = append(f.Implementation, nil)
	f.Line = append(f.Line, number(c.Line))
	f.Column = append(f.Column, nil)
	f.Length++
	return f.Length - 1
}

// maxExact is the largest whole number of JavaScript that is exact.
const maxExact = 1 << 53

// address is where in the library a frame is; of the kernel, where in its image.
func address(l *pprof.Location, lib int) int64 {
	a := l.Address
	if l.Mapping != nil && l.Mapping.Start >= 1<<63 {
		a -= l.Mapping.Start
	}
	if lib < 0 || a >= maxExact {
		return -1
	}
	return int64(a)
}

func number(n int64) *int64 {
	if n <= 0 {
		return nil
	}
	return &n
}

func (t *tables) function(c profile.Call, lib int) int {
	key := funcKey{name: c.Name(), resource: t.resource(lib)}
	if c.Function != nil {
		key.file, key.line = c.Function.Filename, c.Function.StartLine
	}
	i, ok := t.funcs[key]
	if ok {
		return i
	}
	f := &t.funcTable
	i = f.Length
	t.funcs[key] = i
	f.Length++
	f.Name = append(f.Name, t.string(key.name))
	f.IsJS = append(f.IsJS, false)
	f.RelevantForJS = append(f.RelevantForJS, false)
	f.Resource = append(f.Resource, key.resource)
	file := -1
	if key.file != "" {
		file = t.string(key.file)
	}
	f.FileName = append(f.FileName, index(file))
	f.LineNumber = append(f.LineNumber, number(key.line))
	f.ColumnNumber = append(f.ColumnNumber, nil)
	return i
}

func (t *tables) resource(lib int) int {
	if lib < 0 {
		return -1
	}
	i, ok := t.resources[lib]
	if !ok {
		r := &t.resourceTable
		i = r.Length
		t.resources[lib] = i
		r.Length++
		r.Lib = append(r.Lib, index(lib))
		r.Name = append(r.Name, t.string(t.builder.libs[lib].Name))
		r.Host = append(r.Host, nil)
		r.Type = append(r.Type, resourceLib)
	}
	return i
}
