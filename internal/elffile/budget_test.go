package elffile

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestStored counts what is in files, holes not counted.
func TestStored(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, n, size int64) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		if _, err := f.WriteAt(bytes.Repeat([]byte("x"), int(n)), 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(size); err != nil {
			t.Fatal(err)
		}
		return f
	}
	if got := storedIn(write("whole", 3<<20, 3<<20)); got != 3<<20 {
		t.Errorf("a whole file of 3 MiB has %d bytes", got)
	}
	if got := storedIn(write("holes", 3<<20, 1<<40)); got < 3<<20 || got > 4<<20 {
		t.Errorf("a file of 3 MiB and a hole has %d bytes", got)
	}
	if got := storedIn(write("empty", 0, 1<<40)); got > 1<<20 {
		t.Errorf("a hole has %d bytes", got)
	}
	if got := withoutHoles(write("data", 3<<20, 1<<40), 1<<40); got < 3<<20 || got > 4<<20 {
		t.Errorf("%d bytes are not in the hole", got)
	}
	if got := storedIn(bytes.NewReader(make([]byte, 100))); got != 100 {
		t.Errorf("100 bytes in memory are %d", got)
	}
}
