package symbol

import (
	"math"

	"hallmark/internal/elffile"
	"hallmark/internal/pclntab"
)

// inlineTrees are the calls that the compiler inlined, one list for each function
// (runtime/symtabinl.go). They are in the program's read-only data.
type inlineTrees struct {
	gofunc uint64 // what the addresses of trees are relative to
	base   uint64 // virtual address of data
	data   string // "" where inlined calls are not known
}

// inlinedCall is an inlined function.
type inlinedCall struct {
	name   uint32 // in the names
	parent uint32 // distance from the function's entry to an instruction at the call site
	start  uint32 // line
}

// inlined appends the calls at pc to calls, innermost first. When one of them is
// implausible there are none.
func (t *goTable) inlined(calls []inlinedCall, f *goFunc, pc uint64) []inlinedCall {
	if f.tree == 0 || t.trees.data == "" {
		return calls
	}
	for range maxInlineDepth {
		index, ok := t.value(f.pcinline, f, pc)
		if !ok || index < 0 {
			return calls
		}
		c, ok := t.call(f, uint32(index))
		if !ok {
			break
		}
		calls = append(calls, c)
		pc = f.Entry + uint64(c.parent)
	}
	return nil
}

// call returns an entry of a function's tree if it is plausible: it names a
// function from its first letter, and its call site is in the function.
func (t *goTable) call(f *goFunc, index uint32) (inlinedCall, bool) {
	size := t.callSize()
	at := f.tree - t.trees.base + size*uint64(index)
	data := t.trees.data
	if at > uint64(len(data)) || uint64(len(data))-at < size {
		return inlinedCall{}, false
	}
	data = data[at : at+size]
	var c inlinedCall
	if t.Magic == pclntab.Go120 {
		c = inlinedCall{name: t.U32(data, 4), parent: t.U32(data, 8), start: t.U32(data, 12)}
	} else {
		c = inlinedCall{name: t.U32(data, 12), parent: t.U32(data, 16)}
	}
	const padding = 3 // a byte that is padding in both forms
	return c, data[padding] == 0 && t.IsName(c.name) && uint64(c.parent) < f.End-f.Entry
}

// callSize returns the bytes of an entry. Until Go 1.19 it held the file and line
// of the call site too.
func (t *goTable) callSize() uint64 {
	if t.Magic == pclntab.Go120 {
		return 16
	}
	return 20
}

// treeAddress returns the virtual address of the inline tree of a function whose
// list of funcdata is at off in the records; 0 for none.
func (t *goTable) treeAddress(off uint64) uint64 {
	if t.IsRelative() {
		n := t.U32(t.Records, off+4*funcdataInlTree)
		if n == ^uint32(0) {
			return 0
		}
		return t.trees.gofunc + uint64(n)
	}
	off = (off + t.Ptr - 1) &^ (t.Ptr - 1)
	return t.Word(t.Records, off+t.Ptr*funcdataInlTree, t.Ptr)
}

// maxTree is how much is read from the start of the last tree on. The trees say
// no length, and what comes after the last one is not looked at.
const maxTree = 1 << 20

// loadTrees reads the part of the program's data that has all inline trees, and
// keeps it if the first call of each is plausible.
func loadTrees(m *elffile.Image, t *goTable, at uint64) error {
	first, last := t.treeBounds()
	if first > last {
		return nil
	}
	if first-at < uint64(len(t.Data)) { // since Go 1.26
		t.trees.base, t.trees.data = at, t.Data
	} else if in := m.SectionAt(first, last-first+1); in != nil {
		data, err := m.ReadString(in.Offset+first-in.Addr, min(last-first+maxTree, in.Addr+in.Size-first))
		if err != nil {
			return err
		}
		t.trees.base, t.trees.data = first, data
	}
	if !t.treesAgree() {
		t.trees.data = ""
	}
	return nil
}

// treeBounds returns the lowest and the highest address of a tree.
func (t *goTable) treeBounds() (first, last uint64) {
	first = math.MaxUint64
	for i := range t.NFunc {
		if tree := t.function(i).tree; tree != 0 {
			first, last = min(first, tree), max(last, tree)
		}
	}
	return first, last
}

// treesAgree reports whether the first call of every tree is plausible.
func (t *goTable) treesAgree() bool {
	for i := range t.NFunc {
		f := t.function(i)
		if f.tree == 0 {
			continue
		}
		if _, ok := t.call(&f, 0); !ok {
			return false
		}
	}
	return true
}
