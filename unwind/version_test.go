package unwind

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"hallmark/internal/elftest"
	"hallmark/internal/pclntab"
)

var update = flag.Bool("update", false, "write what is built to testdata/version.golden")

// versionGolden has the version, and a line for each of the files that depend on it: its
// name and the start of the hash of its table.
const versionGolden = "testdata/version.golden"

// TestVersion fails when Build makes other tables than those of this version: kept ones
// would stay in use.
func TestVersion(t *testing.T) {
	var got strings.Builder
	fmt.Fprintf(&got, "version %d\n", Version)
	for _, f := range versionFiles(t) {
		table, err := Build(bytes.NewReader(f.raw), BuildOptions{})
		if err != nil {
			t.Fatalf("%s: %v", f.name, err)
		}
		if table.Rows() == 0 {
			t.Errorf("%s: a table without rows tells nothing", f.name)
		}
		fmt.Fprintf(&got, "%x %s\n", sha256.Sum256(table.Bytes()), f.name)
	}
	raw, err := os.ReadFile(versionGolden)
	if err != nil && !*update {
		t.Fatal(err)
	}
	want := string(raw)
	version, _, _ := strings.Cut(got.String(), "\n")
	switch same := strings.HasPrefix(want, version+"\n"); {
	case got.String() == want:
	case same && !onlyMore(got.String(), want):
		t.Errorf("Build makes other tables: raise Version, and run this test with -update\n%swant\n%s", got.String(), want)
	case !*update:
		t.Errorf("run this test with -update\n%swant\n%s", got.String(), want)
	default:
		if err := os.WriteFile(versionGolden, []byte(got.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// onlyMore reports whether a golden has lines that the other one lacks, and all that it has.
func onlyMore(got, want string) bool {
	for line := range strings.Lines(want) {
		if !strings.Contains(got, line) {
			return false
		}
	}
	return true
}

// versionFile is a file that has something of what tables are made of.
type versionFile struct {
	name string
	raw  []byte
}

// versionFiles are made here to the last byte: compilers would make others tomorrow.
func versionFiles(t *testing.T) []versionFile {
	var files []versionFile
	add := func(name string, raw []byte) { files = append(files, versionFile{name, raw}) }
	for i, f := range seedFrames() {
		if f.eh {
			add(fmt.Sprintf(".eh_frame %d", i/2), small(f))
		} else {
			add(fmt.Sprintf(".debug_frame %d", i/2), withDebugFrame(f))
		}
	}
	for _, name := range []string{"main.main", "runtime.systemstack", "runtime.mcall"} {
		table, moduledata := goParts(switchingCode, pclntab.SPWrite|pclntab.Asm, name, switchingList)
		add("pclntab of "+name, goFile(switchingCode, table, moduledata, false))
	}
	armCode := decode(t, "fe0f1ff8 fd831ff8 fd2300d1 1f2003d5 fd835ff8 fe0741f8 c0035fd6")
	table, moduledata := goParts(armCode, 0, "main.main", []byte{2, 1, 32, 5, 31, 1, 0})
	add("pclntab for arm64", goFile(armCode, table, moduledata, true))
	add(".plt", stubs(decode(t, "ff35e22f0000 ff25e42f0000 0f1f4000 ff25e22f0000 6800000000 e9e0ffffff ff25da2f0000 6801000000 e9d0ffffff")))
	for _, c := range []struct {
		name    string
		machine elf.Machine
		entry   uint64
		code    string
	}{
		{"restorer", elf.EM_X86_64, 0, "c3 90 48c7c00f000000 0f05 c3"},
		{"clone", elf.EM_X86_64, 0, "0f05 85c0 750f 31ed 5f 41ffd1 89c7 31c0 b03c 0f05 f4 c3"},
		{"entry", elf.EM_X86_64, 0x1002, "90c3 4831ed 4889e7 488d3500000000 4883e4f0 e800000000 90 c3"},
		{"contexts", elf.EM_X86_64, 0, "c390 4889dc 488b3c24 4885ff 7408 e800000000 4889c7 e800000000 f4"},
		{"clone3", elf.EM_X86_64, 0, "c390 0f05 4885c0 7c18 7401 c3 31ed 4883e4f0 4c89c7 ffd2"},
		{"followed", elf.EM_X86_64, 0, "53 4883ec08 e800000001 4883c408 5b c3"},
		{"followed for arm64", elf.EM_AARCH64, 0, "fd7bbfa9 fd030091 04000094 fd7bc1a8 c0035fd6"},
		{"restorer for arm64", elf.EM_AARCH64, 0, "c0035fd6 1f2003d5 681180d2 010000d4 c0035fd6"},
		{"entry for arm64", elf.EM_AARCH64, 0x1000, "1d0080d2 1e0080d2 e0030091 00000094 c0035fd6"},
	} {
		add(c.name, codeFile(c.machine, c.entry, decode(t, c.code)))
	}
	add("frame pointers", codeFile(elf.EM_X86_64, 0, generated("\x55\x48\x89\xe5")))
	add("frame pointers for arm64", codeFile(elf.EM_AARCH64, 0, generated("\xfd\x7b\xbf\xa9\xfd\x03\x00\x91")))
	return files
}

func decode(t *testing.T, code string) []byte {
	t.Helper()
	raw, err := hex.DecodeString(strings.ReplaceAll(code, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// generated is much code whose functions begin alike.
func generated(prologue string) []byte {
	code := make([]byte, 128<<10)
	for at := 256; at < len(code); at += 2048 {
		copy(code[at:], prologue)
	}
	return code
}

// withDebugFrame is a file with a section .debug_frame.
func withDebugFrame(f *frames) []byte {
	return elftest.File{
		Sections: []elftest.Section{
			{Name: ".text", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: codeAt, Offset: codeAt, Data: make([]byte, 0x200)},
			{Name: ".debug_frame", Type: elf.SHT_PROGBITS, Data: f.Bytes()},
		},
		Segments: []elftest.Segment{{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, From: ".text", Vaddr: codeAt}},
	}.Build()
}

// stubs is a file with a procedure linkage table.
func stubs(code []byte) []byte {
	flags := elf.SHF_ALLOC | elf.SHF_EXECINSTR
	return elftest.File{
		Class: elf.ELFCLASS64, Machine: elf.EM_X86_64, Type: elf.ET_DYN,
		Sections: []elftest.Section{{Name: ".plt", Type: elf.SHT_PROGBITS, Flags: flags, Addr: 0x1000, Align: 16, Data: code}},
		Segments: []elftest.Segment{{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, From: ".plt", Vaddr: 0x1000}},
	}.Build()
}
