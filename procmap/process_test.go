package procmap

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"testing"

	"hallmark/addr"
	"hallmark/internal/testenv"
)

func TestOpenErrors(t *testing.T) {
	if _, err := Open(math.MaxInt32); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("no such process: %v", err)
	}
	zombie := exec.Command("true")
	if err := zombie.Start(); err != nil {
		t.Fatal(err)
	}
	defer zombie.Wait()
	stat := "/proc/" + itoa(zombie.Process.Pid) + "/stat"
	for state(t, stat) != "Z" {
	}
	for _, m := range []Method{Auto, Query, Text} {
		_, err := OpenOptions(zombie.Process.Pid, Options{Method: m})
		var e *Error
		if !errors.Is(err, ErrNoMemory) || !errors.As(err, &e) || e.PID != zombie.Process.Pid {
			t.Errorf("zombie, %v: %v", m, err)
		}
	}
}

// state returns the state of a process, a letter.
func state(t *testing.T, stat string) string {
	text, err := os.ReadFile(stat)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return rest[:1]
}

// TestGone asks about processes that exited or executed another program after they
// were opened. No way of asking may answer for what came after them.
func TestGone(t *testing.T) {
	exit := func(c *child) { c.stop() }
	sleep := testenv.Tool(t, "sleep")
	run := func(c *child) {
		c.stdin.Close()
		for exe, err := "", error(nil); exe != mustResolve(t, sleep); {
			exe, err = os.Readlink("/proc/" + itoa(c.pid) + "/exe")
			// While a thread that is not the first one executes, the process is for a
			// moment the first one, which has no memory any more (fs/exec.c, de_thread).
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
		// It gives the old memory back after it is seen to have the new one, and sleeps then.
		for state(t, "/proc/"+itoa(c.pid)+"/stat") != "S" {
		}
	}
	for name, tt := range map[string]struct {
		cmd *exec.Cmd
		end func(*child)
	}{
		"exit": {play("wait"), exit},
		"exec": {play("exec", sleep, "60"), run},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, tt.cmd)
			defer c.cmd.Process.Kill()
			var handles []*Process
			for _, m := range methods(t) {
				handles = append(handles, open(t, c.pid, m))
			}
			v := mappingOf(t, handles[0], func(v VMA) bool { return v.Kind() == KindFile })
			tt.end(c)
			for _, p := range handles {
				for question, err := range askEverything(p, v) {
					if !errors.Is(err, os.ErrProcessDone) {
						t.Errorf("%v, %s: %v, want process done", p.Method(), question, err)
					}
				}
			}
		})
	}
}

func mustResolve(t testing.TB, name string) string {
	path, err := filepath.EvalSymlinks(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// askEverything returns the errors of everything that can be asked.
func askEverything(p *Process, v VMA) map[string]error {
	errs := map[string]error{}
	_, _, errs["Find"] = p.Find(v.Start)
	_, _, errs["Find in no mapping"] = p.Find(1)
	_, _, errs["Find at the end"] = p.Find(^addr.Abs(0))
	_, _, errs["Next"] = p.Next(v.Start)
	_, errs["All"] = p.All()
	_, errs["Executable"] = p.Executable()
	_, errs["Translate"] = p.Translate([]addr.Abs{v.Start})
	f, err := p.OpenFile(v)
	if f != nil {
		f.Close()
	}
	errs["OpenFile"] = err
	_, errs["Memory"] = p.Memory()
	_, errs["Identity"] = p.Identity(v)
	_, errs["Identity of [vdso]"] = p.Identity(VMA{Start: v.Start, End: v.End, Perm: Exec, Name: "[vdso]"})
	v.Name, v.Inode = "/no/such/file (deleted)", v.Inode+1
	_, errs["OpenFile of no file"] = p.OpenFile(v)
	return errs
}

func TestClosed(t *testing.T) {
	for _, m := range methods(t) {
		p, err := OpenOptions(os.Getpid(), Options{Method: m})
		if err != nil {
			t.Fatal(err)
		}
		v := mappingOf(t, p, func(v VMA) bool { return v.Kind() == KindFile })
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		for question, err := range askEverything(p, v) {
			if !errors.Is(err, os.ErrClosed) {
				t.Errorf("%v, %s: %v, want closed", m, question, err)
			}
		}
	}
}

// TestMethods checks that a demanded way is the one taken, and that both give equal
// VMAs.
func TestMethods(t *testing.T) {
	c := start(t, play("many"))
	var all, code [][]VMA
	for _, m := range methods(t) {
		p := open(t, c.pid, m)
		if p.Method() != m {
			t.Errorf("asked for %v, got %v", m, p.Method())
		}
		a, err := p.All()
		if err != nil {
			t.Fatal(err)
		}
		x, err := p.Executable()
		if err != nil {
			t.Fatal(err)
		}
		all, code = append(all, a), append(code, x)
	}
	want := slices.DeleteFunc(slices.Clone(all[0]), func(v VMA) bool {
		return v.Perm&Exec == 0 || !v.FileBacked()
	})
	for i := range all {
		if !slices.Equal(all[i], all[0]) || !slices.Equal(code[i], want) || len(want) < 500 {
			t.Errorf("method %d: %d VMAs and %d executable ones, want %d and %d",
				i, len(all[i]), len(code[i]), len(all[0]), len(want))
		}
	}
}

// TestWithoutQuery plays a kernel that has no PROCMAP_QUERY.
func TestWithoutQuery(t *testing.T) {
	defer noQuery.Store(noQuery.Swap(true))
	if p := open(t, os.Getpid(), Auto); p.Method() != Text {
		t.Errorf("method %v, want text", p.Method())
	}
	if _, err := OpenOptions(os.Getpid(), Options{Method: Query}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("demanded queries: %v, want unsupported", err)
	}
}

// TestThirtyTwoBits looks at a process of 32 bits: it has no vsyscall page, and
// nothing above 4 GiB.
func TestThirtyTwoBits(t *testing.T) {
	gate, err := machineGate()
	if err != nil {
		t.Fatal(err)
	}
	testenv.Need(t, gate != VMA{}, "a kernel that maps [vsyscall]")
	program := build32(t) // also here, for the machines in QEMU
	testenv.ThirtyTwoBits(t)
	c := start(t, exec.Command(program))
	if c.line != "386" {
		t.Fatalf("the child says that it runs on %q", c.line)
	}
	for _, m := range methods(t) {
		p := open(t, c.pid, m)
		if v, ok, err := p.Find(gate.Start); ok || err != nil {
			t.Errorf("%v: Find(%v) = %v, %v, %v", m, gate.Start, v, ok, err)
		}
		list, err := p.All()
		if err != nil || len(list) == 0 || list[len(list)-1].End > top32 {
			t.Errorf("%v: %v\n%v", m, err, list)
		}
		if o := compareProcess(t, c.pid, m); o != equal {
			t.Errorf("%v: not equal to the kernel's text", m)
		}
		wide := open(t, os.Getpid(), m)
		if v, ok, err := wide.Find(gate.Start); !ok || v != gate || err != nil {
			t.Errorf("%v, 64 bits: Find(%v) = %v, %v, %v", m, gate.Start, v, ok, err)
		}
	}
}

// build32 compiles a program for 386 that says so and waits.
func build32(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	err := os.WriteFile(source, []byte(`package main

import (
	"os"
	"runtime"
)

func main() {
	os.Stdout.WriteString(runtime.GOARCH + "\n")
	os.Stdin.Read(make([]byte, 1))
}
`), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(testenv.Tool(t, "go"), "build", "-o", filepath.Join(dir, "main"), source)
	cmd.Env = append(os.Environ(), "GOARCH=386", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, "main")
}

func itoa(pid int) string { return strconv.Itoa(pid) }

// TestExecutableWhile stops a list, and wants the whole one as Executable returns it.
func TestExecutableWhile(t *testing.T) {
	for _, m := range []Method{Query, Text} {
		p, err := OpenOptions(os.Getpid(), Options{Method: m})
		if errors.Is(err, errors.ErrUnsupported) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		want, err := p.Executable()
		if err != nil || len(want) == 0 {
			t.Fatalf("%v: %v, %v", m, want, err)
		}
		var seen []VMA
		got, err := p.ExecutableWhile(func(v VMA) bool { seen = append(seen, v); return true })
		if err != nil || !slices.Equal(got, want) || !slices.Equal(seen, want) {
			t.Errorf("%v: %v, %v, after %v, want %v", m, got, err, seen, want)
		}
		calls := 0
		if got, err := p.ExecutableWhile(func(VMA) bool { calls++; return false }); !errors.Is(err, ErrStopped) || got != nil || calls != 1 {
			t.Errorf("%v, stopped: %v, %v, after %d calls", m, got, err, calls)
		}
	}
}
