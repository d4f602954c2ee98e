// Package proctest builds programs and runs them, for tests of what looks at processes.
package proctest

import (
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"hallmark/buildid"
	"hallmark/internal/testenv"
)

// sources are the programs that BuildC and BuildGo build.
//
//go:embed testdata/busy.c testdata/busy.go
var sources embed.FS

// BuildGo builds a program in Go that spends its time in the functions of testdata/busy.go, and
// returns the path of the program.
func BuildGo(t testing.TB, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "busy-go")
	compile(t, "go", out, "busy.go", append(append([]string{"build"}, flags...), source(t, "busy.go"))...)
	return out
}

// BuildC builds a program in C that spends its time in the functions of testdata/busy.c, and returns
// the path of the program.
func BuildC(t testing.TB, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "busy-c")
	compile(t, "gcc", out, "busy.c", append([]string{"-O1", "-fno-omit-frame-pointer", source(t, "busy.c")}, flags...)...)
	return out
}

// source writes one of the embedded programs to a file of the test.
func source(t testing.TB, name string) string {
	t.Helper()
	b, err := sources.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// compiled has what compilers made, by their arguments: many tests want the same.
var compiled sync.Map

// Compile has a compiler make a file, or writes what it made from the same arguments before.
// It is another file each time.
func Compile(t testing.TB, compiler, out string, args ...string) {
	t.Helper()
	compile(t, compiler, out, "", args...)
}

// compile is Compile for a source that is embedded under a name, "" for none: its path in args is
// another one each time.
func compile(t testing.TB, compiler, out, embedded string, args ...string) {
	t.Helper()
	words := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return embedded != "" && filepath.Base(arg) == embedded })
	key := fmt.Sprint(compiler, os.Getenv("GOARCH"), embedded, words)
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
	if msg, err := exec.Command(testenv.Tool(t, compiler), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compiler, err, msg)
	}
	made, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	compiled.Store(key, made)
}

// FileID is the identity of a file as readelf tells it.
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

// OwnID is the identity of a file without a GNU note, for which readelf has none.
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

// AwaitProgram waits until a process has executed its program, and its libraries are there.
func AwaitProgram(t *testing.T, pid int, path string) {
	t.Helper()
	testenv.Await(t, path, func() bool {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(maps), "/libc.so.6\n")
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
