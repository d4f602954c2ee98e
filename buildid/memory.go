package buildid

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"hallmark/addr"
)

// ReadMemory returns the identity of an ELF file that is laid out in memory as
// the loader does it. r reads that memory by absolute address (/proc/PID/mem for
// instance) and base is where the ELF header is. Neither sections nor a hash can
// be had from memory: without any note the Info has no ID. Memory at base that is
// not ELF is a *FormatError.
func ReadMemory(r io.ReaderAt, base addr.Abs) (Info, error) {
	s := getSearch()
	defer s.release()
	s.open(r, uint64(base))
	if !s.isELF() {
		s.damaged(0, "no ELF header")
		return s.result()
	}
	return s.inMemory()
}

// ReadVDSO returns the identity of the vdso, the code that the kernel maps into
// every process. It reads the one of the calling process.
func ReadVDSO() (Info, error) {
	base, err := vdsoBase("/proc/self/auxv")
	if err != nil {
		return Info{}, err
	}
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		return Info{}, err
	}
	defer mem.Close()
	return ReadMemory(mem, base)
}

// errNoVDSO says that the kernel gave the process none.
var errNoVDSO = errors.New("process has no vdso")

// vdsoBase looks for the address of the vdso in an auxiliary vector: pairs of
// words, a type and a value (Linux include/uapi/linux/auxvec.h).
func vdsoBase(name string) (addr.Abs, error) {
	const sysinfoEHDR = 33 // AT_SYSINFO_EHDR
	auxv, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	const word = strconv.IntSize / 8
	for ; len(auxv) >= 2*word; auxv = auxv[2*word:] {
		if nativeWord(auxv) == sysinfoEHDR {
			return addr.Abs(nativeWord(auxv[word:])), nil
		}
	}
	return 0, fmt.Errorf("%s: %w", name, errNoVDSO)
}

func nativeWord(b []byte) uint64 {
	if strconv.IntSize == 32 {
		return uint64(binary.NativeEndian.Uint32(b))
	}
	return binary.NativeEndian.Uint64(b)
}
