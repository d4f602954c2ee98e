package debuginfo

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/reason"
)

// TestPrelinked has a program whose segment with code is larger than its debug file says, as programs that write
// into others leave it. eu-addr2line is the witness: the debug link has the checksum of the debug file, which counts.
func TestPrelinked(t *testing.T) {
	dir := t.TempDir()
	v := buildVersion(t, dir, "first")
	debug, stripped := filepath.Join(dir, "first.debug"), filepath.Join(dir, "stripped")
	command(t, "objcopy", "--only-keep-debug", v.name, debug)
	command(t, "strip", "-g", "-o", stripped, v.name)
	command(t, "objcopy", "--add-gnu-debuglink="+debug, stripped)
	b, err := os.ReadFile(stripped)
	if err != nil {
		t.Fatal(err)
	}
	headers, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	phoff := binary.LittleEndian.Uint64(b[32:])
	for i, p := range headers.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			entry := b[phoff+56*uint64(i):]
			binary.LittleEndian.PutUint64(entry[32:], p.Filesz+16)
			binary.LittleEndian.PutUint64(entry[40:], p.Memsz+16)
		}
	}
	if err := os.WriteFile(stripped, b, 0o777); err != nil {
		t.Fatal(err)
	}
	lines := func() bool {
		l := &Library{Finder: Finder{Dirs: []string{}}, Indexes: Indexes{Dir: t.TempDir()}}
		s, err := l.OpenFile(t.Context(), stripped)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		r := s.LookupVirt(v.at)
		return r.Reason == reason.None && r.Frames[0].Line > 0
	}
	theirs := command(t, "eu-addr2line", "-e", stripped, v.at.String())
	if !lines() || !strings.Contains(theirs, ".c:") {
		t.Errorf("no line with the checksum of the link; eu-addr2line has %s", theirs)
	}
	other, err := os.OpenFile(debug, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = other.Write([]byte{0})
	}
	if err != nil {
		t.Fatal(err)
	}
	other.Close()
	if lines() {
		t.Error("a line though the checksum is another one")
	}
}
