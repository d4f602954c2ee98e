package addr2line

import (
	"path/filepath"
	"testing"

	"hallmark/internal/testenv"
)

// TestNamesOfOthersAreNotOpened gives the names of what is no file where debug information, or
// whoever writes requests, names one.
func TestNamesOfOthersAreNotOpened(t *testing.T) {
	trap := testenv.Trap(t, filepath.Join(t.TempDir(), "trap"))
	if text := new(sourceReader).read(trap); text != nil {
		t.Errorf("the source is %q", text)
	}
	if isArchive(trap) {
		t.Error("it is an archive")
	}
	if text, ok := readResponse(trap); ok {
		t.Errorf("the arguments in it are %q", text)
	}
}
