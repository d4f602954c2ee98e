package reach

import (
	"encoding/binary"
	"io"
	"os"
	"testing"

	"hallmark/internal/testenv"
)

// TestOwnVDSO compares with the auxiliary vector, by which the kernel says where the vdso of this
// process is: getauxval(3).
func TestOwnVDSO(t *testing.T) {
	v, ok := OwnVDSO()
	testenv.Need(t, ok, "a vdso of 64-bit processes")
	const sysinfoEHDR = 33
	vector, err := os.ReadFile("/proc/self/auxv")
	if err != nil {
		t.Fatal(err)
	}
	for ; len(vector) >= 16 && binary.NativeEndian.Uint64(vector) != sysinfoEHDR; vector = vector[16:] {
	}
	if len(vector) < 16 || binary.NativeEndian.Uint64(vector[8:]) != uint64(v.Start) {
		t.Errorf("the vdso is not at %#x: %x", v.Start, vector)
	}
	image, err := CopyOwnVDSO()
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	copied, err := io.ReadAll(io.NewSectionReader(image, 0, 1<<20))
	if err != nil || len(copied) != int(v.End-v.Start) || string(copied[:4]) != "\x7fELF" {
		t.Errorf("%d bytes of %+v were copied, error %v", len(copied), v, err)
	}
}
