package unwind_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"hallmark/addr"
	"hallmark/internal/testenv"
	"hallmark/procmap"
	"hallmark/unwind"
)

// TestInstructions executes programs instruction by instruction and keeps account of
// their calls: what has been called and has not returned is the stack, whatever call frame
// information says. No frame may be another one, and few may be missing: some code of the
// C library's startup files has no call frame information.
func TestInstructions(t *testing.T) {
	if testenv.Brief() {
		return // shares nothing
	}
	testenv.Root(t)
	built := filepath.Join(t.TempDir(), "live")
	static := built + "-static"
	for file, options := range map[string]string{built: "-O2 -fomit-frame-pointer", static: "-O1 -fomit-frame-pointer -static"} {
		args := append(strings.Fields(options), "-pthread", "-o", file, "testdata/live.c")
		if msg, err := exec.Command(testenv.Tool(t, "gcc"), args...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, msg)
		}
	}
	programs := [][]string{{"/bin/true"}, {static, "once"}}
	if testenv.Thorough() {
		programs = append(programs, []string{built, "once"})
	}
	for _, args := range programs {
		t.Run(filepath.Base(args[0]), func(t *testing.T) { locked(func() { checkSteps(t, args) }) })
	}
}

const (
	// mostSteps bounds the instructions of a program.
	mostSteps = 100_000
	// Of so many instructions one is looked at, prime numbers, so that loops are seen at
	// each of their instructions.
	often, seldom = 5, 23
)

// checkSteps runs a program.
func checkSteps(t *testing.T, args []string) {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = []string{"LD_BIND_NOW="} // to go through the linker's stubs
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	defer func() {
		_ = cmd.Process.Kill()
		_, _ = unix.Wait4(pid, nil, 0, nil)
	}()
	if _, err := unix.Wait4(pid, nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	s := newStepper(t, pid)
	defer s.mem.file.Close()
	every := seldom
	if testenv.Thorough() {
		every = often
	}
	for s.steps < mostSteps && s.step() {
		if s.steps%every == 0 {
			s.compare()
			s.compared++
		}
	}
	t.Logf("%d instructions, %d frames; %d stacks are wrong, %d not complete", s.compared, s.frames, s.wrong, s.short)
	for place, n := range s.differ {
		t.Logf("%d end too early: %s", n, place)
	}
	if s.wrong > 0 || s.short*100 > s.compared || s.compared < 1000 {
		t.Errorf("%d of %d stacks are wrong, %d not complete", s.wrong, s.compared, s.short)
	}
}

// stepper follows a program.
type stepper struct {
	t                       *testing.T
	pid                     int
	mem                     liveMemory
	space                   *liveSpace
	tables                  map[string]*unwind.Table
	entry                   addr.Abs
	state                   unwind.State
	calls                   []call
	steps, compared, frames int
	// Stacks that are not what was called: with frames that were not, and without some that were.
	wrong, short int
	differ       map[string]int // how and where the short ones ended
}

// call is a return address, and where on the stack it lies.
type call struct {
	at uint64
	ra addr.Abs
}

func newStepper(t *testing.T, pid int) *stepper {
	t.Helper()
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	entry, err := strconv.ParseUint(statOf(pid)[28-3], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	s := &stepper{t: t, pid: pid, mem: liveMemory{mem}, tables: map[string]*unwind.Table{}, entry: addr.Abs(entry), differ: map[string]int{}}
	s.space = newLiveSpace(t, pid, s.tables)
	s.state = s.registers()
	return s
}

func (s *stepper) registers() unwind.State {
	var r unix.PtraceRegs
	if err := unix.PtraceGetRegs(s.pid, &r); err != nil {
		s.t.Fatal(err)
	}
	return stateOfRegs(&r)
}

// step executes an instruction, and reports false when that was the last.
func (s *stepper) step() bool {
	before := s.state
	if err := unix.PtraceSingleStep(s.pid); err != nil {
		s.t.Fatal(err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(s.pid, &status, 0, nil); err != nil {
		s.t.Fatal(err)
	}
	if status.Exited() {
		return false
	}
	if !status.Stopped() || status.StopSignal() != unix.SIGTRAP {
		s.t.Fatalf("the program stopped by %v", status.StopSignal())
	}
	s.steps++
	s.state = s.registers()
	was, _ := before.Get(unwind.RSP)
	sp, _ := s.state.Get(unwind.RSP)
	for len(s.calls) > 0 && s.calls[len(s.calls)-1].at < sp {
		s.calls = s.calls[:len(s.calls)-1]
	}
	if sp != was-8 {
		return true
	}
	ra, ok := s.mem.ReadWord(addr.Abs(sp))
	if behind := addr.Abs(ra) - before.IP; ok && behind >= 2 && behind <= 8 && addr.Abs(ra) != s.state.IP {
		s.calls = append(s.calls, call{sp, addr.Abs(ra)})
	}
	return true
}

// compare unwinds the stack.
func (s *stepper) compare() {
	var got []addr.Abs
	state := s.state
	w := unwind.Walker{Machine: unwind.X86_64, Memory: s.mem, Space: s.space, Entry: s.entry, Max: 500}
	end := w.Walk(&state, func(f unwind.Frame) bool {
		at := f.At
		if f.Method != unwind.ByRegs {
			at++
		}
		got = append(got, at)
		return true
	})
	if end == unwind.NotMapped && s.remap() {
		s.compare()
		return
	}
	want := []addr.Abs{s.state.IP}
	for _, c := range slices.Backward(s.calls) {
		want = append(want, c.ra)
	}
	s.frames += len(want)
	switch {
	case slices.Equal(got, want) && end == unwind.Complete:
	case end != unwind.Complete && len(got) <= len(want) && slices.Equal(got, want[:len(got)]):
		s.short++
		s.differ[fmt.Sprintf("%d after %s", end, s.describe(got[len(got)-1]))]++
	default:
		if s.wrong++; s.wrong < 10 {
			s.t.Errorf("%s: %v, end %d; called were %v", s.describe(s.state.IP), got, end, want)
		}
	}
}

// remap reads the mappings again, and reports whether there are new ones.
func (s *stepper) remap() bool {
	space := newLiveSpace(s.t, s.pid, s.tables)
	if space.text == s.space.text {
		return false
	}
	s.space = space
	return true
}

func (s *stepper) describe(a addr.Abs) string {
	m, ok := s.space.At(a)
	if !ok {
		return a.String()
	}
	i := slices.IndexFunc(s.space.vmas, func(v procmap.VMA) bool { return v.Start <= a && a < v.End })
	return fmt.Sprintf("%s@%v", filepath.Base(s.space.vmas[i].Name), m.Offset+addr.Offset(a-m.Start))
}
