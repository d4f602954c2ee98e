package capture

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/testenv"
	"hallmark/profile"
)

// run is a process that ran while everything was recorded, and the identity of the
// program that it was.
type run struct {
	name string
	pid  int
	want buildid.ID
}

// torture is a case: it starts programs and waits for them.
type torture struct {
	t    *testing.T
	runs []run
}

// exec runs a program whose identity is known.
func (x *torture) exec(name string, want buildid.ID, args ...string) {
	cmd := exec.Command(args[0], args[1:]...)
	if err := cmd.Run(); err != nil {
		x.t.Errorf("%s: %v", name, err)
		return
	}
	x.runs = append(x.runs, run{name, cmd.Process.Pid, want})
}

// brief is how long most programs run: milliseconds, for busy.c.
const brief = "60"

// TestNeverWrong records everything while files are treated in every way that may
// confuse who remembers them, and wants no frame of a program under an identity
// that it never had.
func TestNeverWrong(t *testing.T) { eachBackend(t, neverWrong) }

func neverWrong(t *testing.T, backend Backend) {
	testenv.Root(t)
	x := &torture{t: t}
	one, two := buildC(t), buildC(t, "-Wl,--build-id=md5") // 20 and 16 bytes
	go386 := build386(t)
	s := startSession(t, Options{Backend: backend, SystemWide: true, Frequency: 1999})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	x.overwritten(one, two)
	x.renamed(one, two)
	x.deleted(one)
	x.onTmpfs(one, two)
	x.inMemfd(one)
	x.inMountNamespace(two)
	x.onOverlay(one)
	x.inodeReuse(one, two)
	x.exec("32-bit", fileID(t, go386), go386, brief+"ms")
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r := s.Finish()
	x.check(r.Profile)
	if n := s.Stats().Disagreed; n > 0 {
		t.Errorf("the kernel side read %d identities that the files did not have", n)
	}
}

// copyTo writes a program's bytes into a file in place, keeping its inode, and
// makes both of one size.
func copyTo(t *testing.T, dst, src string) {
	t.Helper()
	in, err := os.ReadFile(src)
	if err != nil {
		t.Fatal(err)
	}
	const size = 1 << 16
	if len(in) > size {
		t.Fatalf("%s has %d bytes", src, len(in))
	}
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if _, err := out.Write(append(in, make([]byte, size-len(in))...)); err != nil {
		t.Fatal(err)
	}
}

func (x *torture) overwritten(one, two string) {
	file := filepath.Join(x.t.TempDir(), "overwritten")
	for i := range 6 {
		src := []string{one, two}[i%2]
		copyTo(x.t, file, src)
		x.exec("overwritten in place", fileID(x.t, src), file, brief)
	}
}

func (x *torture) renamed(one, two string) {
	dir := x.t.TempDir()
	file := filepath.Join(dir, "replaced")
	for i := range 4 {
		src := []string{one, two}[i%2]
		copyTo(x.t, filepath.Join(dir, "new"), src)
		if err := os.Rename(filepath.Join(dir, "new"), file); err != nil {
			x.t.Fatal(err)
		}
		x.exec("replaced by rename", fileID(x.t, src), file, brief)
	}
}

func (x *torture) deleted(one string) {
	file := filepath.Join(x.t.TempDir(), "deleted")
	copyTo(x.t, file, one)
	cmd := exec.Command(file, "200")
	if err := cmd.Start(); err != nil {
		x.t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		x.t.Fatal(err)
	}
	_ = cmd.Wait()
	x.runs = append(x.runs, run{"deleted", cmd.Process.Pid, fileID(x.t, one)})
}

func (x *torture) onTmpfs(one, two string) {
	file := filepath.Join("/dev/shm", fmt.Sprintf("hallmark-test-%d", os.Getpid()))
	defer os.Remove(file)
	for i := range 4 {
		src := []string{one, two}[i%2]
		copyTo(x.t, file, src)
		x.exec("on tmpfs", fileID(x.t, src), file, brief)
	}
}

func (x *torture) inMemfd(one string) {
	fd, err := unix.MemfdCreate("program", unix.MFD_CLOEXEC)
	if err != nil {
		x.t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "program")
	defer file.Close()
	src, err := os.Open(one)
	if err != nil {
		x.t.Fatal(err)
	}
	defer src.Close()
	if _, err := io.Copy(file, src); err != nil {
		x.t.Fatal(err)
	}
	x.exec("memfd", fileID(x.t, one), fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), brief)
}

// inMountNamespace runs a program from a file system that only it can see.
func (x *torture) inMountNamespace(two string) {
	unshare := testenv.Tool(x.t, "unshare")
	script := `mount -t tmpfs none /mnt && cp "$0" /mnt/hidden && exec /mnt/hidden "$1"`
	x.exec("in a mount namespace", fileID(x.t, two), unshare, "-m", "sh", "-c", script, two, "150")
}

// onOverlay runs a program from an overlay, whose mappings tell another device and
// inode than the file has.
func (x *torture) onOverlay(one string) {
	systems, err := os.ReadFile("/proc/filesystems")
	if err != nil || !strings.Contains(string(systems), "\toverlay\n") {
		x.t.Log("NOT CHECKED: this kernel has no overlay file system")
		return
	}
	unshare := testenv.Tool(x.t, "unshare")
	script := `mount -t tmpfs none /mnt && mkdir /mnt/low /mnt/up /mnt/work /mnt/all && cp "$0" /mnt/low/program &&
		mount -t overlay -o lowerdir=/mnt/low,upperdir=/mnt/up,workdir=/mnt/work none /mnt/all && exec /mnt/all/program "$1"`
	x.exec("on an overlay", fileID(x.t, one), unshare, "-m", "sh", "-c", script, one, "150")
}

// inodeReuse makes and removes files of one name, whose inodes are used again.
func (x *torture) inodeReuse(one, two string) {
	dir := x.t.TempDir()
	for i := range 20 {
		src := []string{one, two}[i%2]
		file := filepath.Join(dir, "again")
		copyTo(x.t, file, src)
		x.exec("inode used again", fileID(x.t, src), file, "10")
		if err := os.Remove(file); err != nil {
			x.t.Fatal(err)
		}
	}
}

func build386(t *testing.T) string {
	t.Setenv("GOARCH", "386")
	return buildGo(t)
}

// check compares each frame of the runs in programs with the identities.
func (x *torture) check(p *pprof.Profile) {
	seen := map[int]*tallied{}
	for _, r := range x.runs {
		seen[r.pid] = &tallied{run: r}
	}
	for _, s := range p.Sample {
		_, pid := profile.Process(s)
		if n := seen[int(pid)]; n != nil {
			n.count(s)
		}
	}
	byName := map[string]*tallied{}
	for _, r := range x.runs {
		n := seen[r.pid]
		if n.wrong != "" {
			x.t.Errorf("%s: a frame is in %s, the program is %v", r.name, n.wrong, r.want)
		}
		sum := byName[r.name]
		if sum == nil {
			sum = &tallied{run: r}
			byName[r.name] = sum
		}
		sum.samples += n.samples
		sum.right += n.right
	}
	for name, n := range byName {
		x.t.Logf("%-24s %d of %d samples identified", name, n.right, n.samples)
		if n.right == 0 || n.right*10 < n.samples*9 {
			x.t.Errorf("%s: %d of %d samples are identified", name, n.right, n.samples)
		}
	}
}

// tallied is what was seen of a run.
type tallied struct {
	run
	samples, right int64
	wrong          string
}

// count looks at the innermost frame of user code, if it is in a program of the
// test: all other files are not for this test to judge.
func (n *tallied) count(s *pprof.Sample) {
	for _, l := range s.Location {
		if !ofTheTest(l.Mapping.File) {
			continue
		}
		n.samples += s.Value[0]
		id, _ := profile.Identity(l.Mapping)
		switch {
		case id == n.want:
			n.right += s.Value[0]
		case !id.IsZero():
			n.wrong = l.Mapping.File + " " + id.String()
		}
		return
	}
}

// ofTheTest reports whether a mapping can only be that of a program of the test.
// Before it execs, a child runs the test itself.
func ofTheTest(file string) bool {
	for _, other := range []string{"[", "/usr", "/lib", self} {
		if strings.HasPrefix(file, other) {
			return strings.HasPrefix(file, "[file-")
		}
	}
	return true
}

var self, _ = os.Executable()

// TestManyMappings samples a program whose threads map and unmap files all the
// time, at a high frequency.
func TestManyMappings(t *testing.T) { eachBackend(t, manyMappings) }

func manyMappings(t *testing.T, backend Backend) {
	out := filepath.Join(t.TempDir(), "mapper")
	args := []string{"build", "-o", out, "testdata/mapper.go"}
	if msg, err := exec.Command(testenv.Tool(t, "go"), args...).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, msg)
	}
	p, _, stats := recordCommand(t, Options{Backend: backend, Frequency: 4999}, out, "700ms", out)
	want := fileID(t, out)
	for _, m := range p.Mapping {
		if id, ok := profile.Identity(m); ok && m.File == out && id != want {
			t.Errorf("%s has identity %v, want %v", m.File, id, want)
		}
	}
	if got := samplesIn(p, "main.work")[want]; got*10 < int64(stats.Samples)*8 {
		t.Errorf("%d of %d samples in main.work", got, stats.Samples)
	}
	t.Log(strconv.FormatUint(stats.Samples, 10), "samples,", stats.Lost, "lost")
}
