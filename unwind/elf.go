package unwind

import (
	"cmp"
	"errors"
	"io"
	"iter"
	"slices"
	"sort"

	"hallmark/addr"
	"hallmark/internal/cursor"
	"hallmark/internal/elffile"
)

// ErrUnsupported is what errors about files wrap whose code cannot be unwound by
// tables: of other machines, of 32 bits, relocatable files.
var ErrUnsupported = errors.New("no tables for this kind of file")

// ErrNotELF is what errors about files wrap that are no ELF files at all.
var ErrNotELF = elffile.ErrNotELF

// Machines, under the names that the gABI gives them.
const (
	emX86_64  = 62
	emAARCH64 = 183
)

// elfFile is an ELF file of 64 bits, little-endian, for a machine whose code can be unwound.
type elfFile struct {
	*elffile.Image
	machine  Machine
	segments []segment // PT_LOAD, in the order of the file
	text     []segment // those of code, by address
	maxCFI   uint64    // bytes of a section of call frame information
}

// segment is a PT_LOAD.
type segment struct {
	off, virt, size uint64 // size is what comes from the file
}

// openELF reads the headers of a file.
func openELF(r io.ReaderAt) (*elfFile, error) {
	m, err := elffile.Read(r, "")
	switch {
	case m == nil:
		return nil, err
	case !m.Is64 || m.Big:
		return nil, unsupported("it is not of 64 bits and little-endian")
	case m.Relocatable:
		return nil, unsupported("it is relocatable")
	}
	f := &elfFile{Image: m, maxCFI: maxCFI}
	switch m.Machine {
	case emX86_64:
		f.machine = X86_64
	case emAARCH64:
		f.machine = ARM64
	default:
		return nil, unsupported("it is neither for x86-64 nor for arm64")
	}
	for _, s := range m.Segments {
		f.addSegment(s)
	}
	slices.SortStableFunc(f.text, func(a, b segment) int { return cmp.Compare(a.virt, b.virt) })
	// Section headers may be damaged, or behind the end of what there is of an image in
	// memory: the program headers lead to the same.
	if len(f.segments) > 0 {
		err = nil
	}
	return f, err
}

func unsupported(why string) error { return &unsupportedError{why} }

type unsupportedError struct{ why string }

func (e *unsupportedError) Error() string { return ErrUnsupported.Error() + ": " + e.why }
func (e *unsupportedError) Unwrap() error { return ErrUnsupported }

func (f *elfFile) addSegment(h elffile.Segment) {
	s := segment{uint64(h.Offset), uint64(h.Virt), h.FileSize}
	if s.size == 0 || s.off+s.size <= s.off || s.virt+s.size <= s.virt {
		return
	}
	f.segments = append(f.segments, s)
	var last [1]byte
	if h.Executable() && f.ReadAt(last[:], s.off+s.size-1) == nil { // where the file ends before, nothing can run
		f.text = append(f.text, s)
	}
}

// filled returns the sections with contents in the file.
func (f *elfFile) filled() iter.Seq[*elffile.Section] {
	return func(yield func(*elffile.Section) bool) {
		for i := range f.Sections {
			s := &f.Sections[i]
			if s.Type != 0 && s.Type != elffile.SHT_NOBITS && s.Size > 0 && !yield(s) {
				return
			}
		}
	}
}

// code returns the part of the range of virtual addresses from start up to end that is
// in one executable segment, as offsets of the file.
func (f *elfFile) code(start, end uint64) (from, to addr.Offset, ok bool) {
	i := len(f.text) - 1
	if i > 1 {
		i = sort.Search(len(f.text), func(i int) bool { return f.text[i].virt > start }) - 1
	}
	for ; i >= 0; i-- {
		s := &f.text[i]
		in := start - s.virt
		if in < s.size && end > start {
			return addr.Offset(s.off + in), addr.Offset(s.off + in + min(end-start, s.size-in)), true
		}
		if s.virt <= start {
			break // segments do not overlap
		}
	}
	return 0, 0, false
}

// read returns n bytes at off.
func (f *elfFile) read(off, n uint64) ([]byte, error) {
	if n > maxSection {
		return nil, &cursor.Error{Offset: int64(off), Msg: "table of implausible size"}
	}
	return f.Read(off, n)
}
