package symbol

import (
	"encoding/binary"
	"slices"

	"hallmark/internal/cursor"
)

const shtREL = 9

// relocation is what a type of relocation does: it puts, adds or subtracts a symbol's
// address in a field of size bytes.
type relocation struct {
	size uint8
	op   relocationOp
}

type relocationOp uint8

const (
	relocPut relocationOp = iota
	relocAdd
	relocSub
)

// relocations are those that occur in debug sections, by machine and type (the
// psABI of each machine).
var relocations = map[uint16]map[uint32]relocation{
	3:   {1: {size: 4}},                               // EM_386: R_386_32
	20:  {1: {size: 4}},                               // EM_PPC: R_PPC_ADDR32
	21:  {1: {size: 4}, 38: {size: 8}},                // EM_PPC64: R_PPC64_ADDR32, _ADDR64
	22:  {4: {size: 4}, 22: {size: 8}},                // EM_S390: R_390_32, _64
	40:  {2: {size: 4}},                               // EM_ARM: R_ARM_ABS32
	62:  {1: {size: 8}, 10: {size: 4}, 11: {size: 4}}, // EM_X86_64: R_X86_64_64, _32, _32S
	183: {257: {size: 8}, 258: {size: 4}},             // EM_AARCH64: R_AARCH64_ABS64, _ABS32
	243: {1: {size: 4}, 2: {size: 8}, 33: {1, relocAdd}, 34: {2, relocAdd}, 35: {4, relocAdd}, 36: {8, relocAdd}, // EM_RISCV: R_RISCV_32, _64, _ADD8 …
		37: {1, relocSub}, 38: {2, relocSub}, 39: {4, relocSub}, 40: {8, relocSub}}, // R_RISCV_SUB8 …
	258: {1: {size: 4}, 2: {size: 8}}, // EM_LOONGARCH: R_LARCH_32, _64
}

// relocate returns the contents of a debug section of a relocatable file as a linker
// would have made them that puts sections where layOut did. raw is not changed.
func (m *image) relocate(s *section, raw []byte) ([]byte, error) {
	copied := false
	addresses := map[uint32][]uint64{} // by number of the symbol table
	for i := range m.sections {
		rel := &m.sections[i]
		if rel.typ != shtRELA && rel.typ != shtREL || uint64(rel.info) >= uint64(len(m.sections)) || &m.sections[rel.info] != s {
			continue
		}
		if !copied {
			raw, copied = slices.Clone(raw), true
		}
		if addresses[rel.link] == nil {
			var err error
			if addresses[rel.link], err = m.symbolAddresses(rel); err != nil {
				return nil, err
			}
		}
		if err := m.applyRelocations(rel, raw, addresses[rel.link]); err != nil {
			return nil, err
		}
	}
	return raw, nil
}

// applyRelocations applies the relocations in section rel to data. addresses are those
// of the symbols.
func (m *image) applyRelocations(rel *section, data []byte, addresses []uint64) error {
	known := relocations[m.machine]
	entry := m.size(8, 16)
	if rel.typ == shtRELA {
		entry = m.size(12, 24)
	}
	var unknown error
	err := m.eachEntry(rel, entry, func(c *cursor.Cursor) {
		at := c.Offset()
		offset, info := m.word(c), m.word(c)
		addend := uint64(0)
		if rel.typ == shtRELA {
			addend = m.word(c)
		}
		symbol, typ := info>>32, uint32(info)
		if !m.is64 {
			symbol, typ = info>>8, uint32(info&0xff)
		}
		r, ok := known[typ]
		switch {
		case typ == 0: // R_…_NONE
		case !ok || offset > uint64(len(data)) || uint64(len(data))-offset < uint64(r.size) || symbol >= uint64(len(addresses)):
			if unknown == nil {
				unknown = m.fail(uint64(at), "relocation of an unknown kind or outside its section")
			}
		default:
			m.applyRelocation(r, data[offset:], addresses[symbol]+addend, rel.typ == shtREL)
		}
	})
	if err != nil {
		return err
	}
	return unknown
}

// applyRelocation changes the field at the start of b. The addend of a REL section
// is in the field.
func (m *image) applyRelocation(r relocation, b []byte, value uint64, inPlace bool) {
	var order binary.ByteOrder = binary.LittleEndian
	if m.big {
		order = binary.BigEndian
	}
	field := uint64(0)
	switch r.size {
	case 1:
		field = uint64(b[0])
	case 2:
		field = uint64(order.Uint16(b))
	case 4:
		field = uint64(order.Uint32(b))
	case 8:
		field = order.Uint64(b)
	}
	switch {
	case r.op == relocAdd || inPlace:
		value += field
	case r.op == relocSub:
		value = field - value
	}
	switch r.size {
	case 1:
		b[0] = byte(value)
	case 2:
		order.PutUint16(b, uint16(value))
	case 4:
		order.PutUint32(b, uint32(value))
	case 8:
		order.PutUint64(b, value)
	}
}

// symbolAddresses returns the address of each symbol that section rel can refer to.
func (m *image) symbolAddresses(rel *section) ([]uint64, error) {
	if uint64(rel.link) >= uint64(len(m.sections)) {
		return nil, m.fail(rel.off, "relocations without a symbol table")
	}
	symtab := &m.sections[rel.link]
	entry := m.size(16, 24)
	if err := m.check(symtab.off, symtab.size); err != nil {
		return nil, err
	}
	r, err := m.symbolReader(symtab)
	if err != nil {
		return nil, err
	}
	addresses := make([]uint64, 0, symtab.size/entry)
	err = m.eachEntry(symtab, entry, func(c *cursor.Cursor) {
		s := r.next(c)
		if uint64(s.section) < uint64(len(m.sections)) {
			s.value += m.sections[s.section].addr
		}
		addresses = append(addresses, s.value)
	})
	return addresses, err
}
