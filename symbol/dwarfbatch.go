package symbol

import (
	"cmp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"hallmark/addr"
	"hallmark/internal/dwarf"
	"hallmark/reason"
)

// LookupOffsets answers as LookupOffset does for each of the offsets. It reads what it
// needs for these, several units at once, and keeps nothing: of the symbol tables that
// takes a fraction of the time and memory for loading them, and of the debug
// information what its sections take that are compressed, and one unit for each
// processor.
func (f *File) LookupOffsets(offsets []addr.Offset) []Result {
	results := make([]Result, len(offsets))
	addresses := make([]addr.Virt, 0, len(offsets))
	asked := make([]int, 0, len(offsets)) // which have an address
	for i, o := range offsets {
		v, ok := f.Virt(o)
		switch {
		case ok:
			addresses, asked = append(addresses, v), append(asked, i)
		case f.image.hasCode():
			results[i] = Miss(f.missReason())
		default:
			results[i] = Miss(reason.NoFile)
		}
	}
	for i, r := range f.lookupAll(addresses) {
		results[asked[i]] = r
	}
	return results
}

// lookupAll answers for each of the addresses.
func (f *File) lookupAll(addresses []addr.Virt) []Result {
	if len(addresses) == 0 {
		return nil
	}
	b := &batch{file: f, addresses: slices.Clone(addresses), tables: map[*source]loaded{}, strings: copies{}, readable: readableNames{}}
	slices.Sort(b.addresses)
	b.addresses = slices.Compact(b.addresses)
	b.loadTables()
	if f.hasDebug() {
		if b.debug = f.opened.Load(); b.debug == nil {
			if b.debug, b.err = openDebugInfo(f.debugImage(), f.Companion); b.err == nil {
				defer b.debug.close()
			}
		}
	}
	if b.debug != nil {
		b.readFunctions()
		b.readPlaces()
	}
	answers := make([]Result, len(b.addresses))
	for i, v := range b.addresses {
		answers[i] = b.answer(v)
	}
	results := make([]Result, len(addresses))
	for i, v := range addresses {
		n := b.number(v)
		results[i] = answers[n]
		answers[n].Frames = slices.Clone(answers[n].Frames) // for who asks for it again
	}
	return results
}

// batch is the evidence for many addresses.
type batch struct {
	file      *File
	addresses []addr.Virt // ascending, each once
	tables    map[*source]loaded
	strings   copies // of pclntab
	readable  readableNames

	debug     *debugInfo // nil without
	err       error      // why there is none
	functions []unitAnswer
	places    []unitAnswer
}

// loaded is what is loaded of a source.
type loaded struct {
	finder
	err error
}

// copies has strings that are no parts of a table, which would keep all of it.
type copies map[string]string

func (c copies) of(s string) string {
	own, ok := c[s]
	if !ok {
		own = strings.Clone(s)
		c[own] = own
	}
	return own
}

// unitAnswer is what the units say of one address by debugInfo.find.
type unitAnswer struct {
	frames []Frame
	kind   uint8
	unit   int32
	err    error
}

// isFinal reports whether what later units say does not count.
func (a *unitAnswer) isFinal() bool { return a.kind == kindFunction || a.err != nil }

// add takes account of what another unit says.
func (a *unitAnswer) add(b unitAnswer) {
	if b.isFinal() != a.isFinal() {
		if b.isFinal() {
			*a = b
		}
		return
	}
	if b.kind < a.kind || b.kind == a.kind && b.unit < a.unit || a.isFinal() && b.unit < a.unit {
		*a = b
	}
}

func (b *batch) number(v addr.Virt) int {
	i, ok := slices.BinarySearch(b.addresses, v)
	if !ok {
		return -1
	}
	return i
}

func (b *batch) loadTables() {
	for _, s := range b.file.sources {
		if s.kind == SourcePclntab {
			continue // when it turns out that it is needed
		}
		table, err := s.loadAt(b.addresses)
		b.tables[s] = loaded{table, err}
	}
}

// readFunctions finds the functions at all addresses.
func (b *batch) readFunctions() {
	b.functions = make([]unitAnswer, len(b.addresses))
	all := make([]int32, len(b.addresses))
	for i := range all {
		all[i] = int32(i)
	}
	b.debug.data.Renew()
	b.read(b.debug.units, all, b.functions)
}

// readPlaces finds the lines where there is a symbol and no function.
func (b *batch) readPlaces() {
	var bare []int32
	for i, v := range b.addresses {
		if b.functions[i].kind == kindFunction {
			continue
		}
		a := answer{evidence: b, file: b.file, at: v}
		if name, _ := a.symbol(); name != "" {
			bare = append(bare, int32(i))
		}
	}
	if len(bare) == 0 {
		return
	}
	lines, err := b.debug.lines()
	if err != nil {
		b.err = err
		return
	}
	b.places = make([]unitAnswer, len(b.addresses))
	b.read(lines, bare, b.places)
}

// read asks the units that dir names for some of the addresses, by their numbers, and
// puts what they say into answers.
func (b *batch) read(dir *dwarf.Directory, asked []int32, answers []unitAnswer) {
	needed := make([][]int32, len(dir.Units))
	var units, claims []int32
	for _, i := range asked {
		answers[i].kind = kindHole
		claims = dir.At(uint64(b.addresses[i]), claims[:0])
		for _, u := range claims {
			if needed[u] == nil {
				units = append(units, u)
			}
			needed[u] = append(needed[u], i)
		}
	}
	slices.SortFunc(units, func(a, b int32) int { return cmp.Compare(dir.Units[b].Size(), dir.Units[a].Size()) })
	var next atomic.Int64
	var workers sync.WaitGroup
	var mu sync.Mutex // for answers
	for range min(runtime.GOMAXPROCS(0), len(units)) {
		workers.Go(func() {
			w := newUnitWorker(b.debug)
			for {
				n := int(next.Add(1)) - 1
				if n >= len(units) {
					return
				}
				u := units[n]
				w.ask(dir.Units[u], b.addresses, needed[u])
				mu.Lock()
				for k, i := range needed[u] {
					w.answers[k].unit = u
					answers[i].add(w.answers[k])
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
}

// unitWorker asks one unit after another.
type unitWorker struct {
	debug    *debugInfo
	reader   *dwarf.Reader
	text     *internedText
	readable readableNames
	answers  []unitAnswer
}

func newUnitWorker(d *debugInfo) *unitWorker {
	w := &unitWorker{debug: d, reader: d.data.NewReader(), text: newInternedText(), readable: readableNames{}}
	w.reader.Columns = true
	return w
}

// ask asks a unit for some of the addresses, by their numbers, and sets w.answers.
func (w *unitWorker) ask(u *dwarf.Unit, addresses []addr.Virt, numbers []int32) {
	w.answers = slices.Grow(w.answers[:0], len(numbers))[:len(numbers)]
	err := whileMapped(func() error {
		if err := w.reader.Read(u); err != nil {
			return err
		}
		code := unitCode{Result: &w.reader.Result, text: w.text, lang: langOf(w.reader.Lang)}
		w.text.unit()
		for k, i := range numbers {
			a := unitAnswer{}
			a.frames, a.kind = code.frames(uint64(addresses[i]))
			w.readable.set(a.frames)
			w.answers[k] = a
		}
		return nil
	})
	if err != nil {
		for k := range w.answers {
			w.answers[k] = unitAnswer{kind: kindHole, err: err}
		}
	}
	w.debug.data.forget(u)
}

// readableNames are names for people that were made.
type readableNames map[linkageName]string

type linkageName struct {
	name string
	isGo bool
}

// set sets Func of frames.
func (known readableNames) set(frames []Frame) {
	for i := range frames {
		f := &frames[i]
		if f.Func != "" || f.Linkage == "" {
			continue
		}
		key := linkageName{f.Linkage, f.Lang == LangGo}
		name, ok := known[key]
		if !ok {
			name = f.Readable()
			known[key] = name
		}
		f.Func = name
	}
}

func (b *batch) answer(v addr.Virt) Result {
	r := b.file.answer(v, b)
	if r.Source == SourcePclntab {
		for i := range r.Frames {
			f := &r.Frames[i]
			f.Linkage, f.File = b.strings.of(f.Linkage), b.strings.of(f.File)
		}
	}
	b.readable.set(r.Frames)
	return r
}

func (b *batch) function(v addr.Virt) ([]Frame, error) {
	if b.debug == nil {
		return nil, b.err
	}
	i := b.number(v)
	if i < 0 {
		return b.debug.function(uint64(v))
	}
	if a := &b.functions[i]; a.kind == kindFunction || a.err != nil {
		return a.frames, a.err
	}
	return nil, nil
}

func (b *batch) place(v addr.Virt) ([]Frame, error) {
	if b.places == nil {
		return nil, b.err
	}
	a := &b.places[b.number(v)]
	return a.frames, a.err
}

func (b *batch) table(s *source, _ addr.Virt) (finder, error) {
	t, ok := b.tables[s]
	if !ok {
		t.finder, t.err = s.loadAt(b.addresses)
		b.tables[s] = t
	}
	return t.finder, t.err
}
