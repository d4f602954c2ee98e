package elffile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestFileCutOff maps a section and cuts its file off before it is read.
func TestFileCutOff(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, make([]byte, 1<<20), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m := &Image{Reader: f, Name: name, budget: budget{stored: storedIn(f)}}
	d := new(Views)
	defer d.Close()
	b, err := m.View(d, &Section{Offset: 100, Size: 1<<20 - 100})
	if err != nil || len(d.mapped) != 1 || len(b) != 1<<20-100 {
		t.Fatalf("%v, %d bytes in %d mappings", err, len(b), len(d.mapped))
	}
	sum := 0
	read := func() error {
		for _, x := range b {
			sum += int(x)
		}
		return nil
	}
	if err := WhileMapped(read); err != nil {
		t.Error(err)
	}
	if err := os.Truncate(name, 10); err != nil {
		t.Fatal(err)
	}
	if err := WhileMapped(read); !errors.Is(err, errShrunk) {
		t.Errorf("got %v", err)
	}
	defer func() {
		if recover() != "other" {
			t.Error("another panic was lost")
		}
	}()
	WhileMapped(func() error { panic("other") })
}
