package debuginfo

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"hallmark/buildid"
	"hallmark/symbol"
)

func TestIndexes(t *testing.T) {
	id, err := buildid.Parse("go:a/b")
	if err != nil {
		t.Fatal(err)
	}
	file, err := symbol.OpenFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	indexes := &Indexes{Dir: filepath.Join(t.TempDir(), "indexes")}
	content := contentAt(t, "/bin/true")
	if _, err := indexes.Open(id, content); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an index that was not made: %v", err)
	}
	store := func(o Origin) string {
		t.Helper()
		x, err := file.Index(symbol.IndexOptions{Identity: o.ID.String(), Origin: o.String()})
		if err != nil {
			t.Fatal(err)
		}
		path, err := indexes.Store(x)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	path := store(Origin{ID: id, Content: content, Author: AuthorRoot})
	x, err := indexes.Open(id, content)
	if err != nil || x.Name() != path || filepath.Dir(path) != indexes.Dir {
		t.Fatalf("%v, %v", path, err)
	}
	x.Close()
	another, err := buildid.Parse("go:of/another")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(store(Origin{ID: another, Content: content, Author: AuthorRoot}), path); err != nil {
		t.Fatal(err)
	}
	for _, c := range []buildid.Content{{}, content} {
		if _, err := indexes.Open(id, c); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the index of another file: %v", err)
		}
	}
	if err := os.WriteFile(path, []byte("damaged"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []buildid.Content{{}, content} {
		if _, err := indexes.Open(id, c); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a damaged index: %v", err)
		}
	}
}

// keep stores an index under several identities, each used a day before the next.
func keep(t *testing.T, c *Indexes, n int) (paths []string) {
	t.Helper()
	file, err := symbol.OpenFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for i := range n {
		id, err := buildid.New(buildid.GNU, []byte{1, 2, 3, byte(i)})
		if err != nil {
			t.Fatal(err)
		}
		x, err := file.Index(symbol.IndexOptions{Identity: id.String(), Origin: Origin{Author: AuthorOwn}.String()})
		if err != nil {
			t.Fatal(err)
		}
		path, err := c.Store(x)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(time.Duration(i-n) * 26 * time.Hour)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

// TestLeastRecentlyUsedGoes fills a cache that is bounded.
func TestLeastRecentlyUsedGoes(t *testing.T) {
	c := &Indexes{Dir: t.TempDir()}
	paths := keep(t, c, 4)
	kept, err := c.List()
	if err != nil || len(kept) != 4 || kept[0].Path != paths[0] || kept[0].Size == 0 {
		t.Fatalf("%+v, %v", kept, err)
	}
	oldest, err := buildid.New(buildid.GNU, []byte{1, 2, 3, 0})
	if err != nil {
		t.Fatal(err)
	}
	x, err := c.Open(oldest, buildid.Content{}) // which makes it the newest
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	leftover := filepath.Join(c.Dir, ".aa.index.0123abcd")
	locked := filepath.Join(c.Dir, "aa.lock")
	for _, name := range []string{leftover, locked} {
		if err := os.WriteFile(name, nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(leftover, old, old); err != nil {
		t.Fatal(err)
	}
	if err := c.Prune(2 * kept[0].Size); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{paths[0]: true, paths[1]: false, paths[2]: false, paths[3]: true, leftover: false, locked: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", filepath.Base(path), err == nil, want)
		}
	}
	// What is stored stays, even if it is too large for the cache.
	small := &Indexes{Dir: c.Dir, MaxSize: 1}
	newest := keep(t, small, 1)[0]
	if kept, err := c.List(); err != nil || len(kept) != 1 || kept[0].Path != newest {
		t.Errorf("%+v, %v; want %s", kept, err, newest)
	}
	if err := x.Check(); err != nil {
		t.Errorf("an index that is in use and was removed: %v", err)
	}
}

func TestListNothing(t *testing.T) {
	c := &Indexes{Dir: filepath.Join(t.TempDir(), "none")}
	if kept, err := c.List(); len(kept) > 0 || err != nil {
		t.Errorf("%v, %v", kept, err)
	}
	if err := c.Prune(0); err != nil {
		t.Error(err)
	}
}

func inode(info fs.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }

// self returns the path of the test's own program.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
