package debuginfo

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"hallmark/buildid"
	"hallmark/symbol"
)

func TestIndexes(t *testing.T) {
	id, err := buildid.Parse("go:a/b")
	if err != nil {
		t.Fatal(err)
	}
	file, err := symbol.OpenFile(self(t))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	indexes := &Indexes{Dir: filepath.Join(t.TempDir(), "indexes")}
	if _, err := indexes.Open(id); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an index that was not made: %v", err)
	}
	store := func(identity string) string {
		t.Helper()
		x, err := file.Index(symbol.IndexOptions{Identity: identity})
		if err != nil {
			t.Fatal(err)
		}
		path, err := indexes.Store(id, x)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	path := store(id.String())
	x, err := indexes.Open(id)
	if err != nil || x.Name() != path || filepath.Dir(path) != indexes.Dir {
		t.Fatalf("%v, %v", path, err)
	}
	x.Close()
	store("go:of/another")
	if _, err := indexes.Open(id); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the index of another file: %v", err)
	}
	if err := os.WriteFile(path, []byte("damaged"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := indexes.Open(id); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a damaged index: %v", err)
	}
}

// self returns the path of the test's own program.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
