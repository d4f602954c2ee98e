package debuginfo

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/buildid"
	"hallmark/internal/testenv"
	"hallmark/reason"
	"hallmark/symbol"
)

// stripWithElfutils compiles a program and splits it as elfutils does, which leaves the
// program headers of the debug file as they were: its notes lead to other bytes.
func stripWithElfutils(t *testing.T, args ...string) *program {
	t.Helper()
	p := build(t, args...)
	whole := filepath.Join(p.dir, "whole")
	command(t, "gcc", append([]string{"-g", "-O1", "-o", whole, writeSource(t, p.dir)}, args...)...)
	p.debug = filepath.Join(p.dir, "prog.debug")
	command(t, "eu-strip", "-f", p.debug, "-o", p.name, whole)
	return p
}

func writeSource(t *testing.T, dir string) string {
	t.Helper()
	name := filepath.Join(dir, "prog.c")
	if err := os.WriteFile(name, []byte(hiddenSource), 0o666); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestBadNote: a debug file whose notes are damaged has no identity, for a reason that
// names the place, but it has symbols.
func TestBadNote(t *testing.T) {
	p := stripWithElfutils(t, "-Wl,--build-id=none")
	var damage *buildid.FormatError
	if _, err := buildid.ReadFile(p.debug); !errors.As(err, &damage) {
		t.Fatalf("the notes of the debug file are sound: %v", err)
	}
	file, err := symbol.OpenFile(p.debug)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	id, err := Identify(file)
	if !id.IsZero() || !errors.As(err, &damage) || damage.Name != p.debug || damage.Offset == 0 {
		t.Errorf("identity %v, %v; want none, and why with file and offset", id, err)
	}
	want := line(t, p.debug, uint64(p.hidden))
	for _, name := range []string{p.debug, p.name} { // alone, and by the debug link
		symbols, err := new(Library).OpenFile(context.Background(), name)
		if err != nil {
			t.Error(err)
			continue
		}
		r := symbols.LookupVirt(p.hidden)
		if len(r.Frames) != 1 || fmt.Sprintf("%s:%d", r.Frames[0].File, r.Frames[0].Line) != want || r.Frames[0].Linkage != hiddenFunction {
			t.Errorf("%s: %+v, want %s at %s", name, r, hiddenFunction, want)
		}
		symbols.Close()
	}
	for _, want := range []buildid.ID{{}, p.id} {
		if file, why := open(want, p.debug); file != nil || why != reason.FileDamaged {
			t.Errorf("the file counts as %q: %v", want, why)
		}
	}
}

// line returns what elfutils says of an address.
func line(t *testing.T, name string, v uint64) string {
	t.Helper()
	out := strings.TrimSpace(command(t, "eu-addr2line", "-e", name, fmt.Sprintf("%#x", v)))
	return out[:strings.LastIndexByte(out, ':')] // without the column
}

// TestBadNoteOfAnother: the checksum of a debug link is still asked for.
func TestBadNoteOfAnother(t *testing.T) {
	p := stripWithElfutils(t, "-Wl,--build-id=none")
	content, err := os.ReadFile(p.debug)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.debug, append(content, 0), 0o666); err != nil {
		t.Fatal(err)
	}
	file, why := (&Finder{Dirs: []string{}}).Open(identify(t, p.name), p.name)
	if file == nil {
		t.Fatal(why)
	}
	defer file.Close()
	if file.DebugSize() > 0 {
		t.Error("a debug file with another checksum is used")
	}
}

// TestSegmentsNowhere: a debug file whose segments lead nowhere, as uploaders of debug
// files write them, proves its build ID by its sections.
func TestSegmentsNowhere(t *testing.T) {
	p := build(t)
	content, err := os.ReadFile(p.debug)
	if err != nil {
		t.Fatal(err)
	}
	misplaceSegments(t, content)
	path := inTree(p.dir, p.id) + ".debug"
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
	finder := Finder{Dirs: []string{p.dir}}
	if got, why := finder.Find(p.id); got != path {
		t.Errorf("found %q, %v; want %s", got, why, path)
	}
}

// misplaceSegments lets the program headers of a 64-bit file point behind its end.
func misplaceSegments(t *testing.T, content []byte) {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	testenv.Need(t, f.Class == elf.ELFCLASS64 && f.ByteOrder == binary.LittleEndian, "a compiler of 64-bit little-endian files")
	at := binary.LittleEndian.Uint64(content[32:])
	for i := range f.Progs {
		binary.LittleEndian.PutUint64(content[at+uint64(i)*56+8:], uint64(len(content))+64)
	}
}
