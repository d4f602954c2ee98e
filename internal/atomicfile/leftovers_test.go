package atomicfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"hallmark/internal/testenv"
)

// ownMounts returns a directory in a mount namespace of the test's thread.
func ownMounts(t *testing.T) string {
	t.Helper()
	testenv.Root(t)
	dir := t.TempDir()
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
	if err == nil {
		err = errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// stages are where a process may be killed. It says so on standard output, and waits.
var stages = map[string]func(name string){
	"writing":           writeAndWait,
	"writing a name":    func(name string) { noUnnamed = true; writeAndWait(name) },
	"before the rename": linkAndWait,
}

func writeAndWait(name string) {
	err := Write(name, 0o666, func(w io.Writer) error {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			return err
		}
		wait()
		return nil
	})
	fmt.Println("written", err)
}

// linkAndWait is in the middle of publishing.
func linkAndWait(name string) {
	p, err := find(name)
	if err == nil {
		var f *temp
		if f, err = newTemp(p.dir, p.base, p.name, 0o600); err == nil && f.name == "" {
			err = f.linkTemp()
		}
	}
	if err != nil {
		panic(err)
	}
	wait()
}

func wait() {
	fmt.Println("waits")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && stages[os.Args[1]] != nil {
		stages[os.Args[1]](os.Args[2])
		return
	}
	os.Exit(m.Run())
}

// start starts a process that writes a file, and returns when it waits at a stage.
func start(t *testing.T, stage, name string) (kill func()) {
	t.Helper()
	c := exec.Command("/proc/self/exe", stage, name)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "waits\n" {
		t.Fatalf("%s: %q, error %v", stage, line, err)
	}
	return func() {
		_ = c.Process.Kill()
		_ = in.Close()
		_ = c.Wait()
	}
}

func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// TestNothingIsLeftOfAKilledProcess kills processes at each stage. The next one that writes the
// same file removes what is left, and nothing of a process that lives.
func TestNothingIsLeftOfAKilledProcess(t *testing.T) {
	for stage := range stages {
		t.Run(stage, func(t *testing.T) {
			dir := t.TempDir()
			name := filepath.Join(dir, "out")
			kill := start(t, stage, name)
			before := entries(t, dir)
			if err := Write(name, 0o666, text("of another")); err != nil {
				t.Fatal(err)
			}
			if after := slices.DeleteFunc(entries(t, dir), func(n string) bool { return n == "out" }); !slices.Equal(before, after) {
				t.Errorf("of a process that lives: %q became %q", before, after)
			}
			kill()
			if err := Write(name, 0o666, text("next")); err != nil {
				t.Fatal(err)
			}
			onlyEntry(t, dir, "out")
		})
	}
}

// TestSweep removes leftovers of all names.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		start(t, "before the rename", filepath.Join(dir, name))()
	}
	if n := len(entries(t, dir)); n != 2 {
		t.Fatalf("%d leftovers", n)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	Sweep(root)
	if left := entries(t, dir); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// TestOnlyOwnLeftoversAreRemoved has files that look like leftovers and are none.
func TestOnlyOwnLeftoversAreRemoved(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "outside")
	path := func(name string) string { return filepath.Join(dir, name) }
	looks := prefixOf("out") + strings.Repeat("0", 15)
	err := os.WriteFile(outside, nil, 0o600)
	for _, name := range []string{".out.20241123", ".outer" + mark + "0123", "out" + mark + "0123"} {
		err = errors.Join(err, os.WriteFile(path(name), nil, 0o600))
	}
	err = errors.Join(err, os.Symlink(outside, path(looks+"1")), syscall.Mkfifo(path(looks+"2"), 0o600), os.Mkdir(path(looks+"3"), 0o700), os.Link(outside, path(looks+"4")))
	if os.Geteuid() == 0 {
		err = errors.Join(err, os.WriteFile(path(looks+"5"), nil, 0o666), os.Chown(path(looks+"5"), nobody, nobody))
	}
	if err != nil {
		t.Fatal(err)
	}
	want := append(entries(t, dir), "out")
	if err := Write(path("out"), 0o666, text("x")); err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	if got := entries(t, dir); !slices.Equal(got, want) {
		t.Errorf("left: %q, want %q", got, want)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
}

// TestLongName writes a file whose name leaves no room for a longer one.
func TestLongName(t *testing.T) {
	dir := t.TempDir()
	base := strings.Repeat("n", 255)
	for range 2 {
		if err := Write(filepath.Join(dir, base), 0o666, text("x")); err != nil {
			t.Fatal(err)
		}
		onlyEntry(t, dir, base)
	}
}

// TestWithoutUnnamedFiles runs the other tests as on a file system where every file has a name.
func TestWithoutUnnamedFiles(t *testing.T) {
	noUnnamed = true
	defer func() { noUnnamed = false }()
	for name, test := range map[string]func(*testing.T){
		"creates and replaces": TestWriteCreatesAndReplaces, "nothing before the end": TestNothingIsSeenBeforeTheEnd,
		"failure": TestFailureLeavesTheOldFile, "umask": TestModeIsThatOfTheUmask, "old mode": TestOldModeStays,
		"links": TestLinksAreFollowed, "seeking": TestWriteSeeking, "long name": TestLongName, "missing directory": TestMissingDirectoryIsNamed,
	} {
		t.Run(name, test)
	}
}

// TestErrorsNameTheFile has the file that is written called by the name that it will have.
func TestErrorsNameTheFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "out")
	defer func(old bool) { noUnnamed = old }(noUnnamed)
	for _, noUnnamed = range []bool{false, true} {
		err := WriteSeeking(name, 0o666, func(w io.WriteSeeker) error {
			w.(*os.File).Close()
			_, err := w.Write([]byte("late"))
			return err
		})
		if at := new(os.PathError); !errors.As(err, &at) || at.Path != name {
			t.Errorf("without names %v: %v", noUnnamed, err)
		}
	}
}

// TestFileThatGetsNoName is copied to one that has a name, as where linking is forbidden.
func TestFileThatGetsNoName(t *testing.T) {
	dir := t.TempDir()
	p, err := find(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.dir.Close()
	f, err := newTemp(p.dir, p.base, p.name, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.f.WriteString("content"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.copy(), f.publish("out"), f.f.Close()); err != nil {
		t.Fatal(err)
	}
	if got := content(t, filepath.Join(dir, "out")); got != "content" {
		t.Errorf("%q", got)
	}
	onlyEntry(t, dir, "out")
}

func TestScratch(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	f, err := Scratch()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if left := entries(t, dir); len(left) != 0 {
		t.Errorf("it has a name: %q", left)
	}
}
