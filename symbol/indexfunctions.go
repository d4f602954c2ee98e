package symbol

import (
	"iter"

	"hallmark/addr"
)

// An IndexedFunction is one that a file has code of, its own or inlined.
type IndexedFunction struct {
	Linkage string    // name that the linker saw; Demangle makes it one for people
	File    string    // source file, as the compiler recorded it; "" when not known
	Start   int       // line where the function starts; 0 when not known
	Inlined bool      // there is only code of it that is inlined into other functions
	Virt    addr.Virt // lowest virtual address of its code
}

// Functions returns the functions of an index, each once, in the order of addresses, and behind those
// the functions of which all code is inlined. It looks at all of the index, so its time is that of Pieces. Those of an
// index that is damaged end early: see Damage.
func (x *Index) Functions() iter.Seq[IndexedFunction] {
	type key struct {
		linkage, file string
		start         int
	}
	return func(yield func(IndexedFunction) bool) {
		whole := map[key]bool{}
		inlined := map[key]addr.Virt{}
		var order []key
		var frames []Frame
		site := uint32(0)
		for l := range x.located() {
			if l.site == site {
				continue
			}
			site = l.site
			frames, _ = x.chain(frames[:0], l.location)
			if x.blocks.damage.Load() != nil {
				return
			}
			for i := range frames {
				f := &frames[i]
				k := key{f.Linkage, f.File, f.Start}
				if k.linkage == "" || whole[k] {
					continue
				}
				if !f.Inlined {
					whole[k] = true
					if !yield(IndexedFunction{Linkage: k.linkage, File: k.file, Start: k.start, Virt: l.virt}) {
						return
					}
				} else if _, ok := inlined[k]; !ok {
					inlined[k] = l.virt
					order = append(order, k)
				}
			}
		}
		if x.blocks.damage.Load() != nil {
			return
		}
		for _, k := range order {
			if whole[k] {
				continue
			}
			if !yield(IndexedFunction{Linkage: k.linkage, File: k.file, Start: k.start, Inlined: true, Virt: inlined[k]}) {
				return
			}
		}
	}
}
