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
