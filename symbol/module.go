package symbol

import (
	"strings"

	"hallmark/addr"
)

const emX8664 = 62

// ModuleVirt returns the virtual address of the byte at an offset from where the kernel
// put a module's code, which is what /proc/modules tells. The file is that of the
// module, or the debug file made from it: both have the sections that the kernel lays
// out, code first, in their order, but for those that it frees when the module was
// initialised (layout_sections and module_init_layout_section,
// kernel/module/main.c). It is false where no code of the file is, and for machines
// other than x86-64: their kernels add sections of their own making.
func (f *File) ModuleVirt(o addr.Offset) (addr.Virt, bool) {
	m := f.image
	if !m.rel || m.machine != emX8664 {
		return 0, false
	}
	next := uint64(0)
	for i := range m.sections {
		s := &m.sections[i]
		if !s.isText() || s.size > maxTable || strings.HasPrefix(s.name, ".init") {
			continue
		}
		if s.align > 1 && s.align <= 1<<16 {
			next = (next + s.align - 1) / s.align * s.align
		}
		if uint64(o) >= next && uint64(o)-next < s.size {
			return addr.Virt(s.addr + uint64(o) - next), true
		}
		next += s.size
	}
	return 0, false
}
