package elffile_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"hallmark/internal/elffile"
)

// zeros is a file with zeros behind it, and counts what is read.
type zeros struct {
	content []byte
	read    int64
}

func (z *zeros) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	z.read += int64(len(p))
	copy(p, z.content[min(off, int64(len(z.content))):])
	return len(p), nil
}

// TestHugeSectionNames has a table of names of sections that is far longer than names need.
func TestHugeSectionNames(t *testing.T) {
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if b[4] != 2 || b[5] != 1 {
		t.Skip("not of 64 bits, least significant first")
	}
	le := binary.LittleEndian
	table := le.Uint64(b[0x28:]) + 64*uint64(le.Uint16(b[0x3e:]))
	le.PutUint64(b[table+32:], 512<<20)
	z := &zeros{content: b}
	image, err := elffile.Read(z, "program")
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for i := range image.Sections {
		found = found || image.Sections[i].Name == ".text"
	}
	if !found || z.read > 32<<20 {
		t.Errorf(".text: %v, %d bytes were read", found, z.read)
	}
}

// TestManySections has a file of a million section headers, and one of as many as are read.
func TestManySections(t *testing.T) {
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if b[4] != 2 || b[5] != 1 {
		t.Skip("not of 64 bits, least significant first")
	}
	le := binary.LittleEndian
	table := uint64(len(b))
	le.PutUint64(b[0x28:], table)
	le.PutUint16(b[0x3c:], 0) // the first header has the count
	le.PutUint16(b[0x3e:], 0)
	read := func(count uint64) (*elffile.Image, uint64, error) {
		first := make([]byte, 64)
		le.PutUint64(first[32:], count)
		content := &zeros{content: append(b[:table:table], first...)}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		image, err := elffile.Read(content, "program")
		runtime.ReadMemStats(&after)
		return image, after.TotalAlloc - before.TotalAlloc, err
	}
	want := fmt.Sprintf("program: offset %#x: 1000000 section headers", table)
	if _, size, err := read(1000000); err == nil || !strings.Contains(err.Error(), want) || size > 1<<20 {
		t.Errorf("a million: %v, with %d bytes; want %q", err, size, want)
	}
	image, size, err := read(1 << 18)
	if err != nil || len(image.Sections) != 1<<18 {
		t.Errorf("as many as are read: %v", err)
	}
	if size > 64<<20 {
		t.Errorf("%d bytes for %d headers", size, 1<<18)
	}
}
