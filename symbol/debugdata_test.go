package symbol

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/elftest"
	"hallmark/internal/testenv"
	"hallmark/reason"
)

// TestImplausibleCompression builds files whose debug sections claim to be far larger
// than their bytes, or are.
func TestImplausibleCompression(t *testing.T) {
	if testenv.Brief() {
		return // nothing goes on but compression
	}
	var zeros bytes.Buffer
	z := zlib.NewWriter(&zeros)
	for range 100 {
		z.Write(make([]byte, 1<<20))
	}
	z.Close()
	header := func(kind uint32, size uint64) []byte {
		b := binary.LittleEndian.AppendUint32(nil, kind)
		b = binary.LittleEndian.AppendUint32(b, 0)
		b = binary.LittleEndian.AppendUint64(b, size)
		return binary.LittleEndian.AppendUint64(b, 1)
	}
	for _, test := range []struct {
		name, want string
		data       []byte
	}{
		{"shrunk a thousand times", "implausible size", append(header(1, 100<<20), zeros.Bytes()...)},
		{"claims to be endless", "implausible size", header(1, 1<<62)},
		{"zstd that claims to be endless", "implausible size", header(2, 1<<62)},
		{"longer than it is", "unexpected EOF", append(header(1, 1<<20), zeros.Bytes()[:500]...)},
		{"of an unknown kind", "unknown kind", header(3, 10)},
		{"without a header", "bytes wanted", []byte{1, 0, 0, 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := program()
			p.Sections = append(p.Sections, elftest.Section{
				Name: ".debug_info", Type: elf.SHT_PROGBITS, Flags: elf.SHF_COMPRESSED, Data: test.data,
			})
			f, err := NewFile(bytes.NewReader(p.Build()), "built")
			if err != nil {
				t.Fatal(err)
			}
			bounded(t, len(test.data), func() {
				_, err = f.Index(IndexOptions{})
			})
			var format *FormatError
			if !errors.As(err, &format) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			bounded(t, len(test.data), func() {
				for _, r := range append(f.LookupVirts([]addr.Virt{0x1000, 0x1010}), f.LookupVirt(0x1000), f.LookupVirt(0x1010)) {
					if r.Reason != reason.BadSymbols {
						t.Errorf("got %+v", r)
					}
				}
			})
		})
	}
}

// TestSharedCompression builds a file whose compressed sections are all the same bytes.
func TestSharedCompression(t *testing.T) {
	var packed bytes.Buffer
	binary.Write(&packed, binary.LittleEndian, []uint64{1, 1 << 20, 1})
	z := zlib.NewWriter(&packed)
	z.Write(make([]byte, 1<<20))
	z.Close()
	p := program()
	for _, name := range []string{".debug_info", ".debug_abbrev", ".debug_line"} {
		p.Sections = append(p.Sections, elftest.Section{
			Name: name, Type: elf.SHT_PROGBITS, Flags: elf.SHF_COMPRESSED, Data: packed.Bytes(),
		})
	}
	p.Damage = func(_ *elf.Header64, _ []elf.Prog64, sections []elf.Section64) {
		for i := range sections {
			if elf.SectionFlag(sections[i].Flags)&elf.SHF_COMPRESSED != 0 {
				sections[i].Off = 0x500
			}
		}
	}
	data := p.Build()
	copy(data[0x500:], packed.Bytes())
	f, err := NewFile(bytes.NewReader(data), "built")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Index(IndexOptions{}); err == nil || !strings.Contains(err.Error(), "shares bytes") {
		t.Errorf("got %v", err)
	}
	if r := f.LookupVirt(0x1000); r.Reason != reason.BadSymbols {
		t.Errorf("got %+v", r)
	}
}
