package capture

import (
	"os"
	"path/filepath"
	"testing"

	"hallmark/internal/reach"
	"hallmark/internal/testenv"
	"hallmark/procmap"
	"hallmark/reason"
)

// TestNamesOfOthersAreNotOpened gives the names of what is no file where a process names one
// that it has mapped.
func TestNamesOfOthersAreNotOpened(t *testing.T) {
	names := []string{testenv.Trap(t, filepath.Join(t.TempDir(), "trap"))}
	if os.Geteuid() == 0 {
		names = append(names, testenv.Terminal(t))
	}
	for _, name := range names {
		if f, why := reach.OpenPath(procmap.VMA{Name: name}); why != reason.FileChanged {
			t.Errorf("%s: %v, %v", name, f, why)
		}
	}
}
