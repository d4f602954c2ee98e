package atomicfile

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"hallmark/internal/testenv"
)

// nobody is a user who is not this one.
const nobody = 65534

func mode(t *testing.T, name string) os.FileMode {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

// TestOldModeStays replaces files of several modes: who could not read them cannot now, and
// who could still can.
func TestOldModeStays(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022))
	for _, old := range []os.FileMode{0o600, 0o640, 0o644, 0o664, 0o666, 0o400} {
		for _, perm := range []os.FileMode{0o600, 0o666} {
			name := filepath.Join(t.TempDir(), "out")
			if err := os.WriteFile(name, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(name, old); err != nil {
				t.Fatal(err)
			}
			if err := Write(name, perm, text("new")); err != nil {
				t.Fatal(err)
			}
			if got := mode(t, name); got != old {
				t.Errorf("a file of mode %v written with %v has mode %v", old, perm, got)
			}
		}
	}
}

// TestGroupAndListStay replaces a file that another group and one more user may read.
func TestGroupAndListStay(t *testing.T) {
	testenv.Root(t)
	name := filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(name, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(name, -1, nobody); err != nil {
		t.Fatal(err)
	}
	list := binary.LittleEndian.AppendUint32(nil, 2)    // POSIX_ACL_XATTR_VERSION
	for _, e := range []struct{ tag, perm, id uint32 }{ // include/uapi/linux/posix_acl.h
		{0x01, 6, ^uint32(0)}, {0x02, 4, nobody}, {0x04, 0, ^uint32(0)}, {0x10, 4, ^uint32(0)}, {0x20, 0, ^uint32(0)},
	} {
		list = binary.LittleEndian.AppendUint16(list, uint16(e.tag))
		list = binary.LittleEndian.AppendUint16(list, uint16(e.perm))
		list = binary.LittleEndian.AppendUint32(list, e.id)
	}
	err := unix.Setxattr(name, "system.posix_acl_access", list, 0)
	if !errors.Is(err, unix.EOPNOTSUPP) && err != nil {
		t.Fatal(err)
	}
	if err := Write(name, 0o666, text("new")); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil || st.Gid != nobody {
		t.Errorf("group %d, error %v", st.Gid, err)
	}
	b := make([]byte, 1024)
	n, now := unix.Getxattr(name, "system.posix_acl_access", b)
	if err == nil && (now != nil || string(b[:n]) != string(list)) {
		t.Errorf("access control list %x, error %v, want %x", b[:max(n, 0)], now, list)
	}
}

// TestFileOfAnotherUser replaces one: the new file is this user's, and no more people may read
// it than could read the old one.
func TestFileOfAnotherUser(t *testing.T) {
	testenv.Root(t)
	defer syscall.Umask(syscall.Umask(0o022))
	for _, test := range []struct{ old, perm, want os.FileMode }{
		{0o600, 0o666, 0o600}, {0o666, 0o600, 0o600}, {0o666, 0o666, 0o644},
	} {
		name := filepath.Join(t.TempDir(), "out")
		if err := os.WriteFile(name, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Chown(name, nobody, nobody), os.Chmod(name, test.old)); err != nil {
			t.Fatal(err)
		}
		if err := Write(name, test.perm, text("new")); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(name, &st); err != nil || st.Uid != 0 || os.FileMode(st.Mode).Perm() != test.want {
			t.Errorf("%v: of user %d with mode %o, want 0 and %o", test, st.Uid, st.Mode, test.want)
		}
	}
}

// TestLinksAreFollowed writes through links of several kinds, to files that are there and to
// files that are not.
func TestLinksAreFollowed(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o777); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{
		"relative": "d/1", "absolute": filepath.Join(dir, "d/2"), "up": "d/../d/3", "chain": "relative", "d/below": "../d/4",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct{ link, target string }{
		{"relative", "d/1"}, {"absolute", "d/2"}, {"up", "d/3"}, {"d/below", "d/4"}, {"chain", "d/1"},
	} {
		for _, s := range []string{"made", "replaced"} {
			link := filepath.Join(dir, test.link)
			if err := Write(link, 0o666, text(s)); err != nil {
				t.Fatal(err)
			}
			if got := content(t, filepath.Join(dir, test.target)); got != s {
				t.Errorf("%s: %s holds %q, want %q", test.link, test.target, got, s)
			}
			if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
				t.Errorf("%s is no link any more: %v, %v", test.link, info, err)
			}
		}
	}
	t.Chdir(dir)
	if err := Write("chain", 0o666, text("from here")); err != nil || content(t, "d/1") != "from here" {
		t.Errorf("a link in the working directory: %v", err)
	}
}

// TestDirectoriesBehindLinks writes to files in directories that links lead to.
func TestDirectoriesBehindLinks(t *testing.T) {
	dir := t.TempDir()
	err := os.MkdirAll(filepath.Join(dir, "d", "e"), 0o777)
	for link, target := range map[string]string{
		"relative": "d//e/", "absolute": filepath.Join(dir, "d"), "up": "d/e/..", "chain": "up", "d/back": "../d", "endless": "endless", "none": "nowhere", "file": "d/file",
	} {
		err = errors.Join(err, os.Symlink(target, filepath.Join(dir, link)))
	}
	if err = errors.Join(err, os.WriteFile(filepath.Join(dir, "d/file"), nil, 0o666)); err != nil {
		t.Fatal(err)
	}
	open, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	t.Chdir(filepath.Join(dir, "d"))
	for name, want := range map[string]string{
		"relative/1": "d/e/1", "absolute/2": "d/2", "up/3": "d/3", "chain/4": "d/4", "d/back/back/./5": "d/5", "relative/../6": "d/6",
		descriptorPath(int(open.Fd())) + "/d/7": "d/7", "/proc/self/cwd/8": "d/8", "../9": "9", "e/10": "d/e/10",
	} {
		if !filepath.IsAbs(name) && name != "../9" && name != "e/10" {
			name = dir + "/" + name
		}
		if err := Write(name, 0o666, text(want)); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := content(t, filepath.Join(dir, want)); got != want {
			t.Errorf("%s: %s holds %q", name, want, got)
		}
	}
	for name, want := range map[string]error{"endless/x": unix.ELOOP, "none/x": unix.ENOENT, "file/x": unix.ENOTDIR, "d/file/x": unix.ENOTDIR} {
		if err := Write(dir+"/"+name, 0o666, text("x")); !errors.Is(err, want) {
			t.Errorf("%s: error %v, want %v", name, err, want)
		}
	}
}

// TestDirectoriesAreMade makes directories that are not there, also behind a link.
func TestDirectoriesAreMade(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := errors.Join(os.Mkdir("d", 0o700), os.Symlink("d", "link"), os.WriteFile("file", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a/b/c", "a/b/", ".", "link", "link/x/../y", dir + "/e//f"} {
		if err := MakeDir(name, 0o700); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if info, err := os.Stat(name); err != nil || !info.IsDir() {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	for name, want := range map[string]error{"": unix.ENOENT, "file": unix.ENOTDIR, "file/x": unix.ENOTDIR} {
		if err := MakeDir(name, 0o700); !errors.Is(err, want) {
			t.Errorf("%q: error %v, want %v", name, err, want)
		}
	}
	for name, want := range map[string]error{"new/": nil, "link/new": nil, "d": unix.EEXIST, "link": unix.EEXIST, "none/x": unix.ENOENT} {
		if err := NewDir(name, 0o700); !errors.Is(err, want) {
			t.Errorf("new %q: error %v, want %v", name, err, want)
		}
	}
}

// TestTrapsInDirectoryOfAnotherUser works as root in the directory of a user, who has put a link to a
// file of root's there, and a pipe to read from.
func TestTrapsInDirectoryOfAnotherUser(t *testing.T) {
	testenv.Root(t)
	top := t.TempDir()
	theirs, own := filepath.Join(top, "theirs"), filepath.Join(top, "own")
	path := func(name string) string { return filepath.Join(theirs, name) }
	err := errors.Join(os.Mkdir(theirs, 0o755), os.Chown(theirs, nobody, nobody), os.WriteFile(own, []byte("precious"), 0o600),
		os.Symlink(own, path("link")), os.Symlink(top, path("dir")), os.WriteFile(path("file"), []byte("theirs"), 0o666),
		unix.Mknod(path("pipe"), unix.S_IFSOCK|0o666, 0)) // nobody may wait for the other end of a true one
	for _, name := range []string{"link", "dir", "file", "pipe"} {
		err = errors.Join(err, os.Lchown(path(name), nobody, nobody))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "pipe", "dir/own", "dir/made"} {
		if err := Write(path(name), 0o666, text("x")); !errors.Is(err, errForeign) {
			t.Errorf("%s: error %v, want %v", name, err, errForeign)
		}
	}
	for _, name := range []string{"link", "pipe", "file"} {
		if f, err := Open(path(name), 0o666); !errors.Is(err, errForeign) {
			t.Errorf("open %s: %v, error %v, want %v", name, f, err, errForeign)
		}
	}
	if got := content(t, own); got != "precious" {
		t.Errorf("a link of another user had %q written", got)
	}
	if err := Write(path("file"), 0o600, text("root's")); err != nil || content(t, path("file")) != "root's" {
		t.Errorf("a file of another user was not replaced: %v", err)
	}
}

func TestLinksWithoutEnd(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "a")
	if err := os.Symlink("a", name); err != nil {
		t.Fatal(err)
	}
	if err := Write(name, 0o666, text("x")); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("error %v, want %v", err, syscall.ELOOP)
	}
	onlyEntry(t, dir, "a")
}

// TestDescriptor writes to what this process has open, as -o /dev/stdout does: whoever has it
// open sees the content.
func TestDescriptor(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := Write(descriptorPath(int(f.Fd())), 0o666, text("x")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 2)
	if n, _ := f.ReadAt(b, 0); string(b[:n]) != "x" {
		t.Errorf("the open file holds %q", b[:n])
	}
}

// TestTrapsInDirectoryForAll writes to names that another user got hold of first in a
// directory such as /tmp, which is root's on most machines.
func TestTrapsInDirectoryForAll(t *testing.T) {
	testenv.Root(t)
	for _, owner := range []int{0, 1} {
		top := t.TempDir()
		shared, own, made := filepath.Join(top, "tmp"), filepath.Join(top, "own"), filepath.Join(top, "made")
		path := func(name string) string { return filepath.Join(shared, name) }
		err := errors.Join(os.Mkdir(shared, 0o777), os.Chmod(shared, 0o777|os.ModeSticky), os.Chown(shared, owner, owner),
			os.WriteFile(own, []byte("precious"), 0o600),
			os.Symlink(own, path("link")), os.Symlink(made, path("dangling")), os.Symlink(top, path("dir")), os.WriteFile(path("file"), []byte("theirs"), 0o666))
		// Nobody may wait for the other end of a pipe.
		err = errors.Join(err, unix.Mknod(path("pipe"), unix.S_IFSOCK|0o666, 0))
		for _, name := range []string{"link", "dangling", "dir", "file", "pipe"} {
			err = errors.Join(err, os.Lchown(path(name), nobody, nobody))
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"link", "dangling", "pipe", "dir/own", "dir/made", "../tmp/dir/own"} {
			if err := Write(path(name), 0o666, text("x")); !errors.Is(err, errForeign) {
				t.Errorf("%s: error %v, want %v", name, err, errForeign)
			}
		}
		for _, name := range []string{"link", "dangling", "pipe", "file", "dir/own"} {
			if f, err := Open(path(name), 0o666); !errors.Is(err, errForeign) {
				t.Errorf("open %s: %v, error %v, want %v", name, f, err, errForeign)
			}
		}
		for how, makeDir := range map[string]func(string, os.FileMode) error{"MakeDir": MakeDir, "NewDir": NewDir} {
			if err := makeDir(path("dir/made"), 0o777); !errors.Is(err, errForeign) {
				t.Errorf("%s: error %v, want %v", how, err, errForeign)
			}
		}
		for _, name := range []string{"dir", "dangling", "dangling/x"} {
			if err := MakeDir(path(name), 0o777); !errors.Is(err, errForeign) {
				t.Errorf("MakeDir %s: error %v, want %v", name, err, errForeign)
			}
		}
		if got := content(t, own); got != "precious" {
			t.Errorf("a link of another user had %q written", got)
		}
		if got := content(t, path("file")); got != "theirs" {
			t.Errorf("a file of another user had %q written", got)
		}
		if _, err := os.Lstat(made); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a link of another user had a file made: %v", err)
		}
	}
}

// TestOpen opens a new file, one that is there, and one behind a link.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	name, link := filepath.Join(dir, "out"), filepath.Join(dir, "link")
	if err := os.Symlink("out", link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, name} {
		f, err := Open(path, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if got := content(t, name); got != "" {
			t.Errorf("%s: holds %q before anything is written", path, got)
		}
		_, err = f.WriteString("seen at once")
		if got := content(t, name); err != nil || got != "seen at once" || mode(t, name) != 0o600 {
			t.Errorf("%s: holds %q with mode %v, error %v", path, got, mode(t, name), err)
		}
		f.Close()
	}
}

// TestOpenWhileExchanged has another user put a file where one was to be made, and where one was
// judged: it is not opened, because its owner would read what is written.
func TestOpenWhileExchanged(t *testing.T) {
	testenv.Root(t)
	defer func() { betweenFindAndOpen = func() {} }()
	for _, isThere := range []bool{false, true} {
		dir := t.TempDir()
		name, theirs := filepath.Join(dir, "out"), filepath.Join(dir, "theirs")
		if err := errors.Join(os.WriteFile(theirs, []byte("theirs"), 0o666), os.Chown(theirs, nobody, nobody), os.Chmod(dir, 0o777|os.ModeSticky)); err != nil {
			t.Fatal(err)
		}
		if isThere {
			if err := os.WriteFile(name, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		betweenFindAndOpen = func() {
			if err := os.Rename(theirs, name); err != nil {
				t.Fatal(err)
			}
		}
		f, err := Open(name, 0o600)
		if err == nil {
			f.Close()
		}
		if !errors.Is(err, os.ErrExist) && !errors.Is(err, ErrReplaced) {
			t.Errorf("there before %v: error %v", isThere, err)
		}
		if got := content(t, name); got != "theirs" {
			t.Errorf("there before %v: the file of another user holds %q", isThere, got)
		}
	}
}

// TestFileThatCannotBeReplaced is found before anything is written.
func TestFileThatCannotBeReplaced(t *testing.T) {
	dir := &unix.Stat_t{Mode: unix.S_IFDIR | unix.S_ISVTX | 0o777, Uid: nobody - 1}
	st := &unix.Stat_t{Mode: unix.S_IFREG | 0o666, Uid: nobody}
	err := judge(dir, st)
	if want := os.Geteuid() != 0; want != errors.Is(err, unix.EPERM) {
		t.Errorf("error %v", err)
	}
}

// TestFileWithAMount writes to a file that something is mounted on, as containers have it.
func TestFileWithAMount(t *testing.T) {
	dir := ownMounts(t)
	name, behind := filepath.Join(dir, "out"), filepath.Join(dir, "behind")
	for _, n := range []string{name, behind} {
		if err := os.WriteFile(n, []byte("old, and longer"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount(behind, name, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := Write(name, 0o666, text("new")); err != nil {
		t.Fatal(err)
	}
	if got := content(t, behind); got != "new" {
		t.Errorf("the file holds %q", got)
	}
}

// TestRewrite rewrites what was opened, and nothing that took its name meanwhile.
func TestRewrite(t *testing.T) {
	dir := t.TempDir()
	name, link, other := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "other")
	err := errors.Join(os.WriteFile(name, []byte("before"), 0o640), os.Symlink("file", link), os.WriteFile(other, []byte("precious"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{name, link} {
		old, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := Rewrite(old, path, text(path)); err != nil || content(t, name) != path || mode(t, name) != 0o640 {
			t.Errorf("%s: holds %q with mode %v, error %v", path, content(t, name), mode(t, name), err)
		}
		old.Close()
	}
	old, err := os.Open(link)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	traps := map[string]func() error{
		"a link":       func() error { return os.Symlink(other, link) },
		"another file": func() error { return os.WriteFile(link, []byte("theirs"), 0o666) },
		"a pipe":       func() error { return unix.Mkfifo(link, 0o666) },
		"nothing":      func() error { return nil },
	}
	for trap, lay := range traps {
		if err := errors.Join(os.Remove(link), lay()); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := Rewrite(old, link, text("x")); !errors.Is(err, ErrReplaced) {
			t.Errorf("%s: error %v, want %v", trap, err, ErrReplaced)
		}
	}
	if got := content(t, other); got != "precious" {
		t.Errorf("a link had %q written", got)
	}
}

// TestExchangedPipe puts something in the place of a pipe after it was found: it is not cut.
func TestExchangedPipe(t *testing.T) {
	dir := t.TempDir()
	name, other := filepath.Join(dir, "pipe"), filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for trap, lay := range map[string]func(old, name string) error{"link": os.Symlink, "file": os.Link} {
		if err := unix.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := find(name)
		if err != nil || p.isReplaceable() {
			t.Fatal(p, err)
		}
		if err := errors.Join(os.Remove(name), lay(other, name)); err != nil {
			t.Fatal(err)
		}
		if f, err := p.open(unix.O_WRONLY); err == nil {
			f.Close()
			t.Errorf("a %s in the place of a pipe is opened", trap)
		}
		p.dir.Close()
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if got := content(t, other); got != "precious" {
		t.Errorf("holds %q", got)
	}
}
