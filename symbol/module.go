package symbol

import (
	"strings"

	"hallmark/addr"
	"hallmark/internal/elffile"
)

const emX8664 = 62

// ModuleVirt returns the virtual address of the byte at an offset from where the kernel
// put a module's code, which is what /proc/modules reports. The file is that of the
// module, or the debug file made from it: both have the sections that the kernel lays
// out, code first, in their order, but for those that it frees when the module was
// initialised (layout_sections and module_init_layout_section,
// kernel/module/main.c). It is false where no code of the file is, and for machines
// other than x86-64: their kernels add sections of their own making.
func (f *File) ModuleVirt(o addr.Offset) (addr.Virt, bool) {
	m := f.image
	if !m.Relocatable || m.Machine != emX8664 {
		return 0, false
	}
	next := uint64(0)
	for i := range m.Sections {
		s := &m.Sections[i]
		if !s.IsText() || s.Size > elffile.MaxTable || strings.HasPrefix(s.Name, ".init") {
			continue
		}
		if s.Align > 1 && s.Align <= 1<<16 {
			next = (next + s.Align - 1) / s.Align * s.Align
		}
		if uint64(o) >= next && uint64(o)-next < s.Size {
			return addr.Virt(s.Addr + uint64(o) - next), true
		}
		next += s.Size
	}
	return 0, false
}
