package buildid

import (
	"encoding/binary"
	"math/bits"
)

// A patch is what bytes of a file count as in its Content, so that stripping changes nothing.
// Each is as narrow as the tools allow: bytes that count as others may be code.
type patch struct {
	at    uint64
	bytes []byte
}

// apply changes the bytes b of the file, which begin at at.
func (p *patch) apply(b []byte, at uint64) {
	from, to := max(p.at, at), min(p.at+uint64(len(p.bytes)), at+uint64(len(b)))
	if from < to {
		copy(b[from-at:to-at], p.bytes[from-p.at:])
	}
}

// maxFirstHeaders is how many bytes of a file have headers at most that linkers write in
// front of the code: ELFRESERVE of Go's, cmd/link/internal/ld/elf.go.
const maxFirstHeaders = 4096

// isFirst reports whether a table is in front of the code. One that claims to lie over the ELF
// header, which says where the code begins, is part of the code.
func (t *table) isFirst(l layout) bool {
	size := t.count * uint64(t.entrySize)
	return t.pos >= uint64(l.headerSize()) && t.pos < maxFirstHeaders && t.count < maxFirstHeaders && size <= maxFirstHeaders-t.pos
}

// patchHeaders adds what the headers count as, after the segments and sections were read.
func (s *search) patchHeaders(c *code) {
	damage := s.damage
	defer func() { s.damage = damage }() // what cannot be read counts as it is
	s.patchELFHeader(c)
	if s.programs.isFirst(s.layout) {
		s.patchPrograms(c)
	}
	if s.sections.isFirst(s.layout) && s.describesFile() {
		c.patches = append(c.patches, patch{s.sections.pos, make([]byte, s.sections.count*uint64(s.sections.entrySize))})
	}
}

// maxSectionsAt is how far into a file a table of section headers may lie that does not count.
const maxSectionsAt = 1 << 36

// patchELFHeader has e_shoff, e_shentsize, e_shnum and e_shstrndx count as 0, if they can be what
// they should be.
func (s *search) patchELFHeader(c *code) {
	l := s.layout
	shoff, sizes := 24+2*l.word, 30+3*l.word
	b := s.at(0, l.headerSize())
	if b == nil {
		return
	}
	at, size, count, names := l.address(b[shoff:]), l.u16(b[sizes+4:]), l.u16(b[sizes+6:]), l.u16(b[sizes+8:])
	if at >= maxSectionsAt || size != 0 && int(size) != l.sectionHeaderSize() {
		return
	}
	const elsewhere = 0xffff // SHN_XINDEX
	if names != 0 && names >= count && (names != elsewhere || count != 0) {
		return
	}
	c.patches = append(c.patches, patch{uint64(shoff), make([]byte, l.word)}, patch{uint64(sizes + 4), make([]byte, 6)})
}

// roundData is to what the size of data in a file is rounded: GNU strip takes away what the
// linker put between the last data and the zeros behind them, which are aligned to no more.
const roundData = 64

// patchPrograms has the program headers count as before stripping. GNU strip shortens data, and
// changes the place of thread-local data that has no bytes in the file.
func (s *search) patchPrograms(c *code) {
	const (
		ptTLS            = 7
		ptLoadExecutable = 1 // PF_X of p_flags
		maxOffset        = 1 << 31
	)
	l := s.layout
	for i := uint64(0); ; i++ {
		b := s.entry(&s.programs, i)
		if b == nil {
			return
		}
		at, p := s.programs.pos+i*uint64(s.programs.entrySize), l.segment(b)
		switch kind := l.u32(b); {
		case kind == ptLoad && l.flags(b)&ptLoadExecutable == 0:
			c.patches = append(c.patches, patch{at + uint64(4*l.word), l.appendAddress((p.size + roundData - 1) &^ (roundData - 1))})
		case kind == ptTLS:
			if p.size == 0 && p.offset < maxOffset {
				c.patches = append(c.patches, patch{at + uint64(l.word), make([]byte, l.word)})
			}
			return // programs have one, behind all that is loaded
		}
	}
}

// appendAddress returns the bytes of an address.
func (l layout) appendAddress(v uint64) []byte {
	switch {
	case l.word == 4 && l.big:
		return binary.BigEndian.AppendUint32(nil, uint32(v))
	case l.word == 4:
		return binary.LittleEndian.AppendUint32(nil, uint32(v))
	case l.big:
		return binary.BigEndian.AppendUint64(nil, v)
	default:
		return binary.LittleEndian.AppendUint64(nil, v)
	}
}

// A section is a section header (gABI, "Section Header").
type section struct {
	name, kind                   uint32
	flags, address, offset, size uint64
	link, info                   uint32
	align, entrySize             uint64
}

func (l layout) section(b []byte) section {
	w := l.word
	return section{
		name: l.u32(b), kind: l.u32(b[4:]), flags: l.address(b[8:]), address: l.address(b[8+w:]), offset: l.address(b[8+2*w:]),
		size: l.address(b[8+3*w:]), link: l.u32(b[8+4*w:]), info: l.u32(b[12+4*w:]), align: l.address(b[16+4*w:]), entrySize: l.address(b[16+5*w:]),
	}
}

// describesFile reports whether section headers that are in front of the code are those of Go's
// linker, as far as it leaves any choice. Stripping leaves zeros in their place, so they count as
// zeros; whoever wants to have code there has to write it in headers that pass for true ones.
//
// Sections that the loader maps lie in the segments, at their addresses there. The others follow
// them in the file without gaps. Neither overlap. So of the fields in which any number might be
// written only the sizes are free, of sections that together are no larger than the file.
func (s *search) describesFile() bool {
	const maxSections = 64 // 40 are the most that Go's linker makes
	if int(s.sections.entrySize) != s.layout.sectionHeaderSize() || s.sections.count > maxSections {
		return false
	}
	all := make([]section, 0, maxSections)
	for i := uint64(0); ; i++ {
		b := s.entry(&s.sections, i)
		if b == nil {
			break
		}
		all = append(all, s.layout.section(b))
	}
	return uint64(len(all)) == s.sections.count && len(all) > 0 && all[0] == section{} && s.areInPlace(all[1:])
}

// areInPlace reports whether sections are well-formed, and each behind the one before.
func (s *search) areInPlace(all []section) bool {
	const (
		noBits, alloc, threadLocal = 8, 2, 0x400 // SHT_NOBITS, SHF_ALLOC, SHF_TLS
		maxGap, maxEnd             = 4096, 1 << 31
	)
	var end, addressEnd uint64
	mapped := true
	for i := range all {
		h := &all[i]
		if !h.isSane(len(all) + 1) {
			return false
		}
		switch {
		case h.flags&alloc != 0 && h.flags&threadLocal != 0:
			if h.kind != noBits || h.address != 0 || h.offset != 0 || h.size >= maxGap {
				return false
			}
		case h.flags&alloc != 0:
			fileEnd, ok := s.holds(h)
			if !ok || !mapped || h.address < addressEnd {
				return false
			}
			addressEnd, end = h.address+h.size, max(end, fileEnd)
		default:
			mapped = false
			if h.address != 0 || h.kind == noBits || h.offset < end || h.offset-end >= maxGap || h.size > maxEnd-h.offset {
				return false
			}
			end = h.offset + h.size
		}
		if end > maxEnd {
			return false
		}
	}
	return true
}

// isSane reports whether the small fields of a section header have values that they may have.
func (h *section) isSane(sections int) bool {
	const (
		maxNames  = 4096
		maxAlign  = 1 << 12
		maxEntry  = 64
		maxPlace  = 1 << 40
		flags     = 0xc77 // SHF_WRITE, ALLOC, EXECINSTR, MERGE, STRINGS, INFO_LINK, TLS, COMPRESSED
		symbols   = 2     // SHT_SYMTAB
		lastSmall = 16    // SHT_PREINIT_ARRAY, the last of the kinds with small numbers
		gnuHash   = 0x6ffffff6
		verneed   = 0x6ffffffe
		versym    = 0x6fffffff
	)
	knownKind := h.kind > 0 && h.kind <= lastSmall || h.kind == gnuHash || h.kind == verneed || h.kind == versym
	maxInfo := uint64(sections)
	if h.kind == symbols { // how many of the symbols are local
		maxInfo = min(h.size/max(h.entrySize, 1)+1, 1<<24)
	}
	return knownKind && h.name < maxNames && h.flags&^flags == 0 && int64(h.link) < int64(sections) && uint64(h.info) < maxInfo &&
		h.align <= maxAlign && bits.OnesCount64(h.align) <= 1 && h.entrySize <= maxEntry && h.size < maxPlace && h.offset < maxPlace
}

// holds reports whether a section lies in a segment, at its place there, and returns where its
// bytes in the file end.
func (s *search) holds(h *section) (fileEnd uint64, ok bool) {
	const noBits = 8
	for i := uint64(0); ; i++ {
		b := s.entry(&s.programs, i)
		if b == nil {
			return 0, false
		}
		p, memory := s.layout.segment(b), s.layout.memorySize(b)
		if s.layout.u32(b) != ptLoad || h.address < p.vaddr || h.address-p.vaddr > memory || h.size > memory-(h.address-p.vaddr) {
			continue
		}
		if h.offset != p.offset+(h.address-p.vaddr) {
			return 0, false
		}
		if h.kind == noBits {
			return p.offset + p.size, true
		}
		return h.offset + h.size, true
	}
}
