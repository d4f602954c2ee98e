package elffile

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"testing"

	"hallmark/internal/cursor"
	"hallmark/internal/defect"
	"hallmark/internal/elftest"
)

func init() { defect.Escape(true) }

// byteOrder is one of encoding/binary.
type byteOrder interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

// object builds a relocatable file with symbols, relocations, and sections in each compressed form.
func object(class elf.Class, order byteOrder) []byte {
	var stream bytes.Buffer
	z := zlib.NewWriter(&stream)
	z.Write(make([]byte, 100))
	z.Close()
	header := order.AppendUint32(nil, elfcompressZLIB)
	if class == elf.ELFCLASS64 {
		header = order.AppendUint64(order.AppendUint64(order.AppendUint32(header, 0), 100), 1)
	} else {
		header = order.AppendUint32(order.AppendUint32(header, 100), 1)
	}
	old := binary.BigEndian.AppendUint64([]byte("ZLIB"), 100)
	return elftest.File{
		Class: class, Order: order, Type: elf.ET_REL,
		Sections: []elftest.Section{
			{Name: ".text", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Data: make([]byte, 0x40)},
			{Name: ".debug_info", Type: elf.SHT_PROGBITS, Flags: elf.SHF_COMPRESSED, Data: append(header, stream.Bytes()...)},
			{Name: ".zdebug_line", Type: elf.SHT_PROGBITS, Data: append(old, stream.Bytes()...)},
			{Name: ".rela.debug_info", Type: elf.SHT_RELA, Link: 5, Info: 2, Data: make([]byte, 48)},
		},
		Symbols: []elf.Symbol{{Name: "f", Info: 0x12, Section: 1, Value: 8, Size: 8}},
	}.Build()
}

// readAll reads all that there is in a file, and returns the contents of its sections.
func readAll(m *Image) (loaded map[string][]byte, errs []error) {
	views, loaded := new(Views), map[string][]byte{}
	defer views.Close()
	for i := range m.Sections[:min(len(m.Sections), 64)] {
		s := &m.Sections[i]
		b, err := m.Content(views, s)
		var data []byte
		if err == nil {
			b.To = &data
			if err = m.Admit(views, []*Content{b}); err == nil {
				err = m.Load(views, []*Content{b}, 1)
			}
		}
		loaded[s.Name] = bytes.Clone(data)
		errs = append(errs, err)
		if s.Type == SHT_SYMTAB || s.Type == SHT_DYNSYM {
			r, err := m.Symbols(s)
			errs = append(errs, err, m.EachEntry(s, m.Size(16, 24), func(c *cursor.Cursor) {
				symbol := r.Next(c)
				m.Dereference(&symbol)
			}))
		}
	}
	_, _, _, _, err := m.EHFrame()
	errs = append(errs, err, m.DynamicErr)
	m.PclntabSections()
	at, err := Loaded{m}.PointersTo(0)
	errs = append(errs, err)
	for _, v := range at[:min(len(at), 4)] {
		_, err := Loaded{m}.WordsAt(v, 2)
		errs = append(errs, err)
	}
	return loaded, errs
}

// TestContents reads sections in each compressed form, of each class and byte order.
func TestContents(t *testing.T) {
	for _, class := range []elf.Class{elf.ELFCLASS32, elf.ELFCLASS64} {
		for _, order := range []byteOrder{binary.LittleEndian, binary.BigEndian} {
			m, err := Read(bytes.NewReader(object(class, order)), "object")
			if err != nil {
				t.Fatal(err)
			}
			loaded, errs := readAll(m)
			if err := errors.Join(errs...); err != nil {
				t.Errorf("%v, %v: %v", class, order, err)
			}
			for _, name := range []string{".debug_info", ".zdebug_line"} {
				if !bytes.Equal(loaded[name], make([]byte, 100)) {
					t.Errorf("%v, %v: %s is % x", class, order, name, loaded[name])
				}
			}
			if m.DebugSection("line") != m.Section(".zdebug_line") || m.DebugSection("info") != m.Section(".debug_info") || m.DebugSection("str") != nil {
				t.Errorf("%v, %v: debug sections are not found by their names", class, order)
			}
		}
	}
}

// FuzzRead reads all of a file, whose damage must be an error that names the file.
func FuzzRead(f *testing.F) {
	for _, class := range []elf.Class{elf.ELFCLASS32, elf.ELFCLASS64} {
		f.Add(object(class, binary.LittleEndian))
		f.Add(object(class, binary.BigEndian))
		f.Add(headerless(class, binary.LittleEndian, class == elf.ELFCLASS32))
		f.Add(headerless(class, binary.BigEndian, class == elf.ELFCLASS64))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Read(bytes.NewReader(data), "fuzzed")
		errs := []error{err}
		if err == nil {
			_, errs = readAll(m)
		}
		for _, err := range errs {
			var damage *FormatError
			if err != nil && (!errors.As(err, &damage) || damage.Name != "fuzzed") {
				t.Errorf("%v is no damage of the file", err)
			}
		}
	})
}
