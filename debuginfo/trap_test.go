package debuginfo

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"hallmark/buildid"
	"hallmark/internal/testenv"
	"hallmark/symbol"
)

// TestNamesOfOthersAreNotOpened gives names of what is no file where a file of somebody else
// names one: .debug_info (DW_AT_dwo_name), .gnu_debugaltlink, .gnu_debuglink, a recording. To
// open it could have effects.
func TestNamesOfOthersAreNotOpened(t *testing.T) {
	dir := t.TempDir()
	trap := testenv.Trap(t, filepath.Join(dir, "trap"))
	testenv.Trap(t, filepath.Join(dir, "prog.dwp"))
	names := []string{trap}
	if os.Geteuid() == 0 {
		names = append(names, testenv.Terminal(t))
	}
	id, err := buildid.New(buildid.GNU, []byte("no file has this one"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		f := &Finder{Dirs: []string{}, Extra: []string{name}, Package: name}
		for what, open := range map[string]func() *symbol.File{
			"a unit that was split off":  func() *symbol.File { return f.Companion(symbol.Companion{Path: name}) },
			"a file of dwz":              func() *symbol.File { return f.Companion(symbol.Companion{Path: name, BuildID: id.Bytes()}) },
			"a package":                  func() *symbol.File { return f.Companion(symbol.Companion{Package: filepath.Join(dir, "prog")}) },
			"the file that was recorded": func() *symbol.File { file, _ := f.Open(id, name); return file },
		} {
			if file := open(); file != nil {
				t.Errorf("%s: %s is one", what, name)
				file.Close()
			}
		}
		l := &Library{Finder: Finder{Dirs: []string{}}, Indexes: Indexes{Dir: filepath.Join(dir, "index")}}
		if s, err := l.OpenFile(t.Context(), name); !errors.Is(err, symbol.ErrNotELF) {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	p := build(t)
	p.link(t)
	if err := os.Rename(p.debug, p.debug+"-aside"); err != nil {
		t.Fatal(err)
	}
	testenv.Trap(t, p.debug)
	file, why := (&Finder{Dirs: []string{}}).Open(p.id, p.name)
	if file == nil {
		t.Fatal(why)
	}
	file.Close()
}

// TestIndexOfAnotherUser has an index that another user can have written in the place of one
// that is kept.
func TestIndexOfAnotherUser(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	c := &Indexes{Dir: filepath.Join(dir, "index")}
	path := keep(t, c, 1)[0]
	id, err := buildid.New(buildid.GNU, []byte{1, 2, 3, 0})
	if err != nil {
		t.Fatal(err)
	}
	changes := map[string]func() error{
		"others may write it": func() error { return os.Chmod(path, 0o666) },
		"a link leads to it": func() error {
			return errors.Join(os.Chmod(path, 0o600), os.Rename(path, path+"-aside"), os.Symlink(path+"-aside", path))
		},
	}
	if os.Geteuid() == 0 {
		changes["it is another user's"] = func() error { return errors.Join(os.Chmod(path, 0o600), os.Chown(path, 65534, 65534)) }
		changes["the directory is another user's"] = func() error { return os.Chown(c.Dir, 65534, 65534) }
	}
	for what, change := range changes {
		if x, err := c.Open(id, buildid.Content{}); err != nil {
			t.Fatalf("%s: before: %v", what, err)
		} else {
			x.Close()
		}
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if x, err := c.Open(id, buildid.Content{}); err == nil {
			t.Errorf("%s, and it answers", what)
			x.Close()
		}
		if err := os.RemoveAll(c.Dir); err != nil {
			t.Fatal(err)
		}
		keep(t, c, 1)
	}
}
