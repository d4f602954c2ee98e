package unwindtables

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"hallmark/buildid"
	"hallmark/internal/proctest"
)

// TestFileTablesAreKept has a table built, taken from the cache the second time, and not
// given for another identity. A file that others can write to has a table that is not kept.
func TestFileTablesAreKept(t *testing.T) {
	dir, name := t.TempDir(), proctest.LibC(t)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildid.Read(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	shared := filepath.Join(t.TempDir(), "shared")
	if err := os.WriteFile(shared, b, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(shared, 0o666); err != nil {
		t.Fatal(err)
	}
	want := builtOf(t, name)
	build := func(name string, id buildid.ID) ([]byte, error) {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		tables := NewFileTables(dir)
		defer tables.Close()
		table, err := tables.Build(f, id)
		if err != nil {
			return nil, err
		}
		return table.Bytes(), nil
	}
	kept := func() int {
		files, err := NewCache(dir).dir.List()
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	if got, err := build(shared, info.ID); err != nil || !bytes.Equal(got, want.Bytes()) || kept() != 0 {
		t.Errorf("file of everybody: %d bytes, %v, %d kept", len(got), err, kept())
	}
	for _, when := range []string{"built", "kept"} {
		if got, err := build(name, info.ID); err != nil || !bytes.Equal(got, want.Bytes()) || kept() != 1 {
			t.Errorf("%s: %d bytes, %v, %d kept", when, len(got), err, kept())
		}
	}
	other, err := buildid.New(buildid.GNU, make([]byte, 20))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := build(name, other); err == nil || kept() != 1 {
		t.Errorf("another identity: %d bytes, %d kept", len(got), kept())
	}
}
