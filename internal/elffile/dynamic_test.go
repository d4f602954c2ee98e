package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"

	"hallmark/internal/cursor"
	"hallmark/internal/elftest"
)

// headerless builds a file without section headers, with three dynamic symbols, of which the first is null: they are
// counted by DT_HASH, or by DT_GNU_HASH.
func headerless(class elf.Class, order byteOrder, gnu bool) []byte {
	const names = "\x00first\x00second\x00"
	is64 := class == elf.ELFCLASS64
	word := func(b []byte, v uint64) []byte {
		if is64 {
			return order.AppendUint64(b, v)
		}
		return order.AppendUint32(b, uint32(v))
	}
	u32 := func(values ...uint32) (b []byte) {
		for _, v := range values {
			b = order.AppendUint32(b, v)
		}
		return b
	}
	symbols := make([]byte, 16)
	if is64 {
		symbols = make([]byte, 24)
	}
	for _, s := range []elf.Sym64{{Name: 1, Info: 0x12, Shndx: 7, Value: 0x400, Size: 8}, {Name: 7, Info: 0x12, Shndx: 7, Value: 0x410, Size: 16}} {
		var b bytes.Buffer
		if is64 {
			binary.Write(&b, order, s)
		} else {
			binary.Write(&b, order, elf.Sym32{Name: s.Name, Value: uint32(s.Value), Size: uint32(s.Size), Info: s.Info, Shndx: s.Shndx})
		}
		symbols = append(symbols, b.Bytes()...)
	}
	hash, tag := u32(1, 3, 1, 0, 2, 0), uint64(dtHASH)
	if gnu {
		hash, tag = u32(2, 1, 1, 0), dtGNUHASH
		hash = append(word(hash, ^uint64(0)), u32(1, 2, 0x11, 0x33)...) // a chain each, whose last has an odd hash
	}
	var dynamic []byte
	for _, v := range []uint64{tag, 0x200, dtSYMTAB, 0x300, dtSTRTAB, 0x380, dtSTRSZ, uint64(len(names)), dtRELA, 0x3a0, dtRELASZ, 24, dtNULL, 0} {
		dynamic = word(dynamic, v)
	}
	return elftest.File{
		Class: class, Order: order, NoSectionHeaders: true,
		Segments: []elftest.Segment{
			{Type: elf.PT_LOAD, Flags: elf.PF_R, To: ".rela"},
			{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, From: ".text", Vaddr: 0x400},
			{Type: elf.PT_DYNAMIC, From: ".dynamic", Vaddr: 0x240},
			{Type: elf.PT_NOTE, From: ".note", Vaddr: 0x3c0},
		},
		Sections: []elftest.Section{
			{Name: ".hash", Offset: 0x200, Data: hash},
			{Name: ".dynamic", Offset: 0x240, Data: dynamic},
			{Name: ".dynsym", Offset: 0x300, Data: symbols},
			{Name: ".dynstr", Offset: 0x380, Data: []byte(names)},
			{Name: ".rela", Offset: 0x3a0, Data: make([]byte, 24)},
			{Name: ".note", Offset: 0x3c0, Data: append(u32(4, 5, 4), "Go\x00\x00abcde\x00\x00\x00"...)},
			{Name: ".text", Offset: 0x400, Data: make([]byte, 0x40)},
		},
	}.Build()
}

// TestHeaderless reads files of each class and order without section headers.
func TestHeaderless(t *testing.T) {
	for _, gnu := range []bool{false, true} {
		for _, class := range []elf.Class{elf.ELFCLASS32, elf.ELFCLASS64} {
			for _, order := range []byteOrder{binary.LittleEndian, binary.BigEndian} {
				m, err := Read(bytes.NewReader(headerless(class, order, gnu)), "prog")
				if err != nil || !m.Headerless || m.DynamicErr != nil {
					t.Fatalf("%v %v, GNU %v: %v, %v", class, order, gnu, err, m.DynamicErr)
				}
				s := m.SectionOfType(SHT_DYNSYM)
				r, err := m.Symbols(s)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				err = m.EachEntry(s, m.Size(16, 24), func(c *cursor.Cursor) {
					e := r.Next(c)
					name, err := m.ReadString(m.Sections[s.Link].Offset+uint64(e.Name), 3)
					if err != nil {
						t.Error(err)
					}
					if e.Section != 0 && !m.Sections[e.Section].IsText() {
						t.Errorf("%s is in section %d", name, e.Section)
					}
					got = append(got, name)
				})
				if err != nil || len(got) != 3 || got[1] != "fir" || got[2] != "sec" {
					t.Errorf("%v %v, GNU %v: %q, %v", class, order, gnu, got, err)
				}
				if !m.hasGoNote() || len(m.Disjoint(SHT_RELA, SHF_ALLOC)) != 1 || !m.HasCode() || !m.IsText(0x400, 0x43f) {
					t.Errorf("%v %v: note, relocations or code are missing", class, order)
				}
			}
		}
	}
}
