package elffile

import (
	"errors"
	"os"
	"runtime/debug"
	"slices"
	"syscall"
	"unsafe"

	"hallmark/internal/defect"
)

// Views are the contents of sections of a file, mapped or in memory, until they are closed.
type Views struct {
	mapped [][]byte // parts of the file
	memory [][]byte // what was decompressed
	room   int64    // what it has of inflationRoom
}

// Close gives back what is mapped.
func (d *Views) Close() error {
	var first error
	for _, b := range slices.Concat(d.mapped, d.memory) {
		if err := syscall.Munmap(b); err != nil && first == nil {
			first = os.NewSyscallError("munmap", err)
		}
	}
	d.mapped, d.memory = nil, nil
	inflationRoom.Add(d.room)
	d.room = 0
	return first
}

// allocate returns memory for the decompressed bytes of a section. It is not the
// garbage collector's, which would let as much again become garbage.
func (d *Views) allocate(size uint64) []byte {
	if size >= 1<<16 {
		b, err := syscall.Mmap(-1, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
		if err == nil {
			d.memory = append(d.memory, b)
			return b
		}
	}
	return make([]byte, size)
}

// advise announces to the system what will be done with a part of a section, if the section
// is mapped. It is advice: that it fails does no harm.
func (d *Views) advise(part []byte, advice int) {
	if len(part) == 0 {
		return
	}
	page := uintptr(os.Getpagesize())
	at := uintptr(unsafe.Pointer(&part[0]))
	for _, m := range d.mapped {
		start := uintptr(unsafe.Pointer(&m[0]))
		if at < start || at-start >= uintptr(len(m)) {
			continue
		}
		first := (at - start + page - 1) &^ (page - 1)
		last := (at - start + uintptr(len(part))) &^ (page - 1)
		if first < last {
			syscall.Madvise(m[first:last], advice)
		}
	}
}

// Forget gives the memory of all that is mapped back to the system. It is the file's, and comes
// again when it is looked at.
func (d *Views) Forget() {
	for _, m := range d.mapped {
		d.advise(m, syscall.MADV_DONTNEED)
	}
}

// View returns the bytes of a section: mapped where the file is one of the system's,
// and else read.
func (m *Image) View(d *Views, s *Section) ([]byte, error) {
	f, ok := m.Reader.(*os.File)
	if !ok || s.Size < 1<<16 {
		return m.Read(s.Offset, s.Size)
	}
	if err := m.checkEnd(s.Offset, s.Size); err != nil {
		return nil, err
	}
	if err := m.spend(s.Offset, s.Size); err != nil {
		return nil, err
	}
	page := uint64(os.Getpagesize())
	before := s.Offset % page
	b, err := syscall.Mmap(int(f.Fd()), int64(s.Offset-before), int(before+s.Size), syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		return m.Read(s.Offset, s.Size)
	}
	d.mapped = append(d.mapped, b)
	return b[before:], nil
}

// errShrunk says that mapped bytes were no longer there.
var errShrunk = errors.New("the file was cut off while it was read")

// WhileMapped calls f, which looks at mapped bytes. Those of a file that is cut off
// meanwhile are gone, and looking at them is a fault, which becomes an error. So does
// every other panic: it is on a goroutine of its own in many places, where nobody else
// could contain it.
func WhileMapped(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch fault := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			err = errShrunk
		default:
			if defect.Escapes() {
				panic(fault)
			}
			err = defect.Caught(fault)
		}
	}()
	return f()
}

// WhileMapped calls f, which looks at mapped bytes, and names the file where they are
// gone, or f has a defect.
func (m *Image) WhileMapped(f func() error) error {
	err := WhileMapped(f)
	if err == errShrunk || defect.Is(err) {
		return m.Damage(err)
	}
	return err
}
