package capture

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
	"hallmark/profile"
	"hallmark/reason"
)

// buildLive builds a program that keeps no frame pointers, in threads and signal handlers.
func buildLive(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "live")
	proctest.Compile(t, "gcc", file, "-O1", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-pthread", "../unwind/testdata/live.c")
	return file
}

// TestCopiedStacks records code without frame pointers. Nearly every stack must reach the
// beginning of its thread, in the callers that the source says. A copy has one stack: what a
// handler on another one interrupted is not in it, nor what the kernel interrupts while it
// goes to a handler.
func TestCopiedStacks(t *testing.T) {
	needPerf(t)
	testenv.Need(t, runtime.GOARCH == "amd64", "x86-64")
	pid := proctest.Start(t, buildLive(t))
	p, _, stats := recordUntil(t, Options{PIDs: []int{pid}, Frequency: 499, Backend: Perf, CallGraph: CallGraph{By: ByDWARF}}, 900)
	ends, callers := map[string]int64{}, map[string]bool{}
	total, complete := int64(0), int64(0)
	for _, s := range p.Sample {
		why, told := profile.StackEnd(s)
		if !told {
			t.Fatal("a stack does not say how it ended")
		}
		names := userNames(s)
		if why != reason.None && slices.Contains(names, "elsewhere") {
			continue
		}
		total += s.Value[0]
		ends[why.Code()] += s.Value[0]
		if why != reason.None {
			t.Logf("%v: %v", why, names)
			continue
		}
		complete += s.Value[0]
		if root := names[len(names)-1]; root != "_start" && !strings.Contains(root, "clone") {
			t.Errorf("a complete stack begins in %s: %v", root, names)
		}
		for i := range len(names) - 1 {
			callers[names[i]+" from "+names[i+1]] = true
		}
	}
	for _, want := range []string{"burn from grow", "grow from grow", "grow from align", "align from forever", "burn from busy", "compare from msort_with_tmp", "sort from forever"} {
		if !callers[want] && !callers[want+".part.0"] {
			t.Errorf("nobody saw %s", want)
		}
	}
	if stats.Copied == 0 {
		t.Errorf("%d bytes copied", stats.Copied)
	}
	testenv.AtMost(t, fmt.Sprintf("stacks that are not complete (%v)", ends), total-complete, total, 0.03)
}

// userNames returns the functions of a sample's frames in user code, leaf first.
func userNames(s *pprof.Sample) []string {
	var names []string
	for c := range profile.Calls(s) {
		if !c.Kernel() && c.Function != nil {
			names = append(names, c.Function.Name)
		}
	}
	return names
}

// TestCutStacks copies less of the stacks than they have.
func TestCutStacks(t *testing.T) {
	needPerf(t)
	testenv.Need(t, runtime.GOARCH == "amd64", "x86-64")
	pid := proctest.Start(t, buildLive(t))
	p, _, stats := recordUntil(t, Options{
		PIDs: []int{pid}, Frequency: 499, Backend: Perf, CallGraph: CallGraph{By: ByDWARF, StackSize: 256},
	}, 400)
	cut := int64(0)
	for _, s := range p.Sample {
		if why, _ := profile.StackEnd(s); why == reason.StackUnreadable {
			cut += s.Value[0]
		}
	}
	if cut == 0 || uint64(cut) != stats.Cut {
		t.Errorf("%d stacks end where they are cut, %d are counted", cut, stats.Cut)
	}
	if !slices.ContainsFunc(p.Comments, func(c string) bool { return strings.Contains(c, "deeper") }) {
		t.Errorf("nothing tells of it: %q", p.Comments)
	}
}

// TestBeyond continues stacks by what frame pointers led to.
func TestBeyond(t *testing.T) {
	chain := []addr.Abs{10, 20, 30, 40, 50}
	for _, test := range []struct {
		name         string
		walked, want []addr.Abs
	}{
		{"the same so far", []addr.Abs{10, 20, 30}, []addr.Abs{40, 50}},
		{"frame pointers passed over a caller", []addr.Abs{10, 15, 20, 30}, []addr.Abs{40, 50}},
		{"frame pointers led through more", []addr.Abs{20, 30}, []addr.Abs{40, 50}},
		{"all of it", []addr.Abs{10, 20, 30, 40, 50}, nil},
		{"elsewhere", []addr.Abs{10, 20, 31}, nil},
		{"by chance the last one alone", []addr.Abs{10, 21, 30}, nil},
		{"far off", []addr.Abs{10, 11, 12, 13, 20, 30}, nil},
		{"the leaf alone", []addr.Abs{10}, nil},
		{"nothing", nil, nil},
	} {
		if got := beyond(test.walked, chain); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
	same := []addr.Abs{10, 20, 20, 20, 20, 30}
	if got := beyond(same[:3], same); !slices.Equal(got, same[3:]) {
		t.Errorf("recursion: %v", got)
	}
	for n := range same {
		beyond(same[:n], nil)
	}
}

// TestCopyContinues records code that keeps frame pointers, with copies that are too short for
// its stacks: frame pointers lead on, and stacks say that they do not say what is missing.
func TestCopyContinues(t *testing.T) {
	needPerf(t)
	testenv.Need(t, runtime.GOARCH == "amd64", "x86-64")
	file := filepath.Join(t.TempDir(), "deep")
	proctest.Compile(t, "gcc", file, "-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "testdata/deep.c")
	p, _, stats := recordUntil(t, Options{
		PIDs: []int{proctest.Start(t, file)}, Frequency: 499, Backend: Perf, CallGraph: CallGraph{By: ByDWARF, StackSize: 1024},
	}, 200)
	whole, total := int64(0), int64(0)
	for _, s := range p.Sample {
		names := userNames(s)
		if !slices.Contains(names, "work") {
			continue
		}
		total += s.Value[0]
		if why, _ := profile.StackEnd(s); why == reason.FramePointers && slices.Contains(names, "main") {
			whole += s.Value[0]
		}
	}
	if stats.Continued == 0 {
		t.Error("no stack goes on")
	}
	testenv.AtMost(t, "stacks that do not reach main", total-whole, total, 0.1)
	if !slices.ContainsFunc(p.Comments, func(c string) bool { return strings.Contains(c, ContinuedNote) }) {
		t.Errorf("nothing tells of it: %q", p.Comments)
	}
}

// TestCallersByDefault records code without frame pointers by the backend perf, as an ordinary
// user does who asks for nothing.
func TestCallersByDefault(t *testing.T) {
	needPerf(t)
	testenv.Need(t, runtime.GOARCH == "amd64", "x86-64")
	p, _, stats := recordUntil(t, Options{PIDs: []int{proctest.Start(t, buildLive(t))}, Frequency: 499, Backend: Perf}, 200)
	s := profile.MeasureStacks(p)
	if s == nil || stats.Copied == 0 {
		t.Fatalf("%+v, %d bytes copied", s, stats.Copied)
	}
	testenv.AtMost(t, "stacks that are not complete", s.Samples-s.Complete, s.Samples, 0.3)
}
