package bpf

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// TestFindBtrfs compares the offsets with those that the BPF library reads in the types of this kernel,
// or of its module. Where there is no btrfs, there are none.
func TestFindBtrfs(t *testing.T) {
	offsets, err := findBtrfs()
	if err != nil {
		t.Fatal(err)
	}
	types, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var inode, root *btf.Struct
	if types.TypeByName("btrfs_inode", &inode) != nil {
		if types, err = btf.LoadKernelModuleSpec("btrfs"); err == nil {
			err = types.TypeByName("btrfs_inode", &inode)
		}
	}
	if err != nil {
		if offsets != (btrfsOffsets{}) {
			t.Errorf("offsets %v without btrfs: %v", offsets, err)
		}
		return
	}
	if err := types.TypeByName("btrfs_root", &root); err != nil {
		t.Fatal(err)
	}
	for i, field := range []struct {
		of   *btf.Struct
		name string
	}{{inode, "vfs_inode"}, {inode, "root"}, {root, "anon_dev"}} {
		at := slices.IndexFunc(field.of.Members, func(m btf.Member) bool { return m.Name == field.name })
		if at < 0 || field.of.Members[at].Offset.Bytes() != offsets[i] {
			t.Errorf("%s is at %d bytes, and the library finds member %d of %v", field.name, offsets[i], at, field.of)
		}
	}
}

// TestBtrfsOfModule reads types of a module that are behind those of a kernel, with names in both.
func TestBtrfsOfModule(t *testing.T) {
	kernel := &kernelTypes{strings: []byte("\x00root\x00")}
	strings := "\x00btrfs_inode\x00vfs_inode\x00btrfs_root\x00anon_dev\x00"
	base := uint32(len(kernel.strings))
	types := [][]uint32{
		{base + 1, kindStruct<<24 | 2, 400, 1, 0, 0, base + 13, 0, 8 * 240}, // root is a name of the kernel
		{base + 23, kindStruct<<24 | 1, 800, base + 34, 0, 8 * 500},
	}
	module := func(types [][]uint32) []byte {
		var all bytes.Buffer
		for _, words := range types {
			_ = binary.Write(&all, binary.NativeEndian, words)
		}
		var b bytes.Buffer
		_ = binary.Write(&b, binary.NativeEndian, btfHeader{Magic: btfMagic, Version: 1, Length: btfHeaderSize,
			TypesSize: uint32(all.Len()), Strings: uint32(all.Len()), Size: uint32(len(strings))})
		b.Write(all.Bytes())
		b.WriteString(strings)
		return b.Bytes()
	}
	if got, want := btrfsOfModule(module(types), kernel), (btrfsOffsets{240, 0, 500}); got != want {
		t.Errorf("offsets %v, want %v", got, want)
	}
	for _, lacking := range [][][]uint32{types[:1], types[1:], nil} {
		if got := btrfsOfModule(module(lacking), kernel); got != (btrfsOffsets{}) {
			t.Errorf("%d types have the offsets %v", len(lacking), got)
		}
	}
	if got := btrfsOfModule([]byte("no types"), kernel); got != (btrfsOffsets{}) {
		t.Errorf("no types have the offsets %v", got)
	}
}
