package elffile

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"hallmark/internal/cursor"
)

const SHT_REL = 9

// relocation is what a type of relocation does to a field of size bytes: it puts, adds
// or subtracts a symbol's address.
type relocation struct {
	size uint8 // 0 for a number in ULEB128
	op   relocationOp
}

type relocationOp uint8

const (
	relocPut relocationOp = iota
	relocAdd
	relocSub
	relocSkip // of no interest here: where a thread has a variable, a hint to the linker
)

// sixBits is the size of a field that is the lower six bits of a byte, and uleb that of
// one whose own bytes say how many it has.
const (
	uleb    = 0
	sixBits = 6
)

// Machines (gABI, e_machine).
const (
	emMIPS      = 8
	emMIPSRS3LE = 10
	emPPC64     = 21
	emSPARCV9   = 43
)

// relocations are those that occur in debug sections, by machine and type (the
// psABI of each machine; of BPF, Documentation/bpf/llvm_reloc.rst of Linux).
var relocations = map[uint16]map[uint32]relocation{
	2:  sparc, // EM_SPARC
	18: sparc, // EM_SPARC32PLUS
	43: sparc, // EM_SPARCV9
	3: { // EM_386
		1:  {size: 4},       // R_386_32
		32: {op: relocSkip}, // R_386_TLS_LDO_32
	},
	4: { // EM_68K
		1: {size: 4}, 2: {size: 2}, 3: {size: 1}, // R_68K_32, _16, _8
		31: {op: relocSkip}, // R_68K_TLS_LDO32
	},
	8:  mips, // EM_MIPS
	10: mips, // EM_MIPS_RS3_LE
	20: { // EM_PPC
		1: {size: 4}, 24: {size: 4}, // R_PPC_ADDR32, _UADDR32
		78: {op: relocSkip}, // R_PPC_DTPREL32
	},
	21: { // EM_PPC64
		1: {size: 4}, 24: {size: 4}, 38: {size: 8}, 43: {size: 8}, // R_PPC64_ADDR32, _UADDR32, _ADDR64, _UADDR64
		51: {op: relocSkip}, 78: {op: relocSkip}, // R_PPC64_TOC, _DTPREL64
	},
	22: { // EM_S390
		4: {size: 4}, 22: {size: 8}, // R_390_32, _64
		52: {op: relocSkip}, 53: {op: relocSkip}, // R_390_TLS_LDO32, _LDO64
	},
	40: { // EM_ARM
		2:   {size: 4},       // R_ARM_ABS32
		106: {op: relocSkip}, // R_ARM_TLS_LDO32
	},
	50: { // EM_IA_64
		0x24: {size: 4}, 0x25: {size: 4}, 0x26: {size: 8}, 0x27: {size: 8}, // R_IA64_DIR32MSB, _DIR32LSB, _DIR64MSB, _DIR64LSB
		0x64: {size: 4}, 0x65: {size: 4}, 0x66: {size: 8}, 0x67: {size: 8}, // R_IA64_SECREL32MSB …: debug sections are at 0
	},
	62: { // EM_X86_64
		1: {size: 8}, 10: {size: 4}, 11: {size: 4}, // R_X86_64_64, _32, _32S
		17: {op: relocSkip}, 21: {op: relocSkip}, // R_X86_64_DTPOFF64, _DTPOFF32
	},
	183: {257: {size: 8}, 258: {size: 4}}, // EM_AARCH64: R_AARCH64_ABS64, _ABS32
	243: { // EM_RISCV
		1: {size: 4}, 2: {size: 8}, // R_RISCV_32, _64
		8: {op: relocSkip}, 9: {op: relocSkip}, // R_RISCV_TLS_DTPREL32, _DTPREL64
		33: {1, relocAdd}, 34: {2, relocAdd}, 35: {4, relocAdd}, 36: {8, relocAdd}, // R_RISCV_ADD8 …
		37: {1, relocSub}, 38: {2, relocSub}, 39: {4, relocSub}, 40: {8, relocSub}, // R_RISCV_SUB8 …
		51: {op: relocSkip},                                                                       // R_RISCV_RELAX
		52: {sixBits, relocSub}, 53: {size: sixBits}, 54: {size: 1}, 55: {size: 2}, 56: {size: 4}, // R_RISCV_SUB6, _SET6, _SET8 …
		60: {size: uleb}, 61: {uleb, relocSub}, // R_RISCV_SET_ULEB128, _SUB_ULEB128
	},
	247: { // EM_BPF
		1: {size: 8}, 2: {size: 8}, 3: {size: 4}, 4: {size: 4}, // R_BPF_64_64 (before LLVM 13), _ABS64, _ABS32, _NODYLD32
		10: {size: 4}, // R_BPF_64_32 (before LLVM 13)
	},
	258: { // EM_LOONGARCH
		1: {size: 4}, 2: {size: 8}, // R_LARCH_32, _64
		8: {op: relocSkip}, 9: {op: relocSkip}, // R_LARCH_TLS_DTPREL32, _DTPREL64
		47: {1, relocAdd}, 48: {2, relocAdd}, 49: {3, relocAdd}, 50: {4, relocAdd}, 51: {8, relocAdd}, // R_LARCH_ADD8 …
		52: {1, relocSub}, 53: {2, relocSub}, 54: {3, relocSub}, 55: {4, relocSub}, 56: {8, relocSub}, // R_LARCH_SUB8 …
		100: {op: relocSkip},                               // R_LARCH_RELAX
		105: {sixBits, relocAdd}, 106: {sixBits, relocSub}, // R_LARCH_ADD6, _SUB6
		107: {uleb, relocAdd}, 108: {uleb, relocSub}, // R_LARCH_ADD_ULEB128, _SUB_ULEB128
	},
}

var (
	mips = map[uint32]relocation{
		1: {size: 2}, 2: {size: 4}, 18: {size: 8}, // R_MIPS_16, _32, _64
		39: {op: relocSkip}, 41: {op: relocSkip}, // R_MIPS_TLS_DTPREL32, _DTPREL64
	}
	sparc = map[uint32]relocation{
		1: {size: 1}, 2: {size: 2}, 3: {size: 4}, 32: {size: 8}, // R_SPARC_8, _16, _32, _64
		23: {size: 4}, 54: {size: 8}, 55: {size: 2}, // R_SPARC_UA32, _UA64, _UA16
		76: {op: relocSkip}, 77: {op: relocSkip}, // R_SPARC_TLS_DTPOFF32, _DTPOFF64
	}
)

// relocate returns the contents of a debug section of a relocatable file as a linker
// would have made them that puts sections where layOut did. raw is not changed.
func (m *Image) relocate(s *Section, raw []byte) ([]byte, error) {
	copied := false
	addresses := map[uint32][]uint64{} // by number of the symbol table
	for i := range m.Sections {
		rel := &m.Sections[i]
		if rel.Type != SHT_RELA && rel.Type != SHT_REL || uint64(rel.info) >= uint64(len(m.Sections)) || &m.Sections[rel.info] != s {
			continue
		}
		if !copied {
			raw, copied = slices.Clone(raw), true
		}
		if addresses[rel.Link] == nil {
			clear(addresses) // as a rule there is one table of symbols
			var err error
			if addresses[rel.Link], err = m.symbolAddresses(rel); err != nil {
				return nil, err
			}
		}
		if err := m.applyRelocations(rel, s, raw, addresses[rel.Link]); err != nil {
			return nil, err
		}
	}
	return raw, nil
}

// relocationEntry is an entry of a table of relocations.
type relocationEntry struct {
	offset uint64
	symbol uint64
	typ    uint32
	addend uint64
}

// nextRelocation reads an entry of section rel.
func (m *Image) nextRelocation(c *cursor.Cursor, rel *Section) relocationEntry {
	offset, info := m.Word(c), m.Word(c)
	e := relocationEntry{offset: offset}
	switch {
	case !m.Is64:
		e.symbol, e.typ = info>>8, uint32(info&0xff)
	case m.isMIPS() && !m.Big:
		// The symbol, its special one and three types, in this order: numbers of their
		// own, which only in big-endian make up a word as elsewhere.
		e.symbol, e.typ = info&0xffffffff, bits.ReverseBytes32(uint32(info>>32))
	case m.Machine == emSPARCV9:
		e.symbol, e.typ = info>>32, uint32(info&0xff) // the rest of the type is another addend
	default:
		e.symbol, e.typ = info>>32, uint32(info)
	}
	if rel.Type == SHT_RELA {
		e.addend = m.Word(c)
	}
	return e
}

func (m *Image) isMIPS() bool { return m.Machine == emMIPS || m.Machine == emMIPSRS3LE }

// applyRelocations applies the relocations in section rel to data, the contents of section
// s. addresses are those of the symbols.
func (m *Image) applyRelocations(rel, s *Section, data []byte, addresses []uint64) error {
	known := relocations[m.Machine]
	entry := m.Size(8, 16)
	if rel.Type == SHT_RELA {
		entry = m.Size(12, 24)
	}
	var first error
	err := m.EachEntry(rel, entry, func(c *cursor.Cursor) {
		at := uint64(c.Offset())
		e := m.nextRelocation(c, rel)
		r, ok := known[e.typ]
		problem := ""
		switch {
		case e.typ == 0 || r.op == relocSkip: // 0 is R_…_NONE
		case !ok:
			problem = fmt.Sprintf("relocation of unknown kind %d for offset %#x of %s", e.typ, e.offset, s.Name)
		case e.offset >= uint64(len(data)) || e.symbol >= uint64(len(addresses)) ||
			!m.applyRelocation(r, data[e.offset:], addresses[e.symbol]+e.addend, rel.Type == SHT_REL):
			problem = fmt.Sprintf("relocation for offset %#x outside %s, or for a symbol that is not there", e.offset, s.Name)
		}
		if problem != "" && first == nil {
			first = m.Fail(at, problem)
		}
	})
	if err != nil {
		return err
	}
	return first
}

// applyRelocation changes the field at the start of b, and reports whether it is there as
// a whole. The addend of a REL section is in the field.
func (m *Image) applyRelocation(r relocation, b []byte, value uint64, inPlace bool) bool {
	field, ok := m.relocated(r.size, b)
	if !ok {
		return false
	}
	old := field.get()
	switch {
	case r.op == relocSub:
		value = old - value
	case r.op == relocAdd || inPlace:
		value += old
	}
	field.put(value)
	return true
}

// A relocatedField is a number that relocations change: groups of bits of bytes, from the
// lowest on.
type relocatedField struct {
	bytes []byte // the lowest first or last
	big   bool
	width uint // bits of each byte that count, from the lowest on
}

// relocated returns the field of size bytes at the start of b.
func (m *Image) relocated(size uint8, b []byte) (relocatedField, bool) {
	f := relocatedField{big: m.Big, width: 8}
	n := int(size)
	switch size {
	case sixBits:
		n, f.width = 1, 6
	case uleb:
		n, f.width, f.big = ulebSize(b), 7, false
	}
	if n == 0 || n > len(b) {
		return f, false
	}
	f.bytes = b[:n]
	return f, true
}

// ulebSize returns how many bytes the ULEB128 at the start of b has, 0 if it does not end
// within what 64 bits need.
func ulebSize(b []byte) int {
	for i, c := range b[:min(len(b), binary.MaxVarintLen64)] {
		if c < 0x80 {
			return i + 1
		}
	}
	return 0
}

// at returns the byte with the bits from i*width on.
func (f *relocatedField) at(i int) *byte {
	if f.big {
		i = len(f.bytes) - 1 - i
	}
	return &f.bytes[i]
}

func (f *relocatedField) get() (value uint64) {
	mask := uint64(1)<<f.width - 1
	for i := range f.bytes {
		value |= uint64(*f.at(i)) & mask << (uint(i) * f.width)
	}
	return value
}

// put stores as many bits of value as the field has.
func (f *relocatedField) put(value uint64) {
	mask := byte(1<<f.width - 1)
	for i := range f.bytes {
		b := f.at(i)
		*b = *b&^mask | byte(value>>(uint(i)*f.width))&mask
	}
}

// symbolAddresses returns the address of each symbol that section rel can refer to.
func (m *Image) symbolAddresses(rel *Section) ([]uint64, error) {
	if uint64(rel.Link) >= uint64(len(m.Sections)) {
		return nil, m.Fail(rel.Offset, "relocations without a symbol table")
	}
	symtab := &m.Sections[rel.Link]
	entry := m.Size(16, 24)
	if err := m.Check(symtab.Offset, symtab.Size); err != nil {
		return nil, err
	}
	r, err := m.Symbols(symtab)
	if err != nil {
		return nil, err
	}
	addresses := make([]uint64, 0, symtab.Size/entry)
	err = m.EachEntry(symtab, entry, func(c *cursor.Cursor) {
		s := r.Next(c)
		if uint64(s.Section) < uint64(len(m.Sections)) {
			s.Value += m.Sections[s.Section].Addr
		}
		addresses = append(addresses, s.Value)
	})
	return addresses, err
}
