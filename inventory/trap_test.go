package inventory

import (
	"os"
	"path/filepath"
	"testing"

	"hallmark/internal/reach"
	"hallmark/internal/testenv"
)

// TestNamesOfOthersAreNotOpened gives the names of what is no file where a process names one
// that it has mapped.
func TestNamesOfOthersAreNotOpened(t *testing.T) {
	names := []string{testenv.Trap(t, filepath.Join(t.TempDir(), "trap"))}
	if os.Geteuid() == 0 {
		names = append(names, testenv.Terminal(t))
	}
	here, err := reach.TreeOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if now, err := readBelow(t.Context(), here, os.Getpid(), name); err != nil || now.disk != DiskOther {
			t.Errorf("%s: %+v, %v", name, now, err)
		}
	}
}
