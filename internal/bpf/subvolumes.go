package bpf

import (
	"errors"
	"io/fs"
	"os"

	"github.com/cilium/ebpf"
)

// btrfsOffsets says where btrfs has what stat reports as the device of a file, in bytes: vfs_inode and
// root in struct btrfs_inode (fs/btrfs/btrfs_inode.h), and anon_dev in struct btrfs_root (fs/btrfs/ctree.h). The order is that of btrfs_offsets in c/filever.h.
type btrfsOffsets [3]uint32

const (
	btrfsInode = "btrfs_inode"
	btrfsRoot  = "btrfs_root"
)

// btrfsModule has the types of btrfs where it is a module, behind those of the kernel.
const btrfsModule = "/sys/kernel/btf/btrfs"

// setSubvolumes says where btrfs has the device of a subvolume. Where nobody knows, all subvolumes have
// the device of the file system.
func setSubvolumes(spec *ebpf.CollectionSpec) error {
	offsets, err := findBtrfs()
	if err != nil {
		return err
	}
	return spec.Variables["btrfs_offsets"].Set(offsets)
}

// findBtrfs returns the offsets, zeros where the kernel has no btrfs or does not describe it. A module
// may come at any time.
func findBtrfs() (btrfsOffsets, error) {
	facts, err := factsOfKernel()
	if err != nil || facts.btrfs != (btrfsOffsets{}) {
		return facts.btrfs, err
	}
	data, err := os.ReadFile(btrfsModule)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return btrfsOffsets{}, nil
	case err != nil:
		return btrfsOffsets{}, err
	}
	kernel, err := openKernelTypes()
	if err != nil {
		return btrfsOffsets{}, err
	}
	defer kernel.close()
	return btrfsOfModule(data, kernel), nil
}

// btrfsOfModule reads the types of a module. Their names are behind those of the kernel.
func btrfsOfModule(data []byte, kernel *kernelTypes) btrfsOffsets {
	var module kernelTypes
	var subvolumes btrfsTypes
	if module.parse(data) != nil {
		return btrfsOffsets{} // it is described in a way that is not known
	}
	name := func(at uint32) []byte {
		if base := uint32(len(kernel.strings)); at >= base {
			return module.name(at - base)
		}
		return kernel.name(at)
	}
	for id := uint32(1); id < module.count; id++ {
		if t := module.typ(id); t.kind() == kindStruct {
			subvolumes.add(string(name(t.nameOff())), t, name)
		}
	}
	return subvolumes.offsets()
}

// btrfsTypes takes the types in which the offsets are.
type btrfsTypes struct {
	found btrfsOffsets
	count int
}

// add takes a type, if it is one of them. name returns the name at an offset of the strings.
func (b *btrfsTypes) add(typeName string, t btfType, name func(at uint32) []byte) {
	if t.kind() != kindStruct || typeName != btrfsInode && typeName != btrfsRoot {
		return
	}
	for i := range t.parts() {
		member, bits := string(name(t.word(3+3*i))), t.word(3+3*i+2)&0xffffff
		for n, of := range [...]struct{ structure, member string }{{btrfsInode, "vfs_inode"}, {btrfsInode, "root"}, {btrfsRoot, "anon_dev"}} {
			if of.structure == typeName && of.member == member {
				b.found[n] = bits / 8
				b.count++
			}
		}
	}
}

// offsets returns the offsets if all were found, else zeros.
func (b *btrfsTypes) offsets() btrfsOffsets {
	if b.count != len(b.found) {
		return btrfsOffsets{}
	}
	return b.found
}
