package store

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestArrivingClosed reads a file on its way while its writer closes it: nobody gets another file that has its number by then.
func TestArrivingClosed(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		f, err := os.Create(filepath.Join(dir, "own"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("public"); err != nil {
			t.Fatal(err)
		}
		a := &Arriving{Size: 7, Ready: func(*Arriving) {}}
		a.begin(f)
		a.grew(6)
		var both sync.WaitGroup
		start := make(chan struct{})
		both.Go(func() {
			<-start
			f.Close()
			for range 3 {
				g, err := os.Open(other)
				if err != nil {
					t.Error(err)
					return
				}
				defer g.Close()
			}
		})
		both.Go(func() {
			<-start
			r, err := a.Open(t.Context())
			if err != nil {
				return
			}
			defer r.Close()
			b := make([]byte, 6)
			if _, err := r.ReadAt(b, 0); err == nil && string(b) != "public" || err != nil && !errors.Is(err, errCutShort) {
				t.Errorf("%q, %v", b, err)
			}
		})
		close(start)
		both.Wait()
		a.Close(nil)
	}
}
