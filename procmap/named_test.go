package procmap

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"

	"hallmark/addr"
)

// TestPathOf maps files that are deleted and files that only have a name like that of a deleted one.
func TestPathOf(t *testing.T) {
	dir, p := t.TempDir(), open(t, os.Getpid(), Auto)
	type scene struct {
		path string // of the file
		then func(path string) error
		want string
		what string
	}
	put := func(name string) func(string) error {
		return func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, name), make([]byte, 1), 0o600)
		}
	}
	for i, s := range []scene{
		{"file", nil, "file", "a file"},
		{"gone", os.Remove, "gone", "a deleted file"},
		{"named (deleted)", nil, "named (deleted)", "a file of that name"},
		{"both (deleted)", os.Remove, "both (deleted)", "a deleted file of that name"},
		{"other", put("other (deleted)"), "other", "a deleted file beside another one of that name"},
		{"again", put("again"), "again", "a file with another one in its place"},
	} {
		path := filepath.Join(dir, s.path)
		must(t, os.WriteFile(path, make([]byte, i+2), 0o600))
		memory := mapFile(path, 0)
		if s.then != nil {
			must(t, s.then(path))
		}
		start := addr.Abs(uintptr(unsafe.Pointer(&memory[0])))
		v := mappingOf(t, p, func(v VMA) bool { return v.Contains(start) })
		if got := p.PathOf(v); got != filepath.Join(dir, s.want) {
			t.Errorf("%s: %s, want %s", s.what, got, s.want)
		}
		must(t, syscall.Munmap(memory))
	}
	if got := p.PathOf(VMA{Name: "[heap]"}); got != "" {
		t.Errorf("no file has the path %s", got)
	}
}
