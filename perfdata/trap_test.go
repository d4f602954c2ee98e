package perfdata

import (
	"errors"
	"path/filepath"
	"testing"

	"hallmark/internal/testenv"
)

// TestDirectoryOfOthers has a pipe among the files of a recording.
func TestDirectoryOfOthers(t *testing.T) {
	dir := t.TempDir()
	testenv.Trap(t, filepath.Join(dir, "data"))
	if files, err := OpenFiles(dir); !errors.Is(err, ErrNotPerfData) {
		t.Errorf("%v, %v", files, err)
	}
}
