package cli

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/fusetest"
	"hallmark/internal/regular"
	"hallmark/internal/testenv"
	"hallmark/internal/trust"
)

// TestNeighbours reads files of several directories in turn: identities and errors are those of buildid.ReadFile.
func TestNeighbours(t *testing.T) {
	top := t.TempDir()
	t.Chdir(top)
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"one", "two"} {
		if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "program"), self, 0o600),
			os.WriteFile(filepath.Join(dir, "text"), []byte(dir), 0o600), os.Symlink("text", filepath.Join(dir, "link"))); err != nil {
			t.Fatal(err)
		}
		testenv.Trap(t, filepath.Join(dir, "trap"))
	}
	if err := os.WriteFile("here", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	names := []string{
		"one/program", "one/text", "one/link", "one/trap", "one/none", "one/", "one/.", "one/..",
		"two/text", "one/text", "two/../one/text", "two/../one/link", "none/a", "none/b", "here", "here", ".", "..", "/", "/",
		"one//text", "one//text", top + "/two/text", top + "/two/program", "/proc/self/status", "/proc/self/stat", "/dev/null", "/dev/zero",
		"/proc/self/exe", "/proc/self/cwd/two/text", "/proc/self/cwd/two/program",
	}
	n := neighbours{dir: -1}
	defer n.close()
	wasOpen := 0
	for i, name := range names {
		next := ""
		if i+1 < len(names) {
			next = names[i+1]
		}
		want, wantErr := buildid.ReadFile(name)
		got, err := n.read(t.Context(), name, next)
		if n.dir >= 0 {
			wasOpen++
		}
		if got != want || text(err) != text(wantErr) {
			t.Errorf("%s: %v, %v; ReadFile returns %v, %v", name, got, err, want, wantErr)
		}
	}
	if wasOpen == 0 {
		t.Error("no directory was open")
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestSwappedNeighbours reads two names of a directory that all can change since its first file was read, while one of
// them exchanges a file for a pipe, again and again. The pipe sees whether it is opened.
func TestSwappedNeighbours(t *testing.T) {
	dir := t.TempDir()
	name, other, pipe := filepath.Join(dir, "name"), filepath.Join(dir, "other"), filepath.Join(dir, "pipe")
	testenv.Trap(t, pipe)
	if err := errors.Join(os.WriteFile(name, []byte("x"), 0o600), os.WriteFile(other, []byte("y"), 0o600), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	n := neighbours{dir: -1}
	defer n.close()
	if _, err := n.read(t.Context(), name, other); err != nil || n.dir < 0 {
		t.Fatalf("%v, directory %d", err, n.dir)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, name, unix.AT_FDCWD, pipe, unix.RENAME_EXCHANGE); err != nil {
				<-stop
				done <- err
				return
			}
		}
	}()
	for range 5_000 {
		_, err := n.read(t.Context(), name, other)
		if err != nil && !errors.Is(err, regular.ErrOther) && !errors.Is(err, buildid.ErrChanging) {
			t.Fatal(err)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		testenv.Need(t, false, "a file system that exchanges names (RENAME_EXCHANGE): "+err.Error())
	}
}

// TestFewDescriptors reads files of one directory where there are few descriptors. Two are enough to read each file by
// its name.
func TestFewDescriptors(t *testing.T) {
	dir := t.TempDir()
	name, other := filepath.Join(dir, "name"), filepath.Join(dir, "other")
	// A link that leads elsewhere is opened by its name, beside the directory.
	far := filepath.Join(dir, "far")
	if err := errors.Join(os.WriteFile(name, []byte("x"), 0o600), os.WriteFile(other, []byte("y"), 0o600),
		os.Symlink("../"+filepath.Base(dir)+"/name", far)); err != nil {
		t.Fatal(err)
	}
	want, err := buildid.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for free := 2; free <= 4; free++ {
		trust.ForgetMounts()
		n := neighbours{dir: -1}
		restore := leaveDescriptors(t, free)
		for _, name := range []string{name, far, name} {
			if got, err := n.read(t.Context(), name, other); err != nil || got != want {
				t.Errorf("%d descriptors: %s: %v, %v, want %v", free, name, got, err, want)
			}
		}
		n.close()
		restore()
	}
}

// leaveDescriptors lowers the limit of the process, until restore is called, so that it can open so many files.
func leaveDescriptors(t *testing.T, free int) (restore func()) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	var fds []int
	for range free + 1 {
		fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(fds[free]), Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	}
}

// TestSilentDirectory looks at a directory whose server does not answer: it is not used, and nobody waits.
func TestSilentDirectory(t *testing.T) {
	s := fusetest.Mount(t, fusetest.Options{})
	s.Silence()
	done := make(chan int)
	go func() { done <- openTrue(s.Dir + "/") }()
	select {
	case dir := <-done:
		if dir >= 0 {
			t.Error("it is open")
		}
	case <-time.After(testenv.Patience): // for nothing that takes time
		t.Error("somebody waits for the server")
		s.Close() // which ends all waiting
		<-done
	}
}
