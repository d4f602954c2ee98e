//go:build amd64 || arm64

package unwind_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/addr"
	"hallmark/internal/testenv"
	"hallmark/procmap"
	"hallmark/unwind"
)

// TestLiveStacks stops programs and wants the frames that elfutils and gdb find in every
// thread, all of them.
func TestLiveStacks(t *testing.T) {
	if testenv.Brief() {
		return // shares nothing
	}
	testenv.Root(t) // for /proc/PID/mem and ptrace
	for _, build := range []struct{ name, compiler, options string }{
		{"gcc-O0", "gcc", "-O0"},
		{"gcc-O1", "gcc", "-O1 -fomit-frame-pointer"},
		{"gcc-O2", "gcc", "-O2 -fomit-frame-pointer"},
		{"gcc-O3-static", "gcc", "-O3 -fomit-frame-pointer -static"},
		{"gcc-Os-no-pie", "gcc", "-Os -no-pie"},
		{"gcc-O2-stubs", "gcc", "-O2 -fno-builtin -fcf-protection=full -Wl,-z,lazy"},
		{"clang-O0", "clang", "-O0"},
		{"clang-O2", "clang", "-O2 -fomit-frame-pointer"},
		{"clang-O3-fp", "clang", "-O3 -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer"},
	} {
		t.Run(build.name, func(t *testing.T) {
			compiler := build.compiler
			if compiler == "clang" {
				compiler = clang(t)
			}
			file := filepath.Join(t.TempDir(), "live")
			args := append(strings.Fields(build.options), "-pthread", "-o", file, "testdata/live.c")
			if msg, err := exec.Command(testenv.Tool(t, compiler), args...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, msg)
			}
			times := 1
			if testenv.Thorough() {
				times = 3
			}
			checkLive(t, exec.Command(file), times)
		})
	}
}

// clang returns the name that clang has here.
func clang(t *testing.T) string {
	names, _ := filepath.Glob("/usr/bin/clang-[0-9]*")
	testenv.Need(t, len(names) > 0, "clang")
	slices.Sort(names)
	return names[len(names)-1]
}

// checkLive starts a program and compares the stacks of its threads a few times.
func checkLive(t *testing.T, cmd *exec.Cmd, times int) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	time.Sleep(100 * time.Millisecond)
	pid, tables := cmd.Process.Pid, map[string]*unwind.Table{}
	compared, threads := 0, 0
	for range times {
		stop(t, pid)
		ours := liveStacks(t, pid, tables)
		elfutils := parseStacks(t, exec.Command(testenv.Tool(t, "eu-stack"), "-p", strconv.Itoa(pid)))
		gdb := exec.Command(testenv.Tool(t, "gdb"), "-batch", "-nx", "-iex", "set debuginfod enabled off",
			"-p", strconv.Itoa(pid), "-x", "testdata/stacks.py")
		witnesses := map[string]map[int][]addr.Abs{"eu-stack": elfutils, "gdb": parseStacks(t, gdb)}
		for tid, stack := range ours {
			threads++
			if compareLive(t, tid, stack, witnesses) {
				compared++
			}
		}
		resume(t, pid)
		time.Sleep(3 * time.Millisecond)
	}
	if compared < threads/2 || threads == 0 {
		testenv.Lack(t, "%d of %d stacks were compared", compared, threads)
	}
}

// compareLive wants a stack to be that of both witnesses where they agree, and of one of
// them where they do not.
func compareLive(t *testing.T, tid int, stack liveStack, witnesses map[string]map[int][]addr.Abs) bool {
	t.Helper()
	var differ []string
	seen := 0
	for name, stacks := range witnesses {
		theirs := stacks[tid]
		if len(theirs) == 0 || theirs[0] != stack.pcs[0] {
			continue // it ran in between
		}
		seen++
		if !slices.Equal(theirs, stack.pcs) {
			differ = append(differ, fmt.Sprintf("%s has %v", name, theirs))
		}
	}
	agree := slices.Equal(witnesses["eu-stack"][tid], witnesses["gdb"][tid])
	if seen == 0 {
		return false
	}
	if len(differ) == seen || len(differ) > 0 && agree {
		t.Errorf("thread %d: %v, end %d;\n%s\nmappings:\n%s", tid, stack.pcs, stack.end, strings.Join(differ, "\n"), stack.maps)
	} else if stack.end != unwind.Complete {
		t.Errorf("thread %d: %v ends with %d", tid, stack.pcs, stack.end)
	} else if len(differ) > 0 {
		t.Logf("thread %d: %v; the witnesses differ: %s", tid, stack.pcs, differ)
	}
	return true
}

// stop sends SIGSTOP and waits until every thread stands.
func stop(t testing.TB, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for range 60_000 {
		if !slices.ContainsFunc(threads(t, pid), func(tid int) bool { return stateOf(tid) != "T" }) {
			return
		}
		time.Sleep(time.Millisecond)
	}
	testenv.Lack(t, "the program does not stop in a minute")
}

func resume(t testing.TB, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

func threads(t testing.TB, pid int) []int {
	t.Helper()
	dirs, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	var tids []int
	for _, d := range dirs {
		tid, err := strconv.Atoi(d.Name())
		if err != nil {
			t.Fatal(err)
		}
		tids = append(tids, tid)
	}
	return tids
}

// statOf returns the fields of /proc/PID/stat from the third on.
func statOf(tid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", tid))
	if err != nil {
		return make([]string, 50)
	}
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
}

func stateOf(tid int) string { return statOf(tid)[0] }

// liveStack is a stack as this package finds it.
type liveStack struct {
	pcs  []addr.Abs // as debuggers show them: return addresses
	end  unwind.End
	maps string
}

// liveStacks unwinds every thread of a stopped process.
func liveStacks(t *testing.T, pid int, tables map[string]*unwind.Table) map[int]liveStack {
	t.Helper()
	space := newLiveSpace(t, pid, tables)
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	entry, err := strconv.ParseUint(statOf(pid)[28-3], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	stacks := map[int]liveStack{}
	for _, tid := range threads(t, pid) {
		s := registersOf(t, tid)
		w := unwind.Walker{Machine: liveMachine, Memory: liveMemory{mem}, Space: space, Entry: addr.Abs(entry), Max: 500}
		var stack liveStack
		stack.end = w.Walk(&s, func(f unwind.Frame) bool {
			at := f.At
			if !s.Exact {
				at++
			}
			stack.pcs = append(stack.pcs, at)
			return true
		})
		stack.maps = space.text
		stacks[tid] = stack
	}
	return stacks
}

// liveMemory is /proc/PID/mem.
type liveMemory struct{ file *os.File }

func (m liveMemory) ReadWord(a addr.Abs) (uint64, bool) {
	var b [8]byte
	if a >= 1<<63 {
		return 0, false
	}
	_, err := m.file.ReadAt(b[:], int64(a))
	return binary.NativeEndian.Uint64(b[:]), err == nil
}

// liveSpace is the address space of a process.
type liveSpace struct {
	vmas   []procmap.VMA
	tables map[string]*unwind.Table
	text   string
	t      testing.TB
	pid    int
}

func newLiveSpace(t testing.TB, pid int, tables map[string]*unwind.Table) *liveSpace {
	t.Helper()
	p, err := procmap.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	vmas, err := p.All()
	if err != nil {
		t.Fatal(err)
	}
	s := &liveSpace{vmas: vmas, tables: tables, t: t, pid: pid}
	for _, v := range vmas {
		if v.Perm&procmap.Exec != 0 {
			s.text += fmt.Sprintf("%v-%v %v %s\n", v.Start, v.End, v.Offset, v.Name)
		}
	}
	return s
}

// At returns the mapping that a lies in.
func (s *liveSpace) At(a addr.Abs) (unwind.Mapping, bool) {
	i := slices.IndexFunc(s.vmas, func(v procmap.VMA) bool { return v.Start <= a && a < v.End })
	if i < 0 {
		return unwind.Mapping{}, false
	}
	v := s.vmas[i]
	m := unwind.Mapping{Start: v.Start, End: v.End, Offset: v.Offset}
	switch {
	case v.Perm&procmap.Exec == 0:
		m.Content = unwind.Data
	case v.Name == "[vdso]":
		m.Table = s.table(v.Name, func() []byte { return s.image(v) })
	case v.Inode == 0:
		m.Content = unwind.Generated
	default:
		m.Table = s.table(v.Name, func() []byte {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/root%s", s.pid, v.Name))
			if err != nil {
				s.t.Error(err)
			}
			return b
		})
	}
	return m, true
}

func (s *liveSpace) image(v procmap.VMA) []byte {
	b := make([]byte, v.End-v.Start)
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", s.pid))
	if err != nil {
		s.t.Error(err)
		return nil
	}
	defer f.Close()
	if _, err := f.ReadAt(b, int64(v.Start)); err != nil {
		s.t.Error(err)
	}
	return b
}

// table builds the table of a file once.
func (s *liveSpace) table(name string, read func() []byte) *unwind.Table {
	if _, ok := s.tables[name]; !ok {
		table, err := unwind.Build(bytes.NewReader(read()), unwind.BuildOptions{Warn: func(err error) { s.t.Logf("%s: %v", name, err) }})
		if err != nil {
			s.t.Errorf("%s: %v", name, err)
		}
		s.tables[name] = table
	}
	return s.tables[name]
}

// parseStacks reads what eu-stack prints, and stacks.py.
func parseStacks(t *testing.T, cmd *exec.Cmd) map[int][]addr.Abs {
	t.Helper()
	cmd.Env = append(os.Environ(), "DEBUGINFOD_URLS=")
	out, err := cmd.Output()
	if err != nil && len(out) == 0 {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	stacks, tid := map[int][]addr.Abs{}, 0
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) == 2 && words[0] == "TID":
			tid, _ = strconv.Atoi(strings.TrimSuffix(words[1], ":"))
		case len(words) >= 2 && words[0][0] == '#' && tid != 0:
			pc, err := strconv.ParseUint(words[1], 0, 64)
			if err != nil {
				t.Fatalf("%v printed %q", cmd.Args, lines.Text())
			}
			stacks[tid] = append(stacks[tid], addr.Abs(pc))
		}
	}
	return stacks
}

// attached has ptrace stop a thread while f runs.
func attached(t testing.TB, tid int, f func()) {
	t.Helper()
	locked(func() {
		if err := unix.PtraceAttach(tid); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Wait4(tid, nil, unix.WALL, nil); err != nil {
			t.Fatal(err)
		}
		f()
		if err := unix.PtraceDetach(tid); err != nil {
			t.Fatal(err)
		}
	})
}

// locked runs f on one thread of the system, as ptrace wants it.
func locked(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f()
}
