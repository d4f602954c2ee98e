package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/elftest"
)

// withDebugLink returns a file with this content of .gnu_debuglink.
func withDebugLink(link []byte, big bool) []byte {
	f := elftest.File{Sections: []elftest.Section{{Name: ".gnu_debuglink", Type: elf.SHT_PROGBITS, Data: link}}}
	if big {
		f.Order = binary.BigEndian
	}
	return f.Build()
}

func TestDebugLink(t *testing.T) {
	for _, test := range []struct {
		link string
		big  bool
		want DebugLink
	}{
		{"abc\x00\x01\x02\x03\x04", false, DebugLink{"abc", 0x04030201}},
		{"abcd\x00\x00\x00\x00\x01\x02\x03\x04", false, DebugLink{"abcd", 0x04030201}},
		{"abc\x00\x01\x02\x03\x04", true, DebugLink{"abc", 0x01020304}},
		{"abc\x00\x01\x02\x03", false, DebugLink{}},
		{"abcd\x00\x01\x02\x03\x04", false, DebugLink{}},
		{"abcdefgh", false, DebugLink{}},
		{"\x00\x00\x00\x00\x01\x02\x03\x04", false, DebugLink{}},
		{"a/b\x00\x01\x02\x03\x04", false, DebugLink{}},
		{"..\x00\x00\x01\x02\x03\x04", false, DebugLink{}},
		{strings.Repeat("a", maxDebugLink), false, DebugLink{}},
	} {
		file, err := NewFile(bytes.NewReader(withDebugLink([]byte(test.link), test.big)), "test")
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := file.DebugLink(); ok != (test.want.Name != "") || ok && got != test.want {
			t.Errorf("%.20q: %+v, %v; want %+v", test.link, got, ok, test.want)
		}
	}
}

// FuzzDebugLink reads links, and lays out what may be a module.
func FuzzDebugLink(f *testing.F) {
	f.Add(withDebugLink([]byte("abcd\x00\x00\x00\x00\x01\x02\x03\x04"), false))
	f.Add(withDebugLink([]byte("abc\x00\x01\x02\x03\x04"), true))
	module := program()
	module.Type = elf.ET_REL
	f.Add(module.Build())
	f.Fuzz(func(t *testing.T, data []byte) {
		bounded(t, len(data), func() {
			file, err := NewFile(bytes.NewReader(data), "fuzz")
			if err != nil {
				return
			}
			if link, ok := file.DebugLink(); ok && (link.Name == "" || link.Name == "." || link.Name == ".." || strings.Contains(link.Name, "/")) {
				t.Errorf("a link to %q", link.Name)
			}
			if n := file.DebugSize(); n < 0 {
				t.Errorf("%d bytes of debug information", n)
			}
			for _, o := range []addr.Offset{0, 1, 0x40, 0x1000, 1 << 63, ^addr.Offset(0)} {
				if v, ok := file.ModuleVirt(o); ok && !file.image.IsText(uint64(v), uint64(v)+1) {
					t.Errorf("offset %v is at %v, where no code is", o, v)
				}
			}
		})
	})
}
