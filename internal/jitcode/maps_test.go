package jitcode

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMapsTogetherHaveABound reads maps until enough is read, and wants a note on the next one.
func TestMapsTogetherHaveABound(t *testing.T) {
	name := filepath.Join(t.TempDir(), "perf-1.map")
	if err := os.WriteFile(name, []byte("1000 10 a\n2000 10 b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var maps Maps
	if m := maps.take(f, nil); m == nil || maps.read != 2*lineCost {
		t.Fatalf("a map of two lines counts as %d bytes: %v", maps.read, maps.Notes())
	}
	maps.read = maxMapsRead - 10
	m := maps.take(f, nil)
	if notes := maps.Notes(); m != nil || len(notes) != 1 || !strings.Contains(notes[0], "of all maps together 256 MiB are read") {
		t.Errorf("%v, notes %q", m, notes)
	}
}
