package reach

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"slices"
	"sync"

	"hallmark/buildid"
	"hallmark/procmap"
)

// inMemory is content that was copied, of the vdso for instance.
type inMemory struct {
	*bytes.Reader
	Class elf.Class
}

func (inMemory) Close() error { return nil }

// OwnVDSO returns the mapping of the vdso of this process, a 64-bit one.
var OwnVDSO = sync.OnceValues(func() (procmap.VMA, bool) {
	vmas, _ := Mappings(os.Getpid())
	i := slices.IndexFunc(vmas, func(v procmap.VMA) bool { return v.Name == "[vdso]" && v.Start > 1<<32 })
	if i < 0 {
		return procmap.VMA{}, false
	}
	return vmas[i], true
})

// CopyOwnVDSO copies the vdso of 64-bit processes, which is the same in all, out of this one.
func CopyOwnVDSO() (Handle, error) {
	v, ok := OwnVDSO()
	if !ok {
		return nil, os.ErrNotExist
	}
	image, _ := ReadImage(uint32(os.Getpid()), v)
	if image == nil {
		return nil, os.ErrNotExist
	}
	return image, nil
}

// maxImage bounds the vdso that is copied. It has two pages today.
const maxImage = 1 << 20

// ReadImage copies the vdso, which is an ELF file as a whole, out of a process, and reads its identity.
// Both are zero where that cannot be done. Another process can have written to its vdso, or moved that of
// another width there: such a copy is none.
func ReadImage(pid uint32, v procmap.VMA) (Handle, buildid.ID) {
	isOwn, isWide := pid == uint32(os.Getpid()), v.Start > 1<<32
	if !isOwn && !isKernels(pid, v) {
		return nil, buildid.ID{}
	}
	image, id := readImage(pid, v)
	if image == nil || !isOwn && (!isKernels(pid, v) || isWide != (image.Class == elf.ELFCLASS64)) {
		return nil, buildid.ID{}
	}
	return image, id
}

// isKernels reports whether a process has the vdso there, and no page of its own in it.
func isKernels(pid uint32, v procmap.VMA) bool {
	p, err := procmap.Open(int(pid))
	if err != nil {
		return false
	}
	defer p.Close()
	now, ok, err := p.Find(v.Start)
	if err != nil || !ok || now.Kind() != procmap.KindVDSO || now.Start != v.Start || now.End != v.End {
		return false
	}
	own, err := p.Own([]procmap.VMA{now})
	return err == nil && len(own) == 0
}

func readImage(pid uint32, v procmap.VMA) (*inMemory, buildid.ID) {
	size := uint64(v.End - v.Start)
	mem, err := openMemory(pid)
	if err != nil || size > maxImage {
		return nil, buildid.ID{}
	}
	defer mem.Close()
	image := make([]byte, size)
	if _, err := mem.ReadAt(image, int64(v.Start)); err != nil {
		return nil, buildid.ID{}
	}
	info, err := buildid.Read(bytes.NewReader(image))
	if err != nil {
		return nil, buildid.ID{}
	}
	return &inMemory{bytes.NewReader(image), elf.Class(image[elf.EI_CLASS])}, info.ID
}

// openMemory opens the memory of a process: a helper reads that of others, because a page may
// have to come from a file system that does not answer.
func openMemory(pid uint32) (Handle, error) {
	if pid == uint32(os.Getpid()) {
		return os.Open("/proc/self/mem")
	}
	p, err := procmap.Open(int(pid))
	if err != nil {
		return nil, err
	}
	mem, err := p.ReadMemory()
	if err != nil {
		p.Close()
		return nil, err
	}
	return &memoryOf{mem, p}, nil
}

// memoryOf is the memory of a process that is open.
type memoryOf struct {
	Handle
	process *procmap.Process
}

// Close closes both.
func (m *memoryOf) Close() error { return errors.Join(m.Handle.Close(), m.process.Close()) }
