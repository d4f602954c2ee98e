package bpf

import (
	"fmt"
)

// StructSizes returns the sizes in bytes of structures of the running kernel, as its BTF
// has them. Those that it does not describe, as a module's, are not in the map.
func StructSizes(names ...string) (map[string]int, error) {
	kernel, err := openKernelTypes()
	if err != nil {
		return nil, fmt.Errorf("sizes of the kernel's structures: %w", err)
	}
	defer kernel.close()
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	sizes := map[string]int{}
	kernel.named(wanted, func(_ uint32, t btfType) {
		if t.kind() == kindStruct {
			sizes[string(kernel.name(t.nameOff()))] = int(t.word(2))
		}
	})
	return sizes, nil
}
