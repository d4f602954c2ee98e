package elftest_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/internal/elftest"
	"hallmark/internal/testenv"
)

// example has one of everything.
func example(class elf.Class, order binary.ByteOrder) elftest.File {
	notes := elftest.Notes(order, 4, elftest.GNU([]byte("0123456789abcdefghij")))
	return elftest.File{
		Class: class, Order: order,
		Segments: []elftest.Segment{
			{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, To: ".text", Align: 4096},
			{Type: elf.PT_NOTE, Flags: elf.PF_R, From: ".note.gnu.build-id", Align: 4},
		},
		Sections: []elftest.Section{
			elftest.NoteSection(".note.gnu.build-id", 0x200, 4, notes),
			{Name: ".text", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: 0x400, Offset: 0x400, Data: make([]byte, 64)},
		},
		Symbols: []elf.Symbol{{
			Name: "outer", Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Section: 2, Value: 0x400, Size: 16,
		}},
		DynSymbols: []elf.Symbol{{
			Name: "dynamic", Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Section: 2, Value: 0x410, Size: 16,
		}},
	}
}

// forms are the four ways in which ELF writes numbers.
var forms = []struct {
	name  string
	class elf.Class
	order binary.ByteOrder
}{
	{"64-bit little-endian", elf.ELFCLASS64, binary.LittleEndian},
	{"64-bit big-endian", elf.ELFCLASS64, binary.BigEndian},
	{"32-bit little-endian", elf.ELFCLASS32, binary.LittleEndian},
	{"32-bit big-endian", elf.ELFCLASS32, binary.BigEndian},
}

func TestReadelfUnderstands(t *testing.T) {
	readelf := testenv.Tool(t, "readelf")
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "built")
			if err := os.WriteFile(name, example(form.class, form.order).Build(), 0o644); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command(readelf, "-W", "-a", name).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, want := range []string{
				"Build ID: " + "303132333435363738396162636465666768696a",
				"outer", "dynamic", ".text", "LOAD",
			} {
				if !strings.Contains(string(out), want) {
					t.Errorf("readelf does not show %q", want)
				}
			}
			if strings.Contains(string(out), "Warning") || strings.Contains(string(out), "Error") {
				t.Errorf("readelf complains:\n%s", out)
			}
		})
	}
}

func TestDebugELFUnderstands(t *testing.T) {
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) {
			f, err := elf.NewFile(bytes.NewReader(example(form.class, form.order).Build()))
			if err != nil {
				t.Fatal(err)
			}
			symbols, err := f.Symbols()
			if err != nil || len(symbols) != 1 || symbols[0].Name != "outer" || symbols[0].Value != 0x400 {
				t.Errorf("symbols %+v, %v", symbols, err)
			}
			if load := f.Progs[0]; load.Off != 0 || load.Filesz != 0x440 {
				t.Errorf("PT_LOAD covers %#x+%#x", load.Off, load.Filesz)
			}
		})
	}
}

func TestDamage(t *testing.T) {
	f := example(elf.ELFCLASS32, binary.BigEndian)
	f.Damage = func(h *elf.Header64, programs []elf.Prog64, sections []elf.Section64) {
		programs[1].Off = 1 << 40
		sections[1].Size = 77
		h.Entry = 5
	}
	got, err := elf.NewFile(bytes.NewReader(f.Build()))
	if err != nil {
		t.Fatal(err)
	}
	if got.Entry != 5 || got.Progs[1].Off != 1<<32-1 || got.Sections[1].Size != 77 {
		t.Errorf("entry %d, offset %#x, size %d", got.Entry, got.Progs[1].Off, got.Sections[1].Size)
	}
}

func TestNoSectionHeaders(t *testing.T) {
	f := example(elf.ELFCLASS64, nil)
	f.NoSectionHeaders = true
	got, err := elf.NewFile(bytes.NewReader(f.Build()))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Sections) != 0 || len(got.Progs) != 2 {
		t.Errorf("%d sections, %d segments", len(got.Sections), len(got.Progs))
	}
}
