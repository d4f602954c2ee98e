package capture

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/objects"
	"hallmark/internal/perfring"
	"hallmark/internal/proctest"
	"hallmark/internal/reach"
	"hallmark/internal/testenv"
	"hallmark/procmap"
	"hallmark/profile"
)

// TestAgreesWithPerf lets perf record the same process at the same time. The stack
// that is seen most must be the same function by function, and perf must know the
// program by the same build ID.
func TestAgreesWithPerf(t *testing.T) {
	needPerf(t)
	perf := testenv.Tool(t, "perf")
	file := proctest.BuildC(t)
	pid := proctest.Start(t, file)
	data := filepath.Join(t.TempDir(), "perf.data")
	theirs := exec.Command(perf, "record", "-q", "-N", "-g", "-e", "cpu-clock", "-F", "499", "--buildid-mmap",
		"-o", data, "-p", fmt.Sprint(pid), "--", "sleep", "1")
	if err := theirs.Start(); err != nil {
		t.Fatal(err)
	}
	p, _, _ := recordSession(t, context.Background(), Options{PIDs: []int{pid}, Duration: time.Second, CallGraph: CallGraph{By: ByFP}})
	if err := theirs.Wait(); err != nil {
		t.Fatalf("perf record: %v", err)
	}
	if len(p.Sample) == 0 {
		testenv.Lack(t, "no samples")
	}
	ours, want := commonStack(p), perfStack(t, perf, data)
	if !slices.Equal(ours, want) {
		t.Errorf("the stack seen most is\n%v, perf has\n%v", ours, want)
	}
	list, err := exec.Command(perf, "buildid-list", "-i", data).Output()
	if err != nil {
		t.Fatalf("perf buildid-list: %v", err)
	}
	for _, m := range p.Mapping {
		if m.File == file && !strings.Contains(string(list), m.BuildID+" "+file) {
			t.Errorf("%s has build ID %s, perf says\n%s", file, m.BuildID, list)
		}
	}
}

// commonStack returns the names of the functions of user code, leaf first, of the
// stack with the most samples.
func commonStack(p *pprof.Profile) []string {
	best := slices.MaxFunc(p.Sample, func(a, b *pprof.Sample) int { return int(a.Value[0] - b.Value[0]) })
	var names []string
	for c := range profile.Calls(best) {
		if !c.Kernel() && c.Function != nil {
			names = append(names, c.Function.Name)
		}
	}
	return names
}

// perfStack returns the same from a perf.data file.
func perfStack(t *testing.T, perf, data string) []string {
	t.Helper()
	out, err := exec.Command(perf, "script", "-i", data, "-F", "ip,sym", "--no-inline").Output()
	if err != nil {
		t.Fatalf("perf script: %v", err)
	}
	counts := map[string]int{}
	for stack := range strings.SplitSeq(string(out), "\n\n") {
		var names []string
		for line := range strings.Lines(stack) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[1] != "[unknown]" && len(fields[0]) < 16 {
				names = append(names, fields[1])
			}
		}
		counts[strings.Join(names, " ")]++
	}
	best := ""
	for names, n := range counts {
		if n > counts[best] {
			best = names
		}
	}
	return strings.Fields(best)
}

// TestReadAgainCountsFromThen reads the mappings of a process again, for a sample of before: they count
// from then on, and before only where nothing else is known, and for not long.
func TestReadAgainCountsFromThen(t *testing.T) {
	vmas, err := reach.Mappings(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	var text, vdso procmap.VMA
	for _, v := range vmas {
		switch {
		case v.Perm&procmap.Exec == 0:
		case v.Name == "[vdso]":
			vdso = v
		case text.End == 0 && v.FileBacked():
			text = v
		}
	}
	for name, behind := range map[string]uint64{"in time": 0, "late": 2 * maxBehind} {
		t.Run(name, func(t *testing.T) {
			s := objects.New()
			defer s.Close()
			tracker := &tracker{tally: &tally{objects: s}, processes: map[uint32]*process{}}
			before := new(objects.Object)
			p := newProcess(uint32(os.Getpid()), 0, "")
			p.space.Insert(mapping{Start: text.Start, End: text.End, Of: before})
			tracker.refresh(p, vdso.Start, perfring.Monotonic()-behind)
			if p.space.Find(text.Start).Of != before {
				t.Error("what is mapped now is taken for what was mapped before")
			}
			if isKnown := p.space.Find(vdso.Start) != nil; isKnown == (behind > 0) {
				t.Errorf("where nothing was known to be mapped something is: %v", isKnown)
			}
			p.catchUp(p.freshAsOf)
			if m := p.space.Find(text.Start); m.Of == before || p.space.Find(vdso.Start) == nil {
				t.Error("what was read does not count later on")
			}
		})
	}
}
