package testenv

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Runs32 reports whether the machine runs programs of 32 bits for x86. Some kernels are built
// without, and some hypervisors have no room for them.
func Runs32() bool { return runs32() }

// ThirtyTwoBits skips the test where the machine runs no programs of 32 bits. The kernels of
// internal/vmtest do.
func ThirtyTwoBits(t testing.TB) {
	t.Helper()
	if !Runs32() {
		t.Skip("this machine runs no programs of 32 bits; the kernels in QEMU do")
	}
}

var runs32 = sync.OnceValue(func() bool {
	dir, err := os.MkdirTemp("", "hallmark")
	if err != nil {
		return false
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "exit")
	return os.WriteFile(path, exit32(), 0o700) == nil && exec.Command(path).Run() == nil
})

// exit32 is an ELF program for i386 that ends with status 0: System V ABI, Intel386 supplement.
func exit32() []byte {
	const header, segment, at = 52, 32, 0x8048000
	code := []byte{
		0xb8, 1, 0, 0, 0, // mov 1,%eax: exit
		0x31, 0xdb, // xor %ebx,%ebx
		0xcd, 0x80, // int 0x80
	}
	b := []byte("\x7fELF\x01\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	half := func(values ...uint16) {
		for _, v := range values {
			b = binary.LittleEndian.AppendUint16(b, v)
		}
	}
	word := func(values ...uint32) {
		for _, v := range values {
			b = binary.LittleEndian.AppendUint32(b, v)
		}
	}
	size := uint32(header + segment + len(code))
	half(2, 3)                                        // ET_EXEC, EM_386
	word(1, at+header+segment, header, 0, 0)          // version, entry, e_phoff, e_shoff, flags
	half(header, segment, 1, 0, 0, 0)                 // sizes and numbers of headers
	word(1, 0, at, at, size, size, 5 /* r-x */, 4096) // PT_LOAD
	return append(b, code...)
}
