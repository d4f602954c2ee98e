package capture

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/buildid"
	"hallmark/internal/backend"
	"hallmark/internal/bpf"
	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
	"hallmark/launch"
	"hallmark/profile"
	"hallmark/reason"
	"hallmark/unwind"
)

// triedUnwinding is what tryUnwinding says, once as triedBPF is.
var triedUnwinding = sync.OnceValue(func() error {
	_, err := backend.TryUnwinding()
	return err
})

// needUnwinding ends the test where the programs that unwind cannot be loaded.
func needUnwinding(t testing.TB) {
	t.Helper()
	testenv.Root(t)
	err := triedUnwinding()
	testenv.Need(t, err == nil, "BPF programs that unwind (see hallmark doctor)")
}

// buildCallbacks builds testdata/callbacks.c as distributions build what they have.
func buildCallbacks(t testing.TB) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "callbacks")
	proctest.Compile(t, "gcc", out, "-O2", "-fomit-frame-pointer", "testdata/callbacks.c")
	return out
}

// functionsOf returns the names of a stack, the innermost first.
func functionsOf(s *pprof.Sample) (names []string) {
	for c := range profile.Calls(s) {
		names = append(names, c.Name())
	}
	return names
}

// checkStacks wants nearly all stacks to be complete, and returns those that are.
func checkStacks(t *testing.T, p *pprof.Profile) []*pprof.Sample {
	t.Helper()
	n := profile.MeasureStacks(p)
	if n == nil {
		testenv.Lack(t, "no stacks")
	}
	testenv.AtMost(t, fmt.Sprintf("stacks that are not complete (%+v)", n.Gaps), int64(n.Samples-n.Complete), int64(n.Samples), 0.1)
	for _, c := range profile.MeasureCoverage(p, nil).Gaps {
		if c.Reason == reason.NotMapped || c.Reason == reason.NotExecutable {
			t.Errorf("%d frames are no code: %+v", c.Frames, c.Binaries)
		}
	}
	return slices.DeleteFunc(slices.Clone(p.Sample), func(s *pprof.Sample) bool {
		why, told := profile.StackEnd(s)
		return !told || why != reason.None
	})
}

// TestWholeStacks records a program that has no frame pointers and is called back by a
// library without them, twice: the second time their tables come from the cache. Every
// stack that is said to be complete begins in _start, and each caller of the callback
// is there.
func TestWholeStacks(t *testing.T) {
	needUnwinding(t)
	program, cache := buildCallbacks(t), t.TempDir()
	var before []string // what the cache had
	for round := range 2 {
		p, _, stats := recordCommand(t, Options{Backend: BPF, Frequency: 499, CacheDir: cache}, program, "1000")
		inCallback := int64(0)
		for _, s := range checkStacks(t, p) {
			names := functionsOf(s)
			if i := slices.Index(names, "main"); i >= 0 && names[len(names)-1] != "_start" {
				t.Errorf("a complete stack is %v", names)
			}
			i := slices.Index(names, "compare")
			if i < 0 {
				continue
			}
			inCallback += s.Value[0]
			sort, main := slices.Index(names, "sort_numbers"), slices.Index(names, "main")
			if sort < i+2 || main != sort+1 {
				t.Errorf("the callback is called by %v", names[i:])
			}
		}
		if all := samples(p); inCallback == 0 && all >= 100 {
			t.Errorf("none of %d samples is in the callback", all)
		} else if inCallback == 0 {
			testenv.Lack(t, "none of %d samples is in the callback", all)
		}
		after, _ := filepath.Glob(filepath.Join(cache, "*", "*"))
		u := stats.Unwind
		if round == 0 && u.Built < 2 || round == 1 && (u.Cached < 1 || !builtByChance(before, after, proctest.FileID(t, program))) {
			t.Errorf("recording %d: %+v; the cache had %q, and has %q", round, u, before, after)
		}
		before = after
	}
}

// builtByChance reports whether a program's table is not among those that were added to a cache, and at most one is of a
// file that had none: the program and its library are in each recording, and the dynamic linker only by chance. The table of a
// library is another one where its file has another time of change: 'perf record' makes a link to it each time.
func builtByChance(before, after []string, program buildid.ID) bool {
	id := func(name string) string {
		text, _, _ := strings.Cut(filepath.Base(name), "-")
		return text
	}
	known, others := map[string]bool{}, 0
	for _, name := range before {
		known[id(name)] = true
	}
	for _, name := range after {
		switch {
		case slices.Contains(before, name):
		case id(name) == program.String():
			return false
		case !known[id(name)]:
			others++
		}
	}
	return known[program.String()] && others <= 1
}

// TestStacksOfBriefProcesses records processes that are over before anybody could look at
// them from outside.
func TestStacksOfBriefProcesses(t *testing.T) {
	needUnwinding(t)
	p, _, stats := recordCommand(t, Options{Backend: BPF, Frequency: 999, CacheDir: t.TempDir()},
		"sh", "-c", `i=0; while [ $i -lt 300 ]; do "$0" 3; i=$((i+1)); done`, buildCallbacks(t))
	brief := 0
	for _, s := range checkStacks(t, p) {
		if name, _ := profile.Process(s); name != "callbacks" {
			continue
		}
		brief++
		names := functionsOf(s)
		if i := slices.Index(names, "compare"); i >= 0 && names[len(names)-1] != "_start" {
			t.Errorf("a complete stack is %v", names)
		}
	}
	t.Logf("%d different stacks, %+v", brief, stats.Unwind)
	if brief == 0 {
		t.Error("no process has a complete stack")
	}
}

// TestStacksOfAnInterpreter records Python, whose evaluation loop is in deep stacks of a large file.
func TestStacksOfAnInterpreter(t *testing.T) {
	needUnwinding(t)
	python := testenv.Tool(t, "python3")
	p, _, stats := recordCommand(t, Options{Backend: BPF, Frequency: 499, CacheDir: t.TempDir()}, python, "-c", `
import json, time
end = time.process_time() + 2
while time.process_time() < end:
    sorted(json.loads(json.dumps([{"a": i, "b": str(i)} for i in range(2000)])), key=lambda x: x["b"])
`)
	deep := 0
	for _, s := range checkStacks(t, p) {
		names := functionsOf(s)
		if len(names) > 10 && names[len(names)-1] == "_start" {
			deep++
		}
	}
	t.Logf("%d deep stacks, %+v", deep, stats.Unwind)
	if deep == 0 {
		t.Error("no stack is deep and begins at the entry")
	}
}

// TestTablesOfWhatRuns records a process that sleeps, as before Linux 6.18: the tables of its files are there
// before any sample is, and one that was in the cache is not built again.
func TestTablesOfWhatRuns(t *testing.T) {
	needUnwinding(t)
	stock, err := bpf.NewStock()
	testenv.Need(t, err == nil, "a list of what runs (Linux 6.7)")
	if err := stock.Close(); err != nil {
		t.Fatal(err)
	}
	sleep := exec.Command(testenv.Tool(t, "sleep"), "1000")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = sleep.Process.Kill()
		_ = sleep.Wait()
	}()
	testenv.Await(t, "the C library", func() bool { // it is mapped after the program
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", sleep.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(maps), "/libc")
	})
	cache := t.TempDir()
	for round := range 2 {
		s := startSession(t, Options{Backend: BPF, PIDs: []int{sleep.Process.Pid}, CacheDir: cache, noTaskWork: true})
		n := s.tally.tables.Counts()
		testenv.Await(t, "three tables", func() bool { // the program, the linker, the C library
			n = s.tally.tables.Counts()
			return n.Built+n.Cached >= 3
		})
		if (round == 0) != (n.Built > 0) || (round == 1) != (n.Cached > 0) {
			t.Errorf("recording %d: %+v", round, n)
		}
		s.stopTables() // what was built is in the cache then
	}
}

// TestFramePointersOnly records as before there were tables.
func TestFramePointersOnly(t *testing.T) {
	needUnwinding(t)
	p, _, stats := recordCommand(t, Options{Backend: BPF, Frequency: 499, CallGraph: CallGraph{By: ByFP}}, proctest.BuildC(t), "500")
	n := profile.MeasureStacks(p)
	if stats.Samples == 0 {
		testenv.Lack(t, "no samples")
	}
	if n == nil || n.Complete != 0 || len(n.Gaps) != 1 || n.Gaps[0].Reason != reason.FramePointers {
		t.Errorf("%+v", n)
	}
	if stats.Unwind.Built+stats.Unwind.Cached != 0 {
		t.Errorf("%+v", stats.Unwind)
	}
}

// TestUnwindersAgree walks every stack of a recording a second time in user space, and
// wants the same frames, found in the same ways, and the same end.
func TestUnwindersAgree(t *testing.T) {
	needUnwinding(t)
	for name, args := range map[string][]string{
		"callbacks": {buildCallbacks(t), "1000"},
		// A subshell, because the parent of a vfork writes to the stack that its child has until the kernel
		// gives that other memory (exec_mmap, fs/exec.c): in execve both may run.
		"shell":   {"sh", "-c", "i=0; while [ $i -lt 100 ]; do (exec ls / >/dev/null); i=$((i+1)); done"},
		"Go":      {proctest.BuildGo(t), "500ms"},
		"handler": {buildHandler(t), "500"},
	} {
		t.Run(name, func(t *testing.T) { unwindersAgree(t, args) })
	}
}

// buildHandler builds a program whose stacks lead over what a signal handler returns to.
func buildHandler(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "handler")
	proctest.Compile(t, "gcc", file, "-O2", "testdata/handler.c")
	return file
}

func unwindersAgree(t *testing.T, args []string) {
	c, err := launch.Start(args)
	if err != nil {
		t.Fatal(err)
	}
	s := startSession(t, Options{Backend: BPF, Frequency: 499, Command: c, copyAll: true})
	sampler := s.sampler.(*bpfSampler)
	same, other, unfinished, cut := 0, 0, 0, 0
	sampler.unwinding.compared = func(id bpf.StackID, frames []bpf.Frame, end unwind.End) {
		b := sampler.body(id)
		if b == nil || b.walk.End == unwind.NoTable || end == unwind.NoTable {
			unfinished++
			return
		}
		theirs := userFrames(b.frames)
		// Without a frame of the user the end is called another one: see walkOf.
		if slices.Equal(theirs, frames) && (b.walk.End == end || len(frames) == 0) {
			same++
			return
		}
		if end == unwind.Unreadable && len(frames) <= len(theirs) && slices.Equal(theirs[:len(frames)], frames) {
			cut++ // a copy is of what is in memory, and has an end
			return
		}
		if end == unwind.Unreadable && len(frames) == 1 {
			cut++ // the kernel gives a process in execve other memory, where its registers mean nothing
			return
		}
		if other++; other < 5 {
			t.Errorf("the kernel found %v, end %d;\nwe found %v, end %d", theirs, b.walk.End, frames, end)
		}
	}
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d samples agree, %d do not, %d came before their tables, %d copies were too short", same, other, unfinished, cut)
	testenv.AtMost(t, "copies of stacks of "+strings.Join(args, " ")+" that were too short", int64(cut), int64(same+cut), 0.15)
}

func userFrames(frames []bpf.Frame) []bpf.Frame {
	return slices.DeleteFunc(slices.Clone(frames), func(f bpf.Frame) bool { return f.Kind == bpf.InKernel })
}
