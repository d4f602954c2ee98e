package blob_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hallmark/internal/testenv"
	"hallmark/server/blob"
	"hallmark/server/blob/blobtest"
)

func openDir(t *testing.T, name string) *blob.Dir {
	t.Helper()
	d, err := blob.OpenDir(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestDir(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blob.Store { return openDir(t, t.TempDir()) })
}

// TestNothingIsLeft wants tmp empty after failures, and what is old there gone.
func TestNothingIsLeft(t *testing.T) {
	name := t.TempDir()
	d := openDir(t, name)
	if _, err := d.PutIfAbsent(t.Context(), "k", strings.NewReader("short"), 10); err == nil {
		t.Fatal("stored")
	}
	old, young := filepath.Join(name, "tmp", "old"), filepath.Join(name, "tmp", "young")
	for _, f := range []string{old, young} {
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(old, time.Time{}, time.Now().Add(-25*time.Hour)); err != nil {
		t.Fatal(err)
	}
	openDir(t, name)
	left, err := os.ReadDir(filepath.Join(name, "tmp"))
	if err != nil || len(left) != 1 || left[0].Name() != "young" {
		t.Errorf("%v, %v", left, err)
	}
}

// TestEmptyDirectories wants the directories of removed objects gone, also while others put objects into them.
func TestEmptyDirectories(t *testing.T) {
	name := t.TempDir()
	s := openDir(t, name)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			key := fmt.Sprintf("a/b/c/%d", i)
			for range 100 {
				if _, err := s.PutIfAbsent(t.Context(), key, strings.NewReader("x"), 1); err != nil {
					t.Error(err)
				}
				if _, err := s.Head(t.Context(), key); err != nil {
					t.Error(err)
				}
				if err := s.Delete(t.Context(), key); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if _, err := os.Lstat(filepath.Join(name, "a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty directory is left: %v", err)
	}
}

// TestKeysOfItsOwn wants locks and unfinished files out of reach.
func TestKeysOfItsOwn(t *testing.T) {
	d := openDir(t, t.TempDir())
	for _, key := range []string{"tmp/x", "locks/00", "tmp", "locks"} {
		if _, err := d.PutIfAbsent(t.Context(), key, strings.NewReader(""), 0); !errors.Is(err, blob.ErrKey) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// TestLinks wants no link in the store to lead out of it.
func TestLinks(t *testing.T) {
	name := t.TempDir()
	d := openDir(t, name)
	if err := os.Symlink("/etc", filepath.Join(name, "out")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Head(t.Context(), "out/passwd"); err == nil {
		t.Error("a link led out of the store")
	}
	if _, err := d.PutIfAbsent(t.Context(), "out/hallmark", strings.NewReader(""), 0); err == nil {
		t.Error("a file was made behind a link")
	}
}

// TestDiskFull fills a file system of 1 MiB.
func TestDiskFull(t *testing.T) {
	testenv.Root(t)
	name := t.TempDir()
	if err := syscall.Mount("hallmark", name, "tmpfs", 0, "size=1m"); err != nil {
		testenv.Need(t, false, "a tmpfs of its own: "+err.Error())
	}
	t.Cleanup(func() { _ = syscall.Unmount(name, syscall.MNT_DETACH) })
	d := openDir(t, name)
	if _, err := d.PutIfAbsent(t.Context(), "k", strings.NewReader(strings.Repeat("x", 2<<20)), 2<<20); !errors.Is(err, blob.ErrFull) || strings.HasPrefix(err.Error(), "k") {
		t.Errorf("%v", err)
	}
	if _, err := d.Head(t.Context(), "k"); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if _, err := d.PutIfAbsent(t.Context(), "k", strings.NewReader(strings.Repeat("x", 100<<10)), 100<<10); err != nil {
		t.Errorf("what fits: %v", err)
	}
}

// TestGone wants nothing to be called missing in a directory that was removed or emptied.
func TestGone(t *testing.T) {
	for name, remove := range map[string]func(dir string) error{
		"removed": os.RemoveAll,
		"emptied": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)) },
	} {
		dir := filepath.Join(t.TempDir(), "store")
		d := openDir(t, dir)
		if _, err := d.PutIfAbsent(t.Context(), "a/k", strings.NewReader("x"), 1); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Head(t.Context(), "a/other"); !errors.Is(err, blob.ErrNotExist) {
			t.Errorf("%s: before: %v", name, err)
		}
		if err := remove(dir); err != nil {
			t.Fatal(err)
		}
		_, err := d.Head(t.Context(), "a/k")
		_, _, err2 := d.Get(t.Context(), "a/k", 0, -1)
		_, err3 := d.PutIfAbsent(t.Context(), "a/k2", strings.NewReader("x"), 1)
		err4 := errors.New("the list has no error")
		for _, err4 = range d.List(t.Context(), "a/") {
		}
		for _, err := range []error{err, err2, err3, err4} {
			if !errors.Is(err, blob.ErrUnavailable) || errors.Is(err, blob.ErrNotExist) || !strings.HasSuffix(err.Error(), " was removed or emptied") || strings.HasPrefix(err.Error(), ".") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
