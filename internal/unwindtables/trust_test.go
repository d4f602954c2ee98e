package unwindtables

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/objects"
	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
	"hallmark/unwind"
)

// forge returns a copy of a file with other call frame information under the same identity and
// of the same size: where the CFA is 8 bytes above the stack pointer, it is 16 now.
func forge(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	e, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	s := e.Section(".eh_frame")
	testenv.Need(t, s != nil && e.Machine == elf.EM_X86_64, ".eh_frame of x86-64")
	frames := b[s.Offset:][:s.FileSize]
	const rule, other = "\x0c\x07\x08", "\x0c\x07\x10" // DW_CFA_def_cfa rsp
	if !bytes.Contains(frames, []byte(rule)) {
		t.Fatal("no rule is like that")
	}
	copy(frames, bytes.ReplaceAll(frames, []byte(rule), []byte(other)))
	return b
}

// tableOf has the table of a file made in a recording of its own.
func tableOfFile(t *testing.T, cache, name string) (*unwind.Table, Counts) {
	t.Helper()
	set := objects.New()
	defer set.Stop()
	tables := NewSupply(set, newFakeKernel(), NewCache(cache))
	tables.Introduce(7, fileObjectOf(t, set, name), nil)
	table := awaitTable(t, tables, 7)
	tables.Stop()
	return table, tables.Counts()
}

func builtOf(t *testing.T, name string) *unwind.Table {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := unwind.Build(f, unwind.BuildOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestTablesOfStrangersAreNotKept records files that others can have written, with the
// identity and the size of the C library: nothing is kept of them, and the C library has its
// own table.
func TestTablesOfStrangersAreNotKept(t *testing.T) {
	real := proctest.LibC(t)
	forged := forge(t, real)
	st, err := os.Stat(real)
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(t *testing.T, name string) error{
		"owned by another": func(t *testing.T, name string) error {
			testenv.Root(t)
			return os.Chown(name, 65534, 65534)
		},
		"writable by all":   func(_ *testing.T, name string) error { return os.Chmod(name, 0o646) },
		"writable by group": func(_ *testing.T, name string) error { return os.Chmod(name, 0o664) },
	} {
		t.Run(what, func(t *testing.T) {
			cache, name := t.TempDir(), filepath.Join(t.TempDir(), "library")
			if err := os.WriteFile(name, forged, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(name, st.ModTime(), st.ModTime()); err != nil {
				t.Fatal(err)
			}
			if err := change(t, name); err != nil {
				t.Fatal(err)
			}
			if table, _ := tableOfFile(t, cache, name); table == nil || bytes.Equal(table.Bytes(), builtOf(t, real).Bytes()) {
				t.Error("the file has no table of its own")
			}
			if kept, err := NewCache(cache).dir.List(); err != nil || len(kept) > 0 {
				t.Errorf("%v are kept, %v", kept, err)
			}
			if table, n := tableOfFile(t, cache, real); table == nil || !bytes.Equal(table.Bytes(), builtOf(t, real).Bytes()) {
				t.Errorf("the C library has the table of another file: %+v", n)
			}
		})
	}
}

// TestTablesOfOneIdentity keeps tables of two files of this user's that have one identity and
// one size, and the time of the last change that a package or touch gives to both: each has
// its own.
func TestTablesOfOneIdentity(t *testing.T) {
	real, cache := proctest.LibC(t), t.TempDir()
	st, err := os.Stat(real)
	if err != nil {
		t.Fatal(err)
	}
	for what, changed := range map[string]time.Time{"other time": time.Now().Add(-time.Hour), "same time": st.ModTime()} {
		t.Run(what, func(t *testing.T) { tablesOfOneIdentity(t, real, cache, changed) })
	}
}

func tablesOfOneIdentity(t *testing.T, real, cache string, changed time.Time) {
	other := filepath.Join(t.TempDir(), "library")
	if err := os.WriteFile(other, forge(t, real), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(other, time.Now(), changed); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, name := range []string{other, real} {
			if table, n := tableOfFile(t, cache, name); table == nil || !bytes.Equal(table.Bytes(), builtOf(t, name).Bytes()) {
				t.Errorf("%s has the table of another file: %+v", name, n)
			}
		}
	}
	if _, n := tableOfFile(t, cache, real); n.Cached != 1 {
		t.Errorf("that of the C library is not kept: %+v", n)
	}
}

// TestTableCacheOfOthers has what others can write not be used as a cache, nor anything that
// is no file of this user's own.
func TestTableCacheOfOthers(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if c := NewCache(dir); c.dir != nil {
		t.Error("a directory that all may write is used")
	}
	if c := NewCache(""); c.dir != nil {
		t.Error("there is a cache without a directory")
	}
	table, cache := builtOf(t, proctest.LibC(t)), NewCache(t.TempDir())
	id, err := buildid.Parse("0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	key := tableKey{id: id, size: 1}
	if err := cache.store(key, table); err != nil {
		t.Fatal(err)
	}
	name := cache.name(key)
	aside := filepath.Join(t.TempDir(), "aside")
	for what, change := range map[string]func() error{
		"a pipe":             func() error { return unix.Mkfifo(name, 0o600) },
		"a link":             func() error { return os.Symlink(aside, name) },
		"a link to no end":   func() error { return os.Symlink("/dev/zero", name) },
		"too large":          func() error { return errors.Join(os.WriteFile(name, nil, 0o600), os.Truncate(name, maxTableCache+1)) },
		"writable by others": func() error { return errors.Join(os.Link(aside, name), os.Chmod(name, 0o622)) },
		"a directory":        func() error { return os.Mkdir(name, 0o700) },
	} {
		if err := os.Rename(name, aside); err != nil {
			t.Fatal(err)
		}
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if _, err := cache.load(key); !errors.Is(err, errDamaged) {
			t.Errorf("%s is read: %v", what, err)
		}
		if err := os.Remove(name); err != nil && what != "too large" { // that one goes: nobody else made it
			t.Fatal(err)
		}
		if err := errors.Join(os.Chmod(aside, 0o600), os.Rename(aside, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := cache.load(key); err != nil {
		t.Errorf("it is not read when it is as it was: %v", err)
	}
}
