package symbol

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/cursor"
	"hallmark/internal/testenv"
)

// TestRelocatableM68k compares the line of each row of a line table with that which
// readelf prints: no other tool knows the relocations of the 68000.
func TestRelocatableM68k(t *testing.T) {
	for _, version := range []string{"-gdwarf-4", "-gdwarf-5"} {
		name := filepath.Join(t.TempDir(), "object.o")
		run(t, "clang-19", "--target=m68k-linux-gnu", "-O2", version, "-c", "testdata/narrow.c", "-o", name)
		out, err := exec.Command(testenv.Tool(t, "readelf"), "--debug-dump=decodedline", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		want := map[uint64]int{} // the last row of an address counts
		for _, row := range regexp.MustCompile(`(?m)^\S*narrow\.c +(\d+) +(0|0x[0-9a-f]+)\b`).FindAllStringSubmatch(string(out), -1) {
			v, _ := strconv.ParseUint(row[2], 0, 64)
			want[v], _ = strconv.Atoi(row[1])
		}
		if len(want) < 20 {
			t.Fatalf("readelf prints %d rows:\n%s", len(want), out)
		}
		file := open(t, name)
		functions := map[string]int{}
		for v, line := range want {
			frames := file.LookupVirt(addr.Virt(v)).Frames
			if len(frames) == 0 || frames[0].Line != line || filepath.Base(frames[0].File) != "narrow.c" {
				t.Errorf("%s, %#x: %+v, want line %d", version, v, frames, line)
			}
			for _, f := range frames {
				functions[f.Linkage]++
			}
		}
		for _, f := range []string{"mix", "twist", "fill", "entry"} {
			if functions[f] == 0 {
				t.Errorf("%s: no frame is of %s: %v", version, f, functions)
			}
		}
	}
}

// TestRelocations applies relocations whose fields have odd sizes.
func TestRelocations(t *testing.T) {
	const riscv, loongarch = 243, 258
	for _, test := range []struct {
		name    string
		machine uint16
		typ     uint32
		big     bool
		field   []byte
		value   uint64
		want    []byte // nil if the field is not there as a whole
	}{
		{"R_RISCV_SUB6", riscv, 52, false, []byte{0xc5}, 7, []byte{0xfe}},
		{"R_RISCV_SET6", riscv, 53, false, []byte{0xc5}, 0x47, []byte{0xc7}},
		{"R_RISCV_SET16", riscv, 55, false, []byte{9, 9, 9}, 0x30201, []byte{1, 2, 9}},
		{"R_RISCV_SET_ULEB128", riscv, 60, false, []byte{0x80, 0x80, 0x00, 9}, 300, []byte{0xac, 0x82, 0x00, 9}},
		{"R_RISCV_SUB_ULEB128", riscv, 61, false, []byte{0xac, 0x82, 0x00, 9}, 200, []byte{0xe4, 0x80, 0x00, 9}},
		{"R_LARCH_ADD8", loongarch, 47, false, []byte{0xff, 9}, 2, []byte{1, 9}},
		{"R_LARCH_ADD24", loongarch, 49, false, []byte{0xff, 0xff, 0, 9}, 1, []byte{0, 0, 1, 9}},
		{"R_LARCH_SUB24", loongarch, 54, false, []byte{0, 0, 1, 9}, 1, []byte{0xff, 0xff, 0, 9}},
		{"R_LARCH_SUB64", loongarch, 56, false, []byte{0, 1, 0, 0, 0, 0, 0, 0}, 1, []byte{0xff, 0, 0, 0, 0, 0, 0, 0}},
		{"R_LARCH_ADD6", loongarch, 105, false, []byte{0xff}, 2, []byte{0xc1}},
		{"R_LARCH_SUB6", loongarch, 106, false, []byte{0xc0}, 1, []byte{0xff}},
		{"R_LARCH_ADD_ULEB128", loongarch, 107, false, []byte{0x81, 0x00}, 200, []byte{0xc9, 0x01}},
		{"R_LARCH_SUB_ULEB128", loongarch, 108, false, []byte{0xc9, 0x01}, 200, []byte{0x81, 0x00}},
		{"beyond the end", loongarch, 2, false, []byte{1, 2, 3, 4, 5, 6, 7}, 1, nil},
		{"without an end", loongarch, 107, false, []byte{0x80, 0x80}, 1, nil},
		{"of no length", loongarch, 107, false, bytes.Repeat([]byte{0x80}, 20), 1, nil},
		{"R_SPARC_UA16", 2, 55, true, []byte{9, 9, 9}, 0x30201, []byte{2, 1, 9}},
	} {
		m := image{machine: test.machine, big: test.big}
		r, known := relocations[test.machine][test.typ]
		if ok := m.applyRelocation(r, test.field, test.value, false); !known || ok != (test.want != nil) || ok && !bytes.Equal(test.field, test.want) {
			t.Errorf("%s: % x, %v; want % x", test.name, test.field, ok, test.want)
		}
	}
}

// TestUnknownRelocation: a relocation that nobody knows is an error with its place, not a
// wrong line.
func TestUnknownRelocation(t *testing.T) {
	name := filepath.Join(t.TempDir(), "object.o")
	run(t, "clang-19", "--target=mips64el-linux-gnuabi64", "-g", "-c", "testdata/narrow.c", "-o", name)
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	at := int(f.Section(".rela.debug_line").Offset)
	for _, test := range []struct {
		what   string
		offset int // in the entry
		value  byte
		want   string
	}{
		{"kind", 15, 77, "relocation of unknown kind 77 for offset 0x"},
		{"second kind", 14, 2, "relocation of unknown kind 5"},
		{"place", 7, 1, "outside .debug_line"},
		{"symbol", 10, 1, "for a symbol that is not there"},
	} {
		damaged := bytes.Clone(content)
		damaged[at+test.offset] = test.value
		file, err := NewFile(bytes.NewReader(damaged), "damaged.o")
		if err != nil {
			t.Fatal(err)
		}
		_, err = file.Index(IndexOptions{})
		var place *cursor.Error
		if !errors.As(err, &place) || place.Offset != int64(at) || !strings.Contains(err.Error(), test.want) ||
			!strings.HasPrefix(err.Error(), "damaged.o: ") || !strings.Contains(err.Error(), ".debug_line") {
			t.Errorf("%s: %v; want %q", test.what, err, test.want)
		}
		if r := file.LookupVirt(0); len(r.Frames) == 1 && r.Frames[0].Line != 0 {
			t.Errorf("%s: the line is said to be %d", test.what, r.Frames[0].Line)
		}
	}
}
