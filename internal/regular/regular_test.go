package regular

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"hallmark/internal/testenv"
)

// doors are all the ways in which a name is opened.
var doors = map[string]func(name string) (io.Closer, error){
	"Open": func(name string) (io.Closer, error) { return Open(name) },
	"OpenIn": func(name string) (io.Closer, error) {
		root, err := os.Open("/")
		if err != nil {
			return nil, err
		}
		defer root.Close()
		return OpenIn(int(root.Fd()), name)
	},
	"ReadFile": func(name string) (io.Closer, error) {
		_, err := ReadFile(name, 1<<20)
		return io.NopCloser(nil), err
	},
	"Scratch": func(name string) (io.Closer, error) {
		var s Scratch
		fd, err := s.Open(name, 0)
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
		return os.NewFile(uintptr(fd), name), nil
	},
}

// TestOthersAreNotOpened gives the doors the names of what is no regular file. The trap and
// the terminal see it when they are opened; a link to them is no way in.
func TestOthersAreNotOpened(t *testing.T) {
	dir := t.TempDir()
	names := []string{dir, "/dev/null", testenv.Trap(t, filepath.Join(dir, "trap")), filepath.Join(dir, "link")}
	if err := os.Symlink("trap", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		names = append(names, testenv.Terminal(t))
	}
	for door, open := range doors {
		for _, name := range names {
			f, err := open(name)
			var path *fs.PathError
			if !errors.Is(err, ErrOther) || !errors.As(err, &path) || path.Path != name {
				t.Errorf("%s of %s: %v", door, name, err)
			}
			if err == nil {
				f.Close()
			}
		}
		if _, err := open(dir); !errors.Is(err, syscall.EISDIR) {
			t.Errorf("%s of a directory: %v", door, err)
		}
	}
}

// TestMadeUpFilesAreNotOpened gives the doors files of the kernel that count as regular ones, by
// their own names and by another one over which one of them is mounted.
func TestMadeUpFilesAreNotOpened(t *testing.T) {
	names := []string{"/proc/self/status", "/proc/version", "/sys/kernel/notes"}
	if os.Geteuid() == 0 {
		mounted := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(mounted, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		bind(t, "/proc/kmsg", mounted)
		names = append(names, "/proc/kmsg", mounted)
	}
	doors := maps.Clone(doors)
	doors["OpenOwn"] = func(name string) (io.Closer, error) {
		if strings.HasSuffix(name, "file") || name == "/proc/kmsg" {
			name = "/proc/version" // it opens the file itself
		}
		var s Scratch
		fd, err := s.OpenOwn(name, 0)
		if err != nil {
			return io.NopCloser(nil), err
		}
		return os.NewFile(uintptr(fd), name), nil
	}
	for door, open := range doors {
		for _, name := range names {
			if f, err := open(name); !errors.Is(err, ErrOther) {
				t.Errorf("%s of %s: %v", door, name, err)
				f.Close()
			}
		}
	}
}

// bind mounts a file over another one, for this thread alone, which ends with the test.
func bind(t *testing.T, from, over string) {
	runtime.LockOSThread()
	for _, err := range []error{
		unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS),
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount(from, over, "", unix.MS_BIND, ""),
	} {
		if err != nil {
			t.Skip("no mounts here:", err)
		}
	}
	t.Cleanup(func() { _ = unix.Unmount(over, unix.MNT_DETACH) })
}

// TestNoReadWaits has a file on which reading returns EAGAIN and which Go's poller would watch,
// as one of FUSE may be: what a door gives reports that there is nothing.
func TestNoReadWaits(t *testing.T) {
	var ends [2]int
	if err := syscall.Pipe2(ends[:], syscall.O_NONBLOCK|syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(ends[1])
	f, err := file(ends[0], nil, "pipe")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	read := make(chan error, 1)
	go func() {
		_, err := f.Read(make([]byte, 1))
		read <- err
	}()
	select {
	case err := <-read:
		if !errors.Is(err, syscall.EAGAIN) {
			t.Error(err)
		}
	case <-time.After(testenv.Patience):
		t.Error("it waits")
	}
}

// TestRegularFiles reads files, with links on the way.
func TestRegularFiles(t *testing.T) {
	dir := t.TempDir()
	name, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(name, []byte("content"), 0o600), os.Symlink("file", link)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{name, link, "/proc/self/exe"} {
		for door, open := range doors {
			if door == "OpenIn" && strings.HasPrefix(name, "/proc") {
				continue // links of /proc lead out of a root
			}
			if f, err := open(name); err != nil && (door != "ReadFile" || !errors.Is(err, syscall.EFBIG)) {
				t.Errorf("%s of %s: %v", door, name, err)
			} else if err == nil {
				f.Close()
			}
		}
	}
	if b, err := ReadFile(link, 7); err != nil || string(b) != "content" {
		t.Errorf("%q, %v", b, err)
	}
	if b, err := ReadFile(link, 6); !errors.Is(err, syscall.EFBIG) {
		t.Errorf("a file that is too large: %q, %v", b, err)
	}
	var s Scratch
	if fd, err := s.Open(link, syscall.O_NOFOLLOW); !errors.Is(err, ErrOther) {
		t.Errorf("a link was followed: %d, %v", fd, err)
	}
}

// TestNames gives names that no file can have, and those of files that are not there.
func TestNames(t *testing.T) {
	for door, open := range doors {
		for name, want := range map[string]error{
			"":                         syscall.ENOENT,
			"/nowhere/file":            syscall.ENOENT,
			"/etc/passwd\x00/x":        syscall.EINVAL,
			strings.Repeat("x/", 4096): syscall.ENAMETOOLONG,
		} {
			if _, err := open(name); !errors.Is(err, want) {
				t.Errorf("%s of %.20q: %v, want %v", door, name, err, want)
			}
		}
	}
}

// TestNothingLeadsOut has links in a root directory that would lead out of it.
func TestNothingLeadsOut(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	for _, err := range []error{
		os.WriteFile(filepath.Join(dir, "secret"), []byte("outside"), 0o600),
		os.Mkdir(root, 0o755),
		os.WriteFile(filepath.Join(root, "secret"), []byte("inside"), 0o600),
		os.Symlink("/secret", filepath.Join(root, "absolute")),
		os.Symlink("../secret", filepath.Join(root, "above")),
		os.Symlink("/proc/self/root", filepath.Join(root, "magic")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	fd, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	for _, name := range []string{"secret", "/secret", "absolute", "above", "../secret"} {
		f, err := OpenIn(int(fd.Fd()), name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if b, err := io.ReadAll(f); err != nil || string(b) != "inside" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
		f.Close()
	}
	top, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	if f, err := OpenIn(int(top.Fd()), "/proc/self/root/etc/passwd"); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a link of /proc was followed: %v, %v", f, err)
	}
}

// TestLeaseIsNotWaitedFor opens a file whose owner wants to be asked first.
func TestLeaseIsNotWaitedFor(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skip("no leases here:", err)
	}
	// The signal that says so is SIGIO, which is passed over.
	if again, err := Open(name); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Errorf("%v, %v", again, err)
	}
}

// TestWithoutProc opens a file as where there is no /proc to do it through: only the same one.
func TestWithoutProc(t *testing.T) {
	dir := t.TempDir()
	name, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
	if err := errors.Join(os.WriteFile(name, []byte("x"), 0o600), os.WriteFile(other, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	place, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(place)
	var s Scratch
	fd, err := s.openSame(place, name, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	if fd, err := s.openSame(place, other, 0); !errors.Is(err, syscall.ESTALE) {
		t.Errorf("another file was opened: %d, %v", fd, err)
	}
}

// TestOpenEntry opens the entries of a directory that only this user can change.
func TestOpenEntry(t *testing.T) {
	path := t.TempDir()
	for _, err := range []error{
		os.WriteFile(filepath.Join(path, "file"), []byte("content"), 0o600),
		os.Mkdir(filepath.Join(path, "dir"), 0o755),
		os.Symlink("file", filepath.Join(path, "link")),
		os.Symlink("link", filepath.Join(path, "to link")),
		os.Symlink("trap", filepath.Join(path, "to trap")),
		os.Symlink("dir", filepath.Join(path, "to dir")),
		os.Symlink("none", filepath.Join(path, "to none")),
		os.Symlink("turn", filepath.Join(path, "round")),
		os.Symlink("round", filepath.Join(path, "turn")),
		os.Symlink("/proc/version", filepath.Join(path, "to proc")),
		os.Symlink("dir/../file", filepath.Join(path, "by dir")),
		os.Symlink(strings.Repeat("x", 256), filepath.Join(path, "long")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	testenv.Trap(t, filepath.Join(path, "trap"))
	dir := place(t, path)
	var s Scratch
	for _, name := range []string{"file", "link", "to link"} {
		fd, ok := s.OpenEntry(dir, name)
		if !ok {
			t.Errorf("%q was not opened", name)
			continue
		}
		b := make([]byte, 10)
		if n, err := syscall.Read(fd, b); string(b[:max(n, 0)]) != "content" {
			t.Errorf("%q: %q, %v", name, b, err)
		}
		if _, ok := s.OpenEntry(fd, name); ok {
			t.Error("a file was taken for the directory")
		}
		syscall.Close(fd)
	}
	others := []string{"dir", "trap", "none", "to trap", "to dir", "to none", "to proc", "round", "long",
		"", ".", "..", "./file", "dir/../file", "file\x00", strings.Repeat("x", pathMax)}
	if !opensRegular() {
		others = append(others, "by dir") // which the kernel may follow: it opens regular files alone
	}
	if os.Geteuid() == 0 {
		// Another file of the same name, which may be one that the kernel makes up.
		if err := os.WriteFile(filepath.Join(path, "mounted"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		bind(t, "/proc/version", filepath.Join(path, "mounted"))
		others = append(others, "mounted")
		dir = place(t, path) // of the thread's own mount namespace
	}
	for _, name := range others {
		if _, ok := s.OpenEntry(dir, name); ok {
			t.Errorf("%.20q was opened", name)
		}
	}
}

// place opens a place for as long as the test takes.
func place(t *testing.T, name string) int {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// TestOpenEntryOfOthers has directories that others can change. One of them becomes such a directory while it is
// open.
func TestOpenEntryOfOthers(t *testing.T) {
	const nobody = 65534
	path := filepath.Join(t.TempDir(), "dir")
	if err := errors.Join(os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(path, "file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	dir := place(t, path)
	var s Scratch
	opens := func() bool {
		fd, ok := s.OpenEntry(dir, "file")
		if ok {
			syscall.Close(fd)
		}
		return ok
	}
	for _, c := range []struct {
		mode  os.FileMode
		owner int
		want  bool
	}{
		{0o755, os.Geteuid(), true},
		{0o775, os.Geteuid(), false},
		{0o757, os.Geteuid(), false},
		{0o777 | os.ModeSticky, os.Geteuid(), false},
		{0o755, nobody, false},
	} {
		if c.owner != os.Geteuid() && os.Geteuid() != 0 {
			continue
		}
		if err := errors.Join(os.Chmod(path, c.mode), os.Chown(path, c.owner, -1)); err != nil {
			t.Fatal(err)
		}
		want := c.want || opensRegular()
		if got, says := opens(), OpensEntries(dir); got != want || says != want {
			t.Errorf("mode %v, owner %d: opened %v, and OpensEntries says %v; want %v", c.mode, c.owner, got, says, want)
		}
	}
}

// TestSwappedNames opens names of a directory that all can change, while one of them exchanges a file for a pipe
// and for a link to another one, again and again. The pipes see whether they are opened.
func TestSwappedNames(t *testing.T) {
	path := t.TempDir()
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	pipe, link, file, name := filepath.Join(path, "pipe"), filepath.Join(path, "link"), filepath.Join(path, "file"), filepath.Join(path, "name")
	testenv.Trap(t, pipe)
	linked := testenv.Trap(t, filepath.Join(t.TempDir(), "pipe"))
	if err := errors.Join(os.WriteFile(name, nil, 0o600), os.WriteFile(file, nil, 0o600), os.Symlink(linked, link)); err != nil {
		t.Fatal(err)
	}
	stop := swap(t, name, pipe, file, link)
	defer stop()
	dir := place(t, path)
	var s Scratch
	opened, refused := 0, 0
	rounds := 20_000
	if testenv.Emulated() {
		rounds = 2_000
	}
	for range rounds {
		if fd, ok := s.OpenEntry(dir, "name"); ok && opensRegular() {
			syscall.Close(fd)
		} else if ok {
			t.Fatal("an entry of a directory that others can change was opened")
		}
		fd, err := s.Open(name, 0)
		switch {
		case err == nil:
			opened++
			syscall.Close(fd)
		case errors.Is(err, ErrOther):
			refused++
		default:
			t.Fatal(err)
		}
	}
	if opened == 0 || refused == 0 {
		t.Logf("nothing was exchanged at the right time: %d opened, %d refused", opened, refused)
	}
}

// swap exchanges a name with each of some others in turn until it is stopped.
func swap(t *testing.T, name string, others ...string) (stop func()) {
	t.Helper()
	if err := exchange(name, name); err != nil {
		testenv.Need(t, false, "a file system that exchanges names (RENAME_EXCHANGE): "+err.Error())
	}
	end, done := make(chan struct{}), make(chan error)
	go func() {
		for {
			for _, other := range others {
				select {
				case <-end:
					done <- nil
					return
				default:
				}
				if err := exchange(name, other); err != nil {
					<-end
					done <- err
					return
				}
			}
		}
	}()
	return func() {
		close(end)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}

// TestReopenIsOfThePlace has something else take the name of a place before it is opened: the file of the place is
// opened, by O_EMPTYPATH where the kernel has it, and through /proc.
func TestReopenIsOfThePlace(t *testing.T) {
	defer lacksEmptyPath.Store(false)
	for _, isLacking := range []bool{false, true} {
		dir := t.TempDir()
		name := filepath.Join(dir, "file")
		if err := os.WriteFile(name, []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
		at := place(t, name)
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		testenv.Trap(t, name)
		lacksEmptyPath.Store(isLacking)
		f, err := Reopen(at, name)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(f); err != nil || string(b) != "content" {
			t.Errorf("%q, %v", b, err)
		}
		if f, err := Reopen(place(t, name), name); !errors.Is(err, ErrOther) {
			t.Errorf("the pipe was opened: %v, %v", f, err)
		}
		f.Close()
	}
}

// TestOnlyRegularFiles has the kernel open names on the mount of the root directory: regular files alone, and before
// Linux 7.2 nothing.
func TestOnlyRegularFiles(t *testing.T) {
	dir := onRoot(t)
	file, pipe, link, dead := filepath.Join(dir, "file"), filepath.Join(dir, "pipe"), filepath.Join(dir, "link"), filepath.Join(dir, "dead")
	testenv.Trap(t, pipe)
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink("file", link), os.Symlink("pipe", dead)); err != nil {
		t.Fatal(err)
	}
	var s Scratch
	opens := func(name string, flags int) bool {
		fd, ok := s.openRegular(name, flags)
		if ok {
			syscall.Close(fd)
		}
		return ok
	}
	if file, link := opens(file, 0), opens(link, 0); file != opensRegular() || link != opensRegular() {
		t.Errorf("the kernel knows the flag: %v; opened: a file %v, a link to it %v", opensRegular(), file, link)
	}
	if opens(link, syscall.O_NOFOLLOW) {
		t.Error("a link was followed")
	}
	others := []string{dir, pipe, dead, "/dev/null", "/proc/version", "/proc/self/exe", "file", "", "/", file + "\x00"}
	if os.Geteuid() == 0 {
		others = append(others, testenv.Terminal(t))
	}
	for _, name := range others {
		if opens(name, 0) {
			t.Errorf("%q was opened", name)
		}
	}
	rounds := 20_000
	if testenv.Emulated() {
		rounds = 2_000
	}
	defer swap(t, file, pipe, dead)()
	for range rounds {
		opens(file, 0)
	}
}

// onRoot makes a directory on the mount of the root directory.
func onRoot(t *testing.T) string {
	for _, top := range []string{os.TempDir(), "/var/tmp", "/"} {
		place, err := openat2(atFDCWD, unsafe.StringData(top+"\x00"), OPath, noMounts)
		if err != nil {
			continue
		}
		syscall.Close(place)
		if dir, err := os.MkdirTemp(top, "regular"); err == nil {
			t.Cleanup(func() { os.RemoveAll(dir) })
			return dir
		}
	}
	t.Skip("no directory on the mount of the root directory")
	return ""
}

// BenchmarkOpen compares the door with opening the name at once.
func BenchmarkOpen(b *testing.B) {
	name, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	var s Scratch
	b.Run("door", func(b *testing.B) {
		for b.Loop() {
			fd, err := s.Open(name, 0)
			if err != nil {
				b.Fatal(err)
			}
			syscall.Close(fd)
		}
	})
	b.Run("entry", func(b *testing.B) {
		dir, err := unix.Open(filepath.Dir(name), unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			b.Fatal(err)
		}
		defer unix.Close(dir)
		if err := unix.Fchmodat(dir, ".", 0o755, 0); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			fd, ok := s.OpenEntry(dir, filepath.Base(name))
			if !ok {
				b.Fatal("not opened")
			}
			syscall.Close(fd)
		}
	})
	b.Run("at once", func(b *testing.B) {
		for b.Loop() {
			fd, err := s.openat(name, readFlags)
			if err != nil {
				b.Fatal(err)
			}
			syscall.Close(fd)
		}
	})
}
