package inventory

import (
	"os"
	"path/filepath"
	"testing"

	"hallmark/internal/testenv"
)

// TestNamesOfOthersAreNotOpened gives the names of what is no file where a process names one
// that it has mapped.
func TestNamesOfOthersAreNotOpened(t *testing.T) {
	names := []string{testenv.Trap(t, filepath.Join(t.TempDir(), "trap"))}
	if os.Geteuid() == 0 {
		names = append(names, testenv.Terminal(t))
	}
	for _, name := range names {
		if now, err := readBelow(t.Context(), os.Getpid(), name); err != nil || now.disk != DiskOther {
			t.Errorf("%s: %+v, %v", name, now, err)
		}
	}
}
