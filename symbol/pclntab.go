package symbol

import (
	"slices"
	"strings"

	"hallmark/addr"
	"hallmark/internal/elffile"
	"hallmark/internal/pclntab"
)

// Indices of the tables that belong to a function (internal/abi/symtab.go), the
// same since Go 1.16.
const (
	pcdataInlTreeIndex = 2
	funcdataInlTree    = 3
)

// maxInlineDepth bounds what one lookup reads, at ten times what the largest programs
// have.
const maxInlineDepth = 64

// goTable answers from the table that Go programs carry for their own tracebacks,
// stripped ones too: functions, files, lines and inlined calls. The source of the
// format is Go's runtime/symtab.go.
//
// Before Go 1.16, and where the inline trees cannot be trusted, inlined calls are
// not known. Then an instruction of an inlined function has the name of the
// function it was inlined into, and a file and line of its own.
type goTable struct {
	pclntab.Table
	trees inlineTrees
}

// goFunc is a function record (runtime/runtime2.go, _func).
type goFunc struct {
	pclntab.Func
	pcinline uint32
	tree     uint64 // virtual address of the inline tree, 0 without
	decoded  []goList
}

// goList is a list of values of a function that is decoded, for many questions to it.
type goList struct {
	off    uint32
	ends   []uint64 // of the addresses that have the values, in their order
	values []int32
}

// find answers for a virtual address. One in the padding behind a function has no
// function.
func (t *goTable) find(v addr.Virt) []Frame {
	pc := uint64(v)
	i, ok := t.Search(pc)
	if !ok {
		return nil
	}
	f := t.function(i)
	return t.frames(nil, &f, pc)
}

// frames appends the frames at an address of a function, innermost first.
func (t *goTable) frames(frames []Frame, f *goFunc, pc uint64) []Frame {
	line, ok := t.value(f.PCLn, f, pc)
	if !ok && f.PCLn != 0 {
		return frames
	}
	var few [8]inlinedCall
	calls := t.inlined(few[:0], f, pc)
	frames = slices.Grow(frames, len(calls)+1)
	for _, c := range calls {
		frame := t.frame(c.name, c.start, f, pc, line)
		frame.Inlined = true
		frames = append(frames, frame)
		pc = f.Entry + uint64(c.parent)
		line, _ = t.value(f.PCLn, f, pc)
	}
	return append(frames, t.frame(f.Name, f.Start, f, pc, line))
}

// frame returns the function with this name and first line, at the file of pc, and at its line: 0 and less for
// none.
func (t *goTable) frame(name, start uint32, f *goFunc, pc uint64, line int32) Frame {
	linkage := elffile.StringAt(t.Names, name)
	frame := Frame{Linkage: linkage, Start: int(startLine(start)), Lang: LangGo}
	if file, ok := t.value(f.PCFile, f, pc); ok && file >= 0 && line > 0 {
		frame.File, frame.Line = t.file(f.CU, uint32(file)), int(line)
	}
	return frame
}

// elideTypeArguments returns the name of a function as Go's tracebacks and
// profiles show it: "slices.Sort[...]".
func elideTypeArguments(name string) string {
	open, end := strings.IndexByte(name, '['), strings.LastIndexByte(name, ']')
	if open < 0 || end < open {
		return name
	}
	return name[:open] + "[...]" + name[end+1:]
}

// file returns the name of a file by its number in a compilation unit.
func (t *goTable) file(cu, number uint32) string {
	if t.Magic == pclntab.Go12 {
		if number == 0 {
			return "" // the place of file 0 holds the number of files
		}
		return elffile.StringAt(t.Names, t.U32(t.Files, 4*uint64(number)))
	}
	return elffile.StringAt(t.Files, t.U32(t.CUs, 4*(uint64(cu)+uint64(number))))
}

// function returns function i.
func (t *goTable) function(i uint64) goFunc {
	f := goFunc{Func: t.Function(i)}
	if f.NPCData > pcdataInlTreeIndex {
		f.pcinline = t.U32(t.Records, f.Lists+4*pcdataInlTreeIndex)
	}
	if f.NFuncData > funcdataInlTree {
		f.tree = t.treeAddress(f.Lists + 4*uint64(f.NPCData))
	}
	return f
}

// value returns what the list at off has for pc.
func (t *goTable) value(off uint32, f *goFunc, pc uint64) (value int32, ok bool) {
	for i := range f.decoded {
		l := &f.decoded[i]
		if l.off != off || len(l.ends) == 0 || pc >= l.ends[len(l.ends)-1] {
			continue
		}
		at, found := slices.BinarySearch(l.ends, pc)
		for ; found && l.ends[at] == pc; at++ { // the address behind one value has the next
		}
		return l.values[at], true
	}
	return t.Value(off, f.Entry, pc)
}

// loadPclntab reads the pclntab in one of sections. If they are mixed, it has a place of its own there.
func loadPclntab(m *elffile.Image, sections []*elffile.Section, mixed bool) (*goTable, error) {
	err := m.Fail(sections[0].Offset, "no pclntab found")
	for _, s := range sections {
		data, readErr := m.ReadString(s.Offset, s.Size)
		if readErr != nil {
			return nil, readErr
		}
		places := []uint64{0}
		if mixed {
			places = pclntab.Headers(data, m.Big)
		}
		for _, at := range places {
			var t *goTable
			if t, err = newPclntab(m, data[at:], s.Addr+at, s.Offset+at); err == nil {
				return t, nil
			}
		}
	}
	return nil, err
}

// newPclntab returns the pclntab at the start of data, which is at address at and
// at offset off of the file.
func newPclntab(m *elffile.Image, data string, at, off uint64) (*goTable, error) {
	table, ok := pclntab.Parse(data, m.Big)
	if !ok {
		return nil, m.Fail(off, "pclntab of an unknown form")
	}
	t := &goTable{Table: table}
	if t.IsRelative() {
		md, err := t.Locate(at, elffile.Loaded{Image: m})
		switch {
		case err != nil:
			return nil, err
		case md == nil:
			return nil, m.Fail(off, "no moduledata agrees with this pclntab")
		}
		t.trees.gofunc = md[pclntab.MDGofunc120]
		if t.Magic == pclntab.Go118 {
			t.trees.gofunc = md[pclntab.MDGofunc118]
		}
	}
	if !t.IsSound(m.IsText) {
		return nil, m.Fail(off, "pclntab does not describe the code of its file")
	}
	return t, loadTrees(m, t, at)
}
