package symbol

import (
	"errors"

	"hallmark/addr"
	"hallmark/internal/elffile"
	"hallmark/internal/symtab"
)

// errNoKernelText says that an index of the kernel cannot be made.
var errNoKernelText = errors.New("the kernel does not tell where its code is")

// Index makes an index of the kernel image, for whoever has offsets in it later or
// elsewhere. They count from _text, as they do in profiles, and so do virtual
// addresses: where the kernel lay is another place on each boot.
//
// It says less than an index of the kernel's debug file, which has the same identity
// and knows lines: Sources tells them apart, and what is kept under an identity should
// have the better ones.
func (k *Kallsyms) Index(opt IndexOptions) (*Index, error) {
	if k.text == 0 || k.etext <= k.text {
		return nil, &FormatError{Name: kernelName, Err: errNoKernelText}
	}
	return k.index(kernelName, "", k.text, k.etext, opt)
}

const kernelName = "[kernel]"

// IndexModule makes an index of a module that lies from start to end, which
// /proc/modules tells. Offsets and virtual addresses count from start.
func (k *Kallsyms) IndexModule(module string, start, end addr.Abs, opt IndexOptions) (*Index, error) {
	if module == "" || end <= start {
		return nil, &FormatError{Name: "[" + module + "]", Err: errNoKernelText}
	}
	return k.index("["+module+"]", module, start, end, opt)
}

func (k *Kallsyms) index(name, module string, start, end addr.Abs, opt IndexOptions) (*Index, error) {
	size := uint64(end - start)
	t := &symtab.Table{Names: k.names}
	for i, v := range k.ranges.Starts {
		s := k.symbols[k.ranges.Values[i]]
		if k.modules[s.module] == module && v-uint64(start) < size {
			low := v - uint64(start)
			t.Ranges.Add(low, min(low+uint64(k.ranges.Sizes[i]), size), s.name)
		}
	}
	code := elffile.Section{Type: elffile.SHT_PROGBITS, Flags: elffile.SHF_ALLOC | elffile.SHF_EXECINSTR, Size: size}
	file := &File{image: &elffile.Image{Name: name, Sections: []elffile.Section{code}, Segments: []Segment{code.Segment()}}}
	file.add(SourceKallsyms, func([]addr.Virt) (finder, error) { return t, nil })
	opt.NoColumns = true
	return file.Index(opt)
}
