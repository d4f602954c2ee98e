package unwind

import (
	"cmp"
	"errors"
	"io"
	"math"
	"slices"
	"sort"
	"strings"

	"hallmark/addr"
	"hallmark/internal/cursor"
)

// ErrUnsupported is what errors about files wrap whose code cannot be unwound by
// tables: of other machines, of 32 bits, relocatable files.
var ErrUnsupported = errors.New("no tables for this kind of file")

// ErrNotELF is what errors about files wrap that are no ELF files at all.
var ErrNotELF = errors.New("not an ELF file")

// Constants of the gABI, under the names it gives them, and of the GNU extensions.
const (
	elfCLASS64  = 2
	elfDATA2LSB = 1

	etREL = 1

	emX86_64  = 62
	emAARCH64 = 183

	ptLOAD       = 1
	ptGNUEHFRAME = 0x6474e550
	pnXNUM       = 0xffff
	pfX          = 1

	shnXINDEX     = 0xffff
	shtNOBITS     = 8
	shfCOMPRESSED = 0x800

	elfHeaderSize     = 64
	programHeaderSize = 56
	sectionHeaderSize = 64
)

// Limits on what a file may claim.
const (
	maxHeaders = 1 << 16 // program or section headers that are looked at
	maxNames   = 16 << 20
)

// elfFile is the headers of an ELF file of 64 bits, little-endian, and the way to its
// contents.
type elfFile struct {
	r        io.ReaderAt
	machine  Machine
	segments []segment // PT_LOAD, in the order of the file
	text     []segment // those of code, by address
	sections []section
	ehHeader uint64 // virtual address of .eh_frame_hdr, as its program header says
	ehSize   uint64 // bytes of it, 0 if there is none
}

// segment is a PT_LOAD.
type segment struct {
	off, virt, size uint64 // size is what comes from the file
}

// section is a section with contents in the file.
type section struct {
	name             string
	flags            uint64
	virt, off, bytes uint64
	nameAt           uint32
}

// openELF reads the headers of a file.
func openELF(r io.ReaderAt) (*elfFile, error) {
	var raw [elfHeaderSize]byte
	n, err := r.ReadAt(raw[:], 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if n < elfHeaderSize || string(raw[:4]) != "\x7fELF" {
		return nil, ErrNotELF
	}
	if raw[4] != elfCLASS64 || raw[5] != elfDATA2LSB {
		return nil, unsupported("it is not of 64 bits and little-endian")
	}
	f := &elfFile{r: r}
	c := cursor.New(raw[:], 0, false)
	c.SeekTo(16)
	if typ := c.U16(); typ == etREL {
		return nil, unsupported("it is relocatable")
	}
	switch m := c.U16(); m {
	case emX86_64:
		f.machine = X86_64
	case emAARCH64:
		f.machine = ARM64
	default:
		return nil, unsupported("it is neither for x86-64 nor for arm64")
	}
	c.SeekTo(32)
	phoff, shoff := c.U64(), c.U64()
	c.SeekTo(54)
	phentsize, phnum := uint64(c.U16()), uint64(c.U16())
	shentsize, shnum, names := uint64(c.U16()), uint64(c.U16()), uint64(c.U16())
	if shoff != 0 {
		phnum, err = f.readSections(shoff, shentsize, shnum, names, phnum)
	}
	if err == nil || phnum != pnXNUM {
		err = errors.Join(err, f.readSegments(phoff, phentsize, phnum))
	}
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

// readSections reads the section headers and returns how many program headers there
// are, which the first of them tells if they are very many.
func (f *elfFile) readSections(off, stride, count, names, phnum uint64) (uint64, error) {
	if stride < sectionHeaderSize {
		return phnum, nil
	}
	first, err := f.read(off, sectionHeaderSize)
	if err != nil {
		return phnum, err
	}
	c := cursor.New(first, int64(off), false)
	c.SeekTo(32)
	if size := c.U64(); count == 0 {
		count = size
	}
	if link := c.U32(); names == shnXINDEX {
		names = uint64(link)
	}
	if info := c.U32(); phnum == pnXNUM {
		phnum = uint64(info)
	}
	data, err := f.read(off, min(count, maxHeaders)*stride)
	if err != nil {
		return phnum, err
	}
	var table section
	for i := uint64(0); i < min(count, maxHeaders); i++ {
		c := cursor.New(data[i*stride:], int64(off+i*stride), false)
		s, inFile := parseSection(&c)
		if inFile {
			f.sections = append(f.sections, s)
		}
		if i == names {
			table = s
		}
	}
	return phnum, f.nameSections(table)
}

// parseSection reads a section header and reports whether the section has contents in
// the file.
func parseSection(c *cursor.Cursor) (s section, inFile bool) {
	s.nameAt = c.U32()
	typ := c.U32()
	s.flags, s.virt, s.off, s.bytes = c.U64(), c.U64(), c.U64(), c.U64()
	return s, typ != 0 && typ != shtNOBITS && s.bytes > 0
}

func (f *elfFile) nameSections(table section) error {
	names, err := f.read(table.off, min(table.bytes, maxNames))
	if err != nil {
		return err
	}
	for i := range f.sections {
		s := &f.sections[i]
		if uint64(s.nameAt) >= uint64(len(names)) {
			continue
		}
		name := names[s.nameAt:]
		name = name[:min(len(name), 64)]
		s.name, _, _ = strings.Cut(string(name), "\x00")
	}
	return nil
}

func (f *elfFile) readSegments(off, stride, count uint64) error {
	if off == 0 || stride < programHeaderSize {
		return nil
	}
	count = min(count, maxHeaders)
	data, err := f.read(off, count*stride)
	if err != nil {
		return err
	}
	for i := range count {
		c := cursor.New(data[i*stride:], int64(off+i*stride), false)
		f.addSegment(&c)
	}
	slices.SortStableFunc(f.text, func(a, b segment) int { return cmp.Compare(a.virt, b.virt) })
	return nil
}

func (f *elfFile) addSegment(c *cursor.Cursor) {
	typ, flags := c.U32(), c.U32()
	s := segment{off: c.U64(), virt: c.U64()}
	c.U64() // p_paddr
	s.size = c.U64()
	switch {
	case typ == ptGNUEHFRAME:
		f.ehHeader, f.ehSize = s.virt, s.size
	case typ == ptLOAD && s.size > 0 && s.off+s.size > s.off && s.virt+s.size > s.virt:
		f.segments = append(f.segments, s)
		var last [1]byte
		if flags&pfX != 0 && f.readAt(last[:], s.off+s.size-1) == nil { // where the file ends before, nothing can run
			f.text = append(f.text, s)
		}
	}
}

// section returns the first section with this name, or nil.
func (f *elfFile) section(name string) *section {
	for i := range f.sections {
		if f.sections[i].name == name {
			return &f.sections[i]
		}
	}
	return nil
}

// at returns the segment that holds the byte at a virtual address, or nil.
func (f *elfFile) at(virt uint64) *segment {
	for i := range f.segments {
		if s := &f.segments[i]; virt-s.virt < s.size {
			return s
		}
	}
	return nil
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

// read returns n bytes at off. The last of them is asked for first, so that a length
// that the file does not have allocates nothing.
func (f *elfFile) read(off, n uint64) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	if n > maxSection || off > math.MaxInt64-n {
		return nil, &cursor.Error{Offset: int64(off), Msg: "table of implausible size"}
	}
	var last [1]byte
	if err := f.readAt(last[:], off+n-1); err != nil {
		return nil, err
	}
	data := make([]byte, n)
	return data, f.readAt(data, off)
}

func (f *elfFile) readAt(b []byte, off uint64) error {
	n, err := f.r.ReadAt(b, int64(off))
	switch {
	case n == len(b):
		return nil
	case err == io.EOF:
		return &cursor.Error{Offset: int64(off) + int64(n), Msg: "file ends here, within a table"}
	default:
		return err
	}
}
