package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func content(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// onlyEntry checks that dir holds name and no leftovers.
func onlyEntry(t *testing.T, dir, name string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || entries[0].Name() != name {
		t.Errorf("%s holds %v, want only %s", dir, entries, name)
	}
}

func TestWriteCreatesAndReplaces(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "out")
	for _, s := range []string{"first, and longer", "second", ""} {
		if err := Write(name, 0o666, text(s)); err != nil {
			t.Fatal(err)
		}
		if got := content(t, name); got != s {
			t.Errorf("content %q, want %q", got, s)
		}
		onlyEntry(t, dir, "out")
	}
}

func TestNothingIsSeenBeforeTheEnd(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "out")
	if err := Write(name, 0o666, text("old")); err != nil {
		t.Fatal(err)
	}
	err := Write(name, 0o666, func(w io.Writer) error {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			return err
		}
		if got := content(t, name); got != "old" {
			t.Errorf("half-way the file holds %d bytes, want the old content", len(got))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := content(t, name); len(got) != 1<<20 {
		t.Errorf("file holds %d bytes, want %d", len(got), 1<<20)
	}
}

func TestFailureLeavesTheOldFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "out")
	if err := Write(name, 0o666, text("old")); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("no more")
	err := Write(name, 0o666, func(w io.Writer) error {
		io.WriteString(w, "new")
		return failed
	})
	if !errors.Is(err, failed) {
		t.Errorf("error %v, want %v", err, failed)
	}
	if got := content(t, name); got != "old" {
		t.Errorf("content %q, want the old one", got)
	}
	onlyEntry(t, dir, "out")
}

func TestModeIsThatOfTheUmask(t *testing.T) {
	old := syscall.Umask(0o027)
	defer syscall.Umask(old)
	name := filepath.Join(t.TempDir(), "out")
	if err := Write(name, 0o666, text("x")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o640 {
		t.Errorf("mode %v, want %v", got, os.FileMode(0o640))
	}
}

func TestSymbolicLinkStays(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := os.WriteFile(target, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("target", link); err != nil {
		t.Fatal(err)
	}
	if err := Write(link, 0o666, text("new")); err != nil {
		t.Fatal(err)
	}
	if got := content(t, target); got != "new" {
		t.Errorf("target holds %q, want %q", got, "new")
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("link is no link any more: %v, %v", info, err)
	}
}

func TestPipeIsWrittenTo(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	go func() {
		b, _ := os.ReadFile(name)
		got <- string(b)
	}()
	if err := Write(name, 0o666, text("through")); err != nil {
		t.Fatal(err)
	}
	if s := <-got; s != "through" {
		t.Errorf("the pipe gave %q, want %q", s, "through")
	}
	if info, err := os.Stat(name); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("the pipe was replaced: %v, %v", info, err)
	}
}

func TestMissingDirectoryIsNamed(t *testing.T) {
	name := filepath.Join(t.TempDir(), "missing", "out")
	var path *os.PathError
	if err := Write(name, 0o666, text("x")); !errors.As(err, &path) || path.Path != name {
		t.Errorf("error %v, want a *os.PathError for %s", err, name)
	}
}

// TestWriteSeeking writes what stands at the start last, into a file and a new name.
func TestWriteSeeking(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "out")
	err := WriteSeeking(name, 0o666, func(w io.WriteSeeker) error {
		if _, err := io.WriteString(w, "????, and the rest"); err != nil {
			return err
		}
		if _, err := w.Seek(0, io.SeekStart); err != nil {
			return err
		}
		_, err := io.WriteString(w, "head")
		return err
	})
	if got := content(t, name); err != nil || got != "head, and the rest" {
		t.Errorf("%q, error %v", got, err)
	}
	failed := errors.New("failed")
	err = WriteSeeking(name, 0o666, func(w io.WriteSeeker) error {
		io.WriteString(w, "half")
		return failed
	})
	if got := content(t, name); !errors.Is(err, failed) || got != "head, and the rest" {
		t.Errorf("%q, error %v", got, err)
	}
	onlyEntry(t, dir, "out")
}
