//go:build amd64

package unwind

import (
	"bufio"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hallmark/addr"
	"hallmark/internal/testenv"
)

// stopped is a thread of another process that is stopped.
type stopped struct {
	memory *os.File
	maps   []mapped
	regs   [17]uint64 // by DWARF number; 16 is the instruction pointer
	known  [17]bool

	signals int // frames of interrupted code on the way
	grown   int // steps to a goroutine whose stack grows
}

// mapped is an executable mapping.
type mapped struct {
	start, end, offset uint64
	path               string
	table              *Table
}

// buildTables returns the executable mappings of a process, with tables of their files.
func buildTables(t *testing.T, pid int, tables map[string]*Table) (maps []mapped) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		w := strings.Fields(line)
		if len(w) < 6 || w[1][2] != 'x' {
			continue
		}
		start, end, _ := strings.Cut(w[0], "-")
		m := mapped{start: number(t, start), end: number(t, end), offset: number(t, w[2]), path: w[5]}
		if _, ok := tables[m.path]; !ok {
			tables[m.path] = tableAt(t, pid, m)
		}
		m.table = tables[m.path]
		maps = append(maps, m)
	}
	return maps
}

func tableAt(t *testing.T, pid int, m mapped) *Table {
	t.Helper()
	name := m.path
	if name == "[vdso]" {
		memory := make([]byte, m.end-m.start)
		f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.ReadAt(memory, int64(m.start)); err != nil {
			t.Fatal(err)
		}
		name = t.TempDir() + "/vdso"
		if err := os.WriteFile(name, memory, 0o600); err != nil {
			t.Fatal(err)
		}
	} else if !strings.HasPrefix(name, "/") {
		return nil
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := Build(f, BuildOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func (s *stopped) word(at uint64) (uint64, bool) {
	var b [8]byte
	_, err := s.memory.ReadAt(b[:], int64(at))
	return binary.LittleEndian.Uint64(b[:]), err == nil
}

func (s *stopped) rule(at uint64) (r Rule, path string) {
	for _, m := range s.maps {
		if at >= m.start && at < m.end && m.table != nil {
			return m.table.Lookup(addr.Offset(at - m.start + m.offset)), m.path
		}
	}
	return Rule{}, ""
}

const ip = 16

var (
	errEnd      = errors.New("complete")
	errSwitched = errors.New("switched to another stack")
)

// step goes to the caller's frame, as plainly as it can be written.
func (s *stopped) step(exact bool) (nowExact bool, err error) {
	at := s.regs[ip]
	if !exact {
		at--
	}
	r, path := s.rule(at)
	sp := s.regs[RSP]
	value := func(n Register) uint64 {
		if !s.known[n] {
			err = fmt.Errorf("register %d is lost at %#x in %s", n, at, path)
		}
		return s.regs[n]
	}
	read := func(at uint64) uint64 {
		v, ok := s.word(at)
		if !ok && err == nil {
			err = fmt.Errorf("%#x cannot be read", at)
		}
		return v
	}
	var cfa, base uint64
	switch r.Kind {
	case Outermost:
		return false, errEnd
	case None:
		return false, errSwitched
	case Goroutine:
		return false, s.toGoroutine(&r, value(r.Register), read)
	case Reg:
		base = value(r.Register)
		cfa = base + uint64(int64(r.Offset))
	case Deref:
		base = value(r.Register)
		cfa = read(base+uint64(int64(r.Offset))) + 8*uint64(int64(r.Addend))
	case PLT:
		cfa = sp + 8
		if s.regs[ip]&15 >= uint64(r.Offset) {
			cfa += 8
		}
	case Signal:
		frame := sp + uint64(int64(r.Offset)) + 40
		for i, n := range []int{8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, ip} {
			s.regs[n], s.known[n] = read(frame+8*uint64(i)), true
		}
		s.signals++
		return true, err
	default:
		return false, fmt.Errorf("no rule at %#x in %s: %+v", at, path, r)
	}
	if err != nil {
		return false, err
	}
	if cfa <= sp && r.Flags&OtherStack == 0 && !(exact && cfa == sp) {
		return false, fmt.Errorf("the stack does not shrink at %#x in %s: %+v", at, path, r)
	}
	from := cfa
	if r.Flags&SavedAtRegister != 0 {
		from = base
	}
	next, known := s.regs, [17]bool{RSP: true, ip: true}
	next[ip], next[RSP] = read(cfa+8*uint64(int64(r.RA))), cfa
	if r.RA == Same {
		next[ip] = value(r.Link)
	}
	for i, n := range savedX86 {
		switch v := r.Saved[i]; v {
		case Same:
			known[n] = s.known[n]
		case Unknown:
		default:
			next[n], known[n] = read(from+8*uint64(int64(v))), true
		}
	}
	s.regs, s.known = next, known
	if err == nil && s.regs[ip] == 0 {
		err = errEnd
	}
	return r.Flags&Interrupted != 0, err
}

// toGoroutine goes to the goroutine whose stack grows. In the first instructions on the
// scheduler's stack the register is still the goroutine's.
func (s *stopped) toGoroutine(r *Rule, g uint64, read func(uint64) uint64) error {
	thread := read(g + 8*uint64(r.Saved[0]))
	if read(thread) != g || read(g+8*uint64(r.Saved[1])) != s.regs[RSP] {
		return errSwitched
	}
	if g = read(thread + uint64(r.Offset)); g == 0 {
		return errEnd
	}
	s.regs[RSP], s.regs[ip], s.regs[RBP] = read(g+8*uint64(r.Saved[1])), read(g+8*uint64(r.Saved[2])), read(g+8*uint64(r.Saved[3]))
	s.known = [17]bool{RSP: true, RBP: true, ip: true}
	s.grown++
	return nil
}

// stack returns where a thread is and its callers, as addresses at which to look.
func (s *stopped) stack() (stack []uint64, err error) {
	exact := true
	for range 500 {
		at := s.regs[ip]
		if !exact {
			at--
		}
		stack = append(stack, at)
		if exact, err = s.step(exact); err != nil {
			return stack, err
		}
	}
	return stack, errors.New("it does not end")
}

// byFramePointers returns the callers that the frame pointers lead to.
func (s *stopped) byFramePointers() (callers []uint64) {
	for fp := s.regs[RBP]; fp != 0 && len(callers) < 500; {
		at, ok1 := s.word(fp + 8)
		next, ok2 := s.word(fp)
		if !ok1 || !ok2 || at == 0 {
			break
		}
		callers, fp = append(callers, at-1), next
	}
	return callers
}

// threads are the threads of a process that is traced.
func threads(t *testing.T, pid int) (tids []int) {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		n, _ := strconv.Atoi(e.Name())
		tids = append(tids, n)
	}
	return tids
}

const (
	ptraceSeize     = 0x4206
	ptraceInterrupt = 0x4207
)

func ptrace(request, tid int) error {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, uintptr(request), uintptr(tid), 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// waitStopped waits until a thread has stopped as it was told to, and lets it have the
// signals that come before.
func waitStopped(tid int) bool {
	for {
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(tid, &status, syscall.WALL, nil); err != nil || !status.Stopped() {
			return false
		}
		const eventStop = 128
		if status>>16 == eventStop {
			return true
		}
		if syscall.PtraceCont(tid, int(status.StopSignal())) != nil {
			return false
		}
	}
}

// eachStack stops each thread of a process many times and calls each.
func eachStack(t *testing.T, pid, rounds int, each func(s *stopped)) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		stopThreads(t, pid, rounds, each)
	}()
	<-done
}

func stopThreads(t *testing.T, pid, rounds int, each func(s *stopped)) {
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	tables, seized := map[string]*Table{}, map[int]bool{}
	defer func() { // or the process could not be waited for
		for tid := range seized {
			if ptrace(ptraceInterrupt, tid) == nil && waitStopped(tid) {
				syscall.PtraceDetach(tid)
			}
		}
	}()
	for range rounds {
		for _, tid := range threads(t, pid) {
			if !seized[tid] && ptrace(ptraceSeize, tid) != nil {
				continue
			}
			seized[tid] = true
			if ptrace(ptraceInterrupt, tid) != nil {
				continue
			}
			if !waitStopped(tid) {
				delete(seized, tid)
				continue
			}
			var r syscall.PtraceRegs
			if err := syscall.PtraceGetRegs(tid, &r); err == nil {
				s := &stopped{memory: memory, maps: buildTables(t, pid, tables)}
				s.regs = [17]uint64{r.Rax, r.Rdx, r.Rcx, r.Rbx, r.Rsi, r.Rdi, r.Rbp, r.Rsp, r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15, r.Rip}
				for i := range s.known {
					s.known[i] = true
				}
				each(s)
			}
			if err := syscall.PtraceCont(tid, 0); err != nil {
				t.Logf("thread %d: %v", tid, err)
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// TestGoStacks stops programs that do everything with stacks at moments that chance
// chooses. All stacks are followed to their beginnings, and in programs without C the
// frame pointers, that all of Go's code keeps, lead the same way.
func TestGoStacks(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("reads the registers of amd64")
	}
	for _, c := range []struct {
		name  string
		env   string
		flags []string
	}{
		{"pure", "CGO_ENABLED=0", nil},
		{"stripped", "CGO_ENABLED=0", []string{"-ldflags=-s -w"}},
		{"cgo", "CGO_ENABLED=1", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "cgo" {
				testenv.Tool(t, "gcc")
			}
			stacks := goStacks(t, buildGo(t, []string{c.env}, c.flags...), c.name != "cgo")
			if c.name == "cgo" {
				throughC(t, stacks)
			}
		})
	}
}

func goStacks(t *testing.T, name string, pure bool) (stacks []string) {
	cmd := exec.Command(name)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	}()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	file, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	ends, frames, grown, nameOf := map[string]int{}, 0, 0, functionsOf(t, file)
	eachStack(t, cmd.Process.Pid, 60, func(s *stopped) {
		callers := s.byFramePointers()
		regs := s.regs
		stack, err := s.stack()
		frames += len(stack)
		ends[err.Error()]++
		grown += s.grown
		var names []string
		for _, at := range stack {
			names = append(names, nameOf(at))
		}
		stacks = append(stacks, strings.Join(names, " "))
		last := strings.TrimSuffix(names[len(names)-1], ".abi0")
		if leaves := switchers[last] && last != "runtime.mcall" || last == "runtime.morestack" && len(names) == 1 || last == ""; err != errEnd && !(err == errSwitched && leaves) {
			t.Errorf("%#x, sp %#x, fp %#x: %v in %s, frames %#x", regs[ip], regs[RSP], regs[RBP], err, last, stack)
			return
		}
		if pure && !sameCallers(stack, callers, s.signals, s.grown > 0) {
			ends["different"]++
			t.Errorf("%#x, sp %#x, fp %#x: %#x, by frame pointers %#x", regs[ip], regs[RSP], regs[RBP], stack, callers)
		}
	})
	if len(stacks) == 0 {
		t.Skip("no thread can be stopped: may this user trace processes?")
	}
	t.Logf("%d frames; %v; %d times to a goroutine whose stack grows", frames, ends, grown)
	return stacks
}

// throughC wants stacks that go from Go through C, and what called that: a goroutine, or a
// thread of C's own.
func throughC(t *testing.T, stacks []string) {
	back := `crosscall2\S* ([\w.]* )*compare ([\w.]* )*forth `
	for _, want := range []string{
		back + `.*runtime\.asmcgocall\S* runtime\.cgocall main\._Cfunc_forth\S* main\.called main\.deep .*main\.work .*runtime\.goexit\S*$`,
		back + `thread `,
	} {
		n := 0
		for _, s := range stacks {
			if regexp.MustCompile(want).MatchString(s) {
				n++
			}
		}
		t.Logf("%d stacks are %s", n, want)
		if n == 0 {
			t.Errorf("no stack is %s: %q", want, stacks)
		}
	}
}

// sameCallers reports whether frame pointers lead along a stack. They may leave out the
// caller of a function that has not made its frame yet, that of one that has called
// morestack, which makes none, before its own, and where a signal has just come, what it
// interrupted; and they do not tell where the stack begins. None leads to a goroutine whose
// stack grows.
func sameCallers(stack, callers []uint64, signals int, grown bool) bool {
	stack = stack[1:]
	for skipped := 0; skipped <= 2+2*signals && skipped <= len(stack); skipped++ {
		rest := stack[skipped:]
		if grown {
			rest = rest[:min(len(rest), len(callers))]
		}
		if len(rest) <= len(callers) && slices.EqualFunc(rest, callers[:len(rest)], sameCaller) {
			return true
		}
	}
	return false
}

// sameCaller takes account of what asyncPreempt has interrupted: that is no call, before whose
// return address one would have to look.
func sameCaller(ours, byFP uint64) bool { return ours == byFP || ours == byFP+1 }
