package scan

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// TestDamagedCache flips bits and zeroes blocks of what a scan keeps: it is read as it was, or not at all.
func TestDamagedCache(t *testing.T) {
	work, dir := t.TempDir(), t.TempDir()
	makeProgram(t, work)
	b, err := os.ReadFile(filepath.Join(work, "full"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "full"), b)
	s := newScanner(t, dir)
	if err := s.Scan(t.Context()); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(s.Cache)
	if err != nil {
		t.Fatal(err)
	}
	want, err := readCache(s.Cache)
	if err != nil || len(want) == 0 {
		t.Fatalf("%d files, %v", len(want), err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	refused := 0
	try := func(b []byte) {
		if err := os.WriteFile(s.Cache, b, 0o600); err != nil {
			t.Fatal(err)
		}
		switch got, err := readCache(s.Cache); {
		case err != nil:
			refused++
		case !reflect.DeepEqual(got, want):
			t.Errorf("another scan is read: %v", got)
		}
	}
	for at := range whole {
		for bit := range 8 {
			b := bytes.Clone(whole)
			b[at] ^= 1 << bit
			try(b)
		}
		b := bytes.Clone(whole)
		clear(b[at:min(at+1+r.IntN(64), len(b))])
		try(b)
		try(whole[:at])
	}
	if refused < len(whole) {
		t.Errorf("only %d are refused", refused)
	}
	// A scan after that looks at all files, and keeps them again.
	again := &Scanner{Dirs: s.Dirs, Store: s.Store, Log: s.Log, Cache: s.Cache}
	if err := again.Scan(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := readCache(s.Cache); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestPublishesWhatTheStoreLost takes a file into the store again whose bytes are gone there.
func TestPublishesWhatTheStoreLost(t *testing.T) {
	work, dir := t.TempDir(), t.TempDir()
	id := makeProgram(t, work)
	b, err := os.ReadFile(filepath.Join(work, "full"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "full"), b)
	s := newScanner(t, dir)
	if err := s.Scan(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, lose := range []func(name string) error{
		os.Remove,
		func(name string) error { return os.Truncate(name, 100) },
	} {
		if _, err := s.Publish(t.Context(), id, false, nil); err != nil {
			t.Fatal(err)
		}
		m, err := s.Store.Manifest(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		object := m.Executable().Stored()
		if err := s.Store.Close(); err != nil { // nothing is open any more
			t.Fatal(err)
		}
		if err := lose(filepath.Join(s.Store.Blobs.String(), "cas", object[:2], object)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Store.Object(t.Context(), object); err == nil {
			t.Fatal("it is not lost")
		}
		if _, err := s.Publish(t.Context(), id, false, nil); err != nil {
			t.Fatal(err)
		}
		o, err := s.Store.Object(t.Context(), object)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(o.Stream()); err != nil || !bytes.Equal(got, b) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		o.Close()
	}
}
