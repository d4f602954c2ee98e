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

// goPlace is one frame of a stack.
type goPlace struct {
	at     uint64 // the address at which to look
	exact  bool   // it called nothing: it is where the thread is, or was interrupted
	signal bool   // what a signal handler returns to
	name   string // of the function
}

func (p goPlace) String() string { return fmt.Sprintf("%#x %s", p.at, p.name) }

// stack returns where a thread is and its callers.
func (s *stopped) stack(nameOf func(uint64) string) (stack []goPlace, err error) {
	exact := true
	for range 500 {
		at, signals := s.regs[ip], s.signals
		if !exact {
			at--
		}
		p := goPlace{at: at, exact: exact, name: strings.TrimSuffix(nameOf(at), ".abi0")}
		exact, err = s.step(exact)
		p.signal = s.signals > signals
		stack = append(stack, p)
		if err != nil {
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

// eachStack stops each thread of a process again and again, until enough reports true and
// at most so many times, and calls each.
func eachStack(t *testing.T, pid, rounds int, each func(s *stopped), enough func() bool) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		stopThreads(t, pid, rounds, each, enough)
	}()
	<-done
}

func stopThreads(t *testing.T, pid, rounds int, each func(s *stopped), enough func() bool) {
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
	for n := 0; n < rounds && !enough(); n++ {
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
	if testenv.Brief() {
		return // shares nothing
	}
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
			name := buildGo(t, []string{c.env}, c.flags...)
			named := name
			if c.flags != nil {
				named = buildGo(t, []string{c.env})
				sameText(t, name, named)
			}
			file, err := elf.Open(named)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			g := goStacks{t: t, pure: c.name != "cgo", nameOf: functionsOf(t, file), ends: map[string]int{}, kinds: map[string]*goKind{}}
			if !g.pure {
				g.wanted = throughC
			}
			g.follow(name)
		})
	}
}

// sameText ends the test unless a program's functions are where those of another one are: the
// names of a stripped program's functions are in the symbol table of one that is not.
func sameText(t *testing.T, names ...string) {
	t.Helper()
	var text [2]elf.SectionHeader
	for i, name := range names {
		f, err := elf.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		text[i] = f.Section(".text").SectionHeader
		f.Close()
	}
	if text[0].Addr != text[1].Addr || text[0].Size != text[1].Size {
		t.Fatalf("code is at %+v and at %+v", text[0], text[1])
	}
}

// goStacks follows the stacks of a program.
type goStacks struct {
	t      *testing.T
	pure   bool // without C: frame pointers lead along all stacks
	nameOf func(virt uint64) string
	wanted []*regexp.Regexp // each for a stack that must come, by the names of its functions

	stacks  []string // names of functions
	ends    map[string]int
	frames  int
	kinds   map[string]*goKind
	another []string // what frame pointers lead another way
}

// goKind is how many stacks there are of a kind, and how many of them frame pointers lead
// along another way.
type goKind struct{ n, odd int }

func (k *goKind) String() string {
	if k == nil {
		return "0"
	}
	return fmt.Sprint(k.n)
}

// fewestOfKind are rare, and so wanted.
var fewestOfKind = map[string]int{"signal": 10, "stack grows": 4}

const (
	// At least fewestStacks are looked at, and each thread at most so many times.
	fewestStacks, mostRounds = 250, 1500

	// oddGo is how many stacks frame pointers may lead along another way where no rule says
	// who is right. None of some 100,000 did; chance stops a thread in every instruction that
	// there is, also in those of the runtime that write the frame pointer.
	oddGo = 1. / 2000
)

func (g *goStacks) follow(name string) {
	t := g.t
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
	eachStack(t, cmd.Process.Pid, mostRounds, g.add, g.enough)
	testenv.Need(t, len(g.stacks) > 0, "permission to trace processes")
	t.Logf("%d stacks of %d frames; %v", len(g.stacks), g.frames, g.ends)
	for _, want := range g.wanted {
		n := g.matching(want)
		t.Logf("%d stacks are %s", n, want)
		if n == 0 {
			t.Errorf("no stack is %s: %q", want, g.stacks)
		}
	}
	g.judge()
	if !t.Failed() && !g.enough() {
		testenv.Lack(t, "%d stacks; with a signal %v, of a goroutine whose stack grows %v", len(g.stacks), g.kinds["signal"], g.kinds["stack grows"])
	}
}

// judge judges each kind of stack by itself, and those behind each function: what is wrong
// with one that few stacks have shows in these, and not in all.
func (g *goStacks) judge() {
	for kind, k := range g.kinds {
		if fewestOfKind[kind] > 0 {
			g.t.Logf("%s: %d stacks, frame pointers lead another way in %d", kind, k.n, k.odd)
		}
		if testenv.TooMany(int64(k.odd), int64(k.n), oddGo) {
			g.t.Errorf("%s: %d of %d stacks are others by frame pointers, where a share of %v is tolerated", kind, k.odd, k.n, oddGo)
		}
	}
	for _, stack := range g.another {
		g.t.Log(stack)
	}
}

// enough reports whether there is all that is wanted.
func (g *goStacks) enough() bool {
	if g.t.Failed() {
		return true
	}
	for kind, fewest := range fewestOfKind {
		if k := g.kinds[kind]; g.pure && (k == nil || k.n < fewest) {
			return false
		}
	}
	return len(g.stacks) >= fewestStacks && !slices.ContainsFunc(g.wanted, func(want *regexp.Regexp) bool { return g.matching(want) == 0 })
}

func (g *goStacks) count(kind string, odd bool) {
	if g.kinds[kind] == nil {
		g.kinds[kind] = &goKind{}
	}
	g.kinds[kind].n++
	if odd {
		g.kinds[kind].odd++
	}
}

func (g *goStacks) matching(want *regexp.Regexp) (n int) {
	for _, s := range g.stacks {
		if want.MatchString(s) {
			n++
		}
	}
	return n
}

// add follows one stack. That it does not end as stacks end is no chance, whatever frame
// pointers say.
func (g *goStacks) add(s *stopped) {
	callers, regs := s.byFramePointers(), s.regs
	stack, err := s.stack(g.nameOf)
	g.frames += len(stack)
	g.ends[err.Error()]++
	var names []string
	for _, p := range stack {
		names = append(names, p.name)
	}
	g.stacks = append(g.stacks, strings.Join(names, " "))
	where := fmt.Sprintf("%#x, sp %#x, fp %#x", regs[ip], regs[RSP], regs[RBP])
	if err != errEnd && !(err == errSwitched && switches(stack, g.pure)) {
		g.t.Errorf("%s: %v in %s, frames %v", where, err, names[len(names)-1], stack)
		return
	}
	if !g.pure {
		return
	}
	// Where morestack has called others on the scheduler's stack, the goroutine is known, but
	// for moments in which the runtime takes it away.
	if err == errSwitched && len(stack) > 1 && stack[len(stack)-1].name == "runtime.morestack" {
		g.count("stack grows", true)
		g.another = append(g.another, fmt.Sprintf("%s: %v, and no goroutine", where, stack))
		return
	}
	kind := "calls"
	switch {
	case s.signals > 0:
		kind = "signal"
	case s.grown > 0:
		kind = "stack grows"
	}
	differ := sameCallers(stack, callers, s.grown > 0)
	g.count(kind, differ >= 0)
	seen := map[string]bool{}
	for i, p := range stack {
		if of := "behind " + p.name; !seen[of] && (differ < 0 || i <= differ) {
			seen[of] = true
			g.count(of, differ >= 0 && p.name == stack[differ].name)
		}
	}
	if differ >= 0 {
		g.another = append(g.another, fmt.Sprintf("%s: %v, by frame pointers %#x", where, stack, callers))
	}
}

// switches reports whether a stack may end because another one is gone to: in the functions
// that do it, and in C code, whose names are not known. A thread that has just begun is in clone
// as its parent is, and has a stack of its own, on which there is no caller.
func switches(stack []goPlace, pure bool) bool {
	last := stack[len(stack)-1].name
	if stack[0].name == "runtime.clone" && len(stack) <= 2 && (last == "" || last == "runtime.clone") {
		return true
	}
	return switchers[last] && last != "runtime.mcall" || last == "runtime.morestack" && len(stack) == 1 || !pure && last == ""
}

// throughC are stacks that go from Go through C, and what called that: a goroutine, or a
// thread of C's own.
var throughC = []*regexp.Regexp{
	regexp.MustCompile(back + `.*runtime\.asmcgocall\S* runtime\.cgocall main\._Cfunc_forth\S* main\.called main\.deep .*main\.work .*runtime\.goexit\S*$`),
	regexp.MustCompile(back + `thread `),
}

const back = `crosscall2\S* ([\w.]* )*compare ([\w.]* )*forth `

// sameCallers reports whether frame pointers lead along a stack. Our stack is right where they
// leave out a caller by one of these rules, and they are right everywhere else:
//
//   - who is called by what has no record of a frame pointer is left out (see recordless);
//   - nothing leads from the scheduler's stack, which begins with no frame pointer, to the
//     goroutine for which the runtime works there: its stack grows.
//
// Frame pointers do not say where the stack begins, and may go on.
//
// differ is the last function whose callers are the same, -1 if all are.
func sameCallers(stack []goPlace, callers []uint64, grown bool) (differ int) {
	return callersFrom(stack, 0, callers, grown)
}

// callersFrom is sameCallers for the callers of the k-th function.
func callersFrom(stack []goPlace, k int, callers []uint64, grown bool) (differ int) {
	if k+1 == len(stack) || grown && len(callers) == 0 && !recordless(stack, k) {
		return -1
	}
	differ = k
	if len(callers) > 0 && callers[0] == stack[k+1].called() {
		if differ = callersFrom(stack, k+1, callers[1:], grown); differ < 0 {
			return -1
		}
	}
	if recordless(stack, k) {
		if left := callersFrom(stack, k+1, callers, grown); left < 0 || left > differ {
			return left
		}
	}
	return differ
}

// recordless reports whether the k-th function of a stack may have no record of the frame
// pointer and its return address: it was stopped, or interrupted by a signal, before it has
// made its frame or behind its end; it is where a signal handler was called or returns to; it
// is morestack, which makes no frame, or calls it, as a function does before it makes its own.
func recordless(stack []goPlace, k int) bool {
	p := &stack[k]
	return p.exact || p.signal || p.name == "runtime.sigtramp" || isMorestack(p) || k > 0 && isMorestack(&stack[k-1])
}

func isMorestack(p *goPlace) bool {
	return p.name == "runtime.morestack" || p.name == "runtime.morestack_noctxt"
}

// called is the address of a place as frame pointers have it: one before the return address,
// and before an address that asyncPreempt pretends to be called at.
func (p goPlace) called() uint64 {
	if p.exact {
		return p.at - 1
	}
	return p.at
}
