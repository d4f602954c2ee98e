package cachedir

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"hallmark/buildid"
	"hallmark/internal/testenv"
)

// nobody is a user who is not this one.
const nobody = 65534

const suffix = ".kept"

// must fails the test at the first error.
func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

// private returns a directory that no umask opens to others.
func private(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o700))
	return dir
}

// verbs are all that can be done with a directory and a file in it.
var verbs = map[string]func(d *Dir, path string) error{
	"Check": func(d *Dir, _ string) error { return d.Check() },
	"Open": func(d *Dir, path string) error {
		f, err := d.Open(path)
		if err == nil {
			f.Close()
		}
		return err
	},
	"Write": func(d *Dir, path string) error { return d.Write(path, text("ours")) },
	"TryLock": func(d *Dir, path string) error {
		unlock, err := d.TryLock(path)
		if err == nil {
			unlock()
		}
		return err
	},
	"List": func(d *Dir, _ string) error {
		_, err := d.List()
		return err
	},
	"Prune": func(d *Dir, _ string) error { return d.Prune("", 0) },
}

// TestSharedIsNotUsed gives directories that others can change, with a link in each that
// leads to a file of root's: none of them is read or written, and the file stays as it is.
func TestSharedIsNotUsed(t *testing.T) {
	testenv.Root(t)
	top := private(t)
	secret := filepath.Join(top, "secret"+suffix)
	must(t, os.WriteFile(secret, []byte("secret"), 0o600))
	for what, make := range map[string]func(dir string) error{
		"a directory of another user":  func(dir string) error { return errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, nobody, nobody)) },
		"one that everybody may write": func(dir string) error { return errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o777)) },
		"one that a group may write":   func(dir string) error { return errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o775)) },
		"a link of another user in a directory like /tmp": func(dir string) error {
			real := dir + "-real"
			return errors.Join(os.Mkdir(real, 0o755), os.Symlink(real, dir), os.Lchown(dir, nobody, nobody),
				os.Chmod(filepath.Dir(dir), 0o777|os.ModeSticky))
		},
		"one below another user's": func(dir string) error {
			return errors.Join(os.Chown(filepath.Dir(dir), nobody, nobody), os.Mkdir(dir, 0o755))
		},
	} {
		above := filepath.Join(private(t), "above")
		must(t, os.Mkdir(above, 0o755))
		d := &Dir{Path: filepath.Join(above, "dir"), Suffix: suffix, LockSuffix: ".lock"}
		must(t, make(d.Path))
		path := filepath.Join(d.Path, "a"+suffix)
		must(t, os.Symlink(secret, path))
		for name, do := range verbs {
			if err := do(d, path); !errors.Is(err, ErrShared) {
				t.Errorf("%s: %s: %v", what, name, err)
			}
		}
		if b, err := os.ReadFile(secret); err != nil || string(b) != "secret" {
			t.Errorf("%s: root's file has %q, %v", what, b, err)
		}
		if entries, err := os.ReadDir(d.Path); err != nil || len(entries) != 1 {
			t.Errorf("%s: there is %v, %v", what, entries, err)
		}
	}
}

// TestNothingIsMadeAtOthers has no directory yet, in one that another user can change.
func TestNothingIsMadeAtOthers(t *testing.T) {
	testenv.Root(t)
	theirs := filepath.Join(private(t), "theirs")
	must(t, os.Mkdir(theirs, 0o755), os.Chown(theirs, nobody, nobody))
	d := &Dir{Path: filepath.Join(theirs, ".cache", "hallmark"), Suffix: suffix}
	if err := d.Write(filepath.Join(d.Path, "a"+suffix), text("x")); !errors.Is(err, ErrShared) {
		t.Error(err)
	}
	if entries, err := os.ReadDir(theirs); err != nil || len(entries) > 0 {
		t.Errorf("there is %v, %v", entries, err)
	}
}

// TestWhatIsMadeIsPrivate looks at the modes of what is kept, whatever the umask.
func TestWhatIsMadeIsPrivate(t *testing.T) {
	dir := private(t)
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	d := &Dir{Path: filepath.Join(dir, "above", "dir"), Suffix: suffix}
	path := filepath.Join(d.Path, "a"+suffix)
	must(t, d.Write(path, text("x")))
	unlock, err := d.TryLock(filepath.Join(d.Path, "a.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	for name, want := range map[string]fs.FileMode{filepath.Dir(d.Path): 0o700, d.Path: 0o700, path: 0o600, filepath.Join(d.Path, "a.lock"): 0o600} {
		if info, err := os.Lstat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
}

// TestOnlyOwnFilesAreRead has things in a private directory that this user has not written,
// or that are no files.
func TestOnlyOwnFilesAreRead(t *testing.T) {
	d := &Dir{Path: private(t), Suffix: suffix}
	path := filepath.Join(d.Path, "a"+suffix)
	if _, err := d.Open(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing is there: %v", err)
	}
	for what, make := range map[string]func() error{
		"a pipe":                          func() error { testenv.Trap(t, path); return nil },
		"a directory":                     func() error { return os.Mkdir(path, 0o700) },
		"a link out":                      func() error { return os.Symlink("/etc/passwd", path) },
		"a link to one that is kept":      func() error { return os.Symlink("b"+suffix, path) },
		"a file that others may write":    func() error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o602)) },
		"a file that a group may write":   func() error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o660)) },
		"a file of another user, by root": func() error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, nobody, nobody)) },
	} {
		if what == "a file of another user, by root" && os.Geteuid() != 0 {
			continue
		}
		must(t, d.Write(filepath.Join(d.Path, "b"+suffix), text("kept")), make())
		if _, err := d.Open(path); !errors.Is(err, ErrNotOwn) {
			t.Errorf("%s: %v", what, err)
		}
		must(t, os.Remove(path))
	}
	must(t, d.Write(path, text("kept")))
	f, err := d.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := io.ReadAll(f); err != nil || string(b) != "kept" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestWriteReplacesLinks writes in place of a link, and not through it.
func TestWriteReplacesLinks(t *testing.T) {
	d := &Dir{Path: private(t), Suffix: suffix}
	path, aside := filepath.Join(d.Path, "a"+suffix), filepath.Join(private(t), "aside")
	must(t, os.WriteFile(aside, []byte("aside"), 0o600), os.Symlink(aside, path), d.Write(path, text("kept")))
	if b, err := os.ReadFile(aside); err != nil || string(b) != "aside" {
		t.Errorf("where the link led is %q, %v", b, err)
	}
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// environment sets where a user's caches are.
func environment(t *testing.T, home, cache string) {
	t.Setenv("HOME", home)
	t.Setenv("XDG_CACHE_HOME", cache)
}

// TestUserOfAnotherEnvironment is root, with the environment of itself and of another user.
func TestUserOfAnotherEnvironment(t *testing.T) {
	testenv.Root(t)
	own := private(t)
	theirs := filepath.Join(own, "theirs")
	must(t, os.Mkdir(theirs, 0o755), os.Chown(theirs, nobody, nobody))
	home, err := rootHome(passwd)
	if err != nil {
		t.Fatal(err)
	}
	roots := filepath.Join(home, ".cache")
	for _, c := range []struct {
		home, cache, want string
		refused           bool
	}{
		{own, "", filepath.Join(own, ".cache"), false},
		{theirs, "", roots, true},
		{theirs, own, own, false},
		{own, theirs, roots, true},
		{own, filepath.Join(theirs, "cache"), roots, true},
	} {
		environment(t, c.home, c.cache)
		if got, err := User(); err != nil || got != c.want {
			t.Errorf("HOME %s, XDG_CACHE_HOME %s: %s, %v, want %s", c.home, c.cache, got, err, c.want)
		}
		if err := Refused(); (err != nil) != c.refused || err != nil && !errors.Is(err, ErrShared) {
			t.Errorf("HOME %s, XDG_CACHE_HOME %s: %v", c.home, c.cache, err)
		}
	}
	environment(t, theirs, "")
	if dir, err := PerfDir(); !errors.Is(err, ErrShared) {
		t.Errorf("perf's cache is %s, %v", dir, err)
	}
}

// TestHomeThatIsNotThere has no cache, and makes no home.
func TestHomeThatIsNotThere(t *testing.T) {
	dir := private(t)
	none := filepath.Join(dir, "none")
	environment(t, none, "")
	if got, err := User(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the cache is %q, %v", got, err)
	}
	if got, err := InUserCache("index"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("indexes are in %q, %v", got, err)
	}
	if err := Refused(); err != nil {
		t.Errorf("refused: %v", err)
	}
	environment(t, none, filepath.Join(dir, "cache"))
	if got, err := User(); err != nil || got != filepath.Join(dir, "cache") {
		t.Errorf("with XDG_CACHE_HOME it is %q, %v", got, err)
	}
}

// TestRootHome reads password files.
func TestRootHome(t *testing.T) {
	name := filepath.Join(t.TempDir(), "passwd")
	for text, want := range map[string]string{
		"bob:x:1000:1000::/home/bob:/bin/sh\nroot:x:0:0:root:/root:/bin/bash\ntoor:x:0:0::/toor:\n": "/root",
		"root:x:0:0:root:relative:/bin/bash\n":                                                      "",
		"bob:x:1000:0::/home/bob:/bin/sh\n0\n":                                                      "",
	} {
		must(t, os.WriteFile(name, []byte(text), 0o600))
		if got, err := rootHome(name); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	if got, err := rootHome(name + "-gone"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%q, %v", got, err)
	}
}

// TestEarlierDirectoriesAreClosed has directories as earlier versions made them where the
// umask left the group its rights.
func TestEarlierDirectoriesAreClosed(t *testing.T) {
	dir := private(t)
	environment(t, dir, dir)
	ours := filepath.Join(dir, "hallmark")
	index := filepath.Join(ours, "index")
	must(t, os.MkdirAll(index, 0o755), os.Chmod(ours, 0o775), os.Chmod(index, 0o777))
	got, err := InUserCache("index")
	if err != nil || got != index {
		t.Fatalf("%s, %v", got, err)
	}
	for _, name := range []string{ours, index} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if err := Check(index); err != nil {
		t.Error(err)
	}
}

// TestNames wants the files of one identity, those that were just made and those that are
// gone as well, from a directory whose names are remembered.
func TestNames(t *testing.T) {
	d := &Dir{Path: filepath.Join(private(t), "kept"), Suffix: suffix}
	id, other := buildIDOf(t, "go:a"), buildIDOf(t, "go:ab")
	check := func(want ...string) {
		t.Helper()
		got, err := d.Names(id)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	write := func(name string) string {
		t.Helper()
		if err := d.Write(name, func(io.Writer) error { return nil }); err != nil {
			t.Fatal(err)
		}
		return name
	}
	check()
	write(d.Name(id))
	write(d.Name(other, "1"))
	one := write(d.Name(id, "1"))
	check(one)
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(d.Path, long, long); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		check(one)
	}
	two := write(d.Name(id, "2"))
	check(one, two)
	if err := os.Remove(one); err != nil {
		t.Fatal(err)
	}
	check(two)
}

func buildIDOf(t *testing.T, text string) buildid.ID {
	t.Helper()
	id, err := buildid.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestIsFull stores files until a cache of their size would have been pruned many times: it never grows without bounds,
// and most files are stored without a look at the others.
func TestIsFull(t *testing.T) {
	const max, one, files = 256 << 20, 1 << 20, 10000
	size, prunes := 0, 0
	for range files {
		if size += one; IsFull(one, max) {
			size = min(size, max)
			prunes++
		}
		if size > 3*max { // by chance once in 10¹³ times that there is one more file
			t.Fatalf("it has %d MiB, of %d", size>>20, max>>20)
		}
	}
	if prunes < files/50 || prunes > files/5 {
		t.Errorf("%d files take %d looks at all", files, prunes)
	}
	if !IsFull(max, max) || IsFull(0, max) {
		t.Error("what fills all of it is no reason, or nothing is")
	}
}
