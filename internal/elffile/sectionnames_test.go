package elffile_test

import (
	"encoding/binary"
	"os"
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
