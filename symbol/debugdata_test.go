package symbol

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
	m := &image{r: f, name: name}
	d := new(debugData)
	defer d.close()
	b, err := m.view(d, &section{off: 100, size: 1<<20 - 100})
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
	if err := whileMapped(read); err != nil {
		t.Error(err)
	}
	if err := os.Truncate(name, 10); err != nil {
		t.Fatal(err)
	}
	if err := whileMapped(read); !errors.Is(err, errShrunk) {
		t.Errorf("got %v", err)
	}
	defer func() {
		if recover() != "other" {
			t.Error("another panic was lost")
		}
	}()
	whileMapped(func() error { panic("other") })
}
