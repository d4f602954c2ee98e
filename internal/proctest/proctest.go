// Package proctest builds programs and runs them, for tests of what looks at processes.
package proctest

import (
	"embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/contentcache"
	"hallmark/internal/testenv"
)

// sources are the programs that BuildC, BuildGo, BuildThreads and BuildRewrite build.
//
//go:embed testdata/busy.c testdata/busy.go testdata/rewrite.c testdata/threads.c
var sources embed.FS

// SharedID is the build ID that two builds have, of [TwoBuilds] for instance.
const SharedID = "0123456789abcdef0123456789abcdef01234567"

// TwoBuilds builds two programs of one build ID. They spend their time in burn, and in
// burn_other.
func TwoBuilds(t testing.TB, id string) (one, two string) {
	t.Helper()
	return BuildC(t, "-Wl,--build-id=0x"+id), BuildC(t, "-Wl,--build-id=0x"+id, "-DOTHER")
}

// BuildGo builds a program in Go that spends its time in the functions of testdata/busy.go, and
// returns the path of the program.
func BuildGo(t testing.TB, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "busy-go")
	compile(t, "go", out, source(t, "busy.go"), append(append([]string{"build"}, flags...), "busy.go")...)
	return out
}

// BuildC builds a program in C that spends its time in the functions of testdata/busy.c, and returns
// the path of the program.
func BuildC(t testing.TB, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "busy-c")
	compile(t, "gcc", out, source(t, "busy.c"), append([]string{"-O1", "-fno-omit-frame-pointer", "busy.c"}, flags...)...)
	return out
}

// UniqueID is a flag of BuildC for a build ID that no other program has. The programs of other tests
// have the same one where they are built alike, and some forge it.
func UniqueID() string {
	return fmt.Sprintf("-Wl,--build-id=0x%016x%08x", time.Now().UnixNano(), os.Getpid())
}

// BuildThreads builds testdata/threads.c, a program whose first thread ends, and returns its path.
func BuildThreads(t testing.TB) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "threads")
	compile(t, "gcc", out, source(t, "threads.c"), "-O1", "-fno-omit-frame-pointer", "-pthread", "threads.c")
	return out
}

// BuildRewrite builds testdata/rewrite.c, a program that rewrites pages of its code, and returns its
// path. The functions are in the program itself, or in a library: file is the one of both.
func BuildRewrite(t testing.TB, library bool) (program, file string) {
	t.Helper()
	dir := t.TempDir()
	program = filepath.Join(dir, "rewrite")
	flags := []string{"-O1", "-fno-omit-frame-pointer", "-Wl,--build-id"}
	if !library {
		compile(t, "gcc", program, source(t, "rewrite.c"), append(flags, "-pthread", "rewrite.c")...)
		return program, program
	}
	file = filepath.Join(dir, "librewrite.so")
	compile(t, "gcc", file, source(t, "rewrite.c"), append(flags, "-shared", "-fPIC", "-Wl,-Bsymbolic", "-Dmain=body", "rewrite.c")...)
	stub := filepath.Join(dir, "main.c")
	text := "int body(int, char **);\nint main(int n, char **v) { return body(n, v); }\n"
	if err := os.WriteFile(stub, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	Compile(t, "gcc", program, append(flags, stub, file, "-Wl,-rpath,"+dir)...)
	return program, file
}

// source writes one of the embedded programs to a file of the test, and returns its directory.
func source(t testing.TB, name string) (dir string) {
	t.Helper()
	b, err := sources.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// compiled has what compilers made, by their arguments: many tests want the same.
var compiled sync.Map

// Compile has a compiler make a file, or writes what it made from the same arguments before.
// It is another file each time.
func Compile(t testing.TB, compiler, out string, args ...string) {
	t.Helper()
	compile(t, compiler, out, "", args...)
}

// compile is Compile in a directory, "" for the current one. It keeps a result by the arguments
// alone, so these name no directory of one test.
func compile(t testing.TB, compiler, out, dir string, args ...string) {
	t.Helper()
	key := fmt.Sprint(compiler, os.Getenv("GOARCH"), args)
	if made, ok := compiled.Load(key); ok {
		if err := os.WriteFile(out, made.([]byte), 0o755); err != nil {
			t.Fatal(err)
		}
		return
	}
	// The file stands behind the verb of go, and before all arguments of gcc.
	at := 0
	if compiler == "go" {
		at = 1
	}
	args = slices.Insert(slices.Clone(args), at, "-o", out)
	cmd := exec.Command(testenv.Tool(t, compiler), args...)
	cmd.Dir = dir
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compiler, err, msg)
	}
	made, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	compiled.Store(key, made)
}

// FileID returns the GNU build ID of a file, as readelf prints it.
func FileID(t testing.TB, file string) buildid.ID {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "readelf"), "-n", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(out), "Build ID: ")
	if !ok {
		t.Fatalf("readelf finds no build ID in %s", file)
	}
	id, err := buildid.Parse(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// OwnID returns the identity of a file without a GNU note, for which readelf prints none.
func OwnID(t testing.TB, file string) buildid.ID {
	t.Helper()
	info, err := buildid.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if info.ID.Kind() == buildid.GNU {
		t.Fatalf("%s has a GNU build ID", file)
	}
	return info.ID
}

// Start starts a program that ends with the test.
func Start(t testing.TB, args ...string) (pid int) {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// RunCopy starts a copy of a program, and returns where it is and its process.
func RunCopy(t *testing.T, program string, args ...string) (path string, pid int) {
	t.Helper()
	path = filepath.Join(t.TempDir(), filepath.Base(program))
	CopyTo(t, program, path)
	return path, Start(t, append([]string{path}, args...)...)
}

// CopyTo puts a copy of a file in the place of what is at a path.
func CopyTo(t *testing.T, from, to string) {
	t.Helper()
	if msg, err := exec.Command("cp", "--remove-destination", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v\n%s", err, msg)
	}
}

// AwaitProgram waits until a process has executed its program, at a path, and has the code of the C
// library mapped.
func AwaitProgram(t *testing.T, pid int, path string) {
	t.Helper()
	testenv.Await(t, path, func() bool {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(maps)) {
			if words := strings.Fields(line); len(words) > 5 && words[1] == "r-xp" && filepath.Base(words[5]) == "libc.so.6" {
				return true
			}
		}
		return false
	})
}

// AwaitBurning waits until a program of BuildC has had 50 ms in user mode: then it is in burn, and has
// all pages that it needs there.
func AwaitBurning(t *testing.T, pid int) {
	t.Helper()
	testenv.Await(t, fmt.Sprintf("process %d in burn", pid), func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(stat), ") ") // from the state on, which is field 3: proc_pid_stat(5)
		ticks, err := strconv.Atoi(strings.Fields(after)[14-3])
		if err != nil {
			t.Fatal(err)
		}
		return ticks >= 5
	})
}

// FirstEnded reports whether the first thread of a process is a zombie, which has
// no mappings.
func FirstEnded(pid int) bool {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	return err == nil && len(maps) == 0
}

// AwaitMappings waits until processes map nothing more.
func AwaitMappings(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		for before := ""; ; time.Sleep(20 * time.Millisecond) {
			now, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "maps"))
			if err != nil {
				t.Fatal(err)
			}
			if len(now) > 0 && string(now) == before {
				break
			}
			before = string(now)
		}
	}
}

// MapSparse maps a file of this size, which has no blocks, for execution.
func MapSparse(t testing.TB, name string, size int64) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
}

// FileContent returns the content of a file.
func FileContent(t testing.TB, path string) buildid.Content {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := contentcache.OfMapped(t.Context(), f)
	if err != nil || c.IsZero() {
		t.Fatalf("the content of %s: %v, %v", path, c, err)
	}
	return c
}

// LibC returns a file with call frame information that is on every machine: what this
// machine's programs are interpreted by.
func LibC(t testing.TB) string {
	t.Helper()
	for _, pattern := range []string{"/lib/*/libc.so.6", "/lib64/libc.so.6", "/lib/ld-*.so.*", "/lib/*/ld-*.so.*"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[0]
		}
	}
	t.Skip("no C library here")
	return ""
}

// silent is a file on a file system that does not answer until it is closed.
type silent struct{ closed chan struct{} }

// Silent returns a file that does not answer until it is closed.
func Silent() interface {
	io.ReaderAt
	io.Closer
} {
	return silent{make(chan struct{})}
}

func (s silent) ReadAt([]byte, int64) (int, error) {
	<-s.closed
	return 0, os.ErrClosed
}

func (s silent) Close() error {
	close(s.closed)
	return nil
}

// Stat returns what stat(2) does.
func Stat(t testing.TB, path string) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st
}
