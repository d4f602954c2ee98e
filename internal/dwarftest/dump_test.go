package dwarftest

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// TestWrite writes the files of the program of HALLMARK_SEED to the directory HALLMARK_DIR,
// to look at them with other tools.
func TestWrite(t *testing.T) {
	seed, err := strconv.ParseUint(os.Getenv("HALLMARK_SEED"), 0, 64)
	if err != nil || os.Getenv("HALLMARK_DIR") == "" {
		t.Skip("only for looking at one program: HALLMARK_SEED and HALLMARK_DIR")
	}
	p := Generate(seed)
	for name, data := range p.Files {
		if err := os.WriteFile(filepath.Join(os.Getenv("HALLMARK_DIR"), name), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
