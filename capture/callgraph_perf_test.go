package capture

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/testenv"
	"hallmark/profile"
	"hallmark/reason"
)

// buildLive builds a program that keeps no frame pointers, in threads and signal handlers.
func buildLive(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "live")
	compile(t, "gcc", file, "-O1", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-pthread", "../unwind/testdata/live.c")
	return file
}

// TestCopiedStacks records code without frame pointers. Nearly every stack must reach the
// beginning of its thread, in the callers that the source says. A copy has one stack: what a
// handler on another one interrupted is not in it, nor what the kernel interrupts while it
// goes to a handler.
func TestCopiedStacks(t *testing.T) {
	needPerf(t)
	testenv.Need(t, runtime.GOARCH == "amd64", "x86-64")
	pid := start(t, buildLive(t))
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
	pid := start(t, buildLive(t))
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
