package capture

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"hallmark/internal/bpf"
	"hallmark/internal/kernelcode"
	"hallmark/internal/objects"
	"hallmark/internal/procfs"
	"hallmark/internal/rewrites"
	"hallmark/internal/testenv"
	"hallmark/unwind"
)

var updateBudget = flag.Bool("update", false, "rewrite the golden of what a replay takes")

// A replay gives the sampler of BPF programs what these would give it in some rounds.
const (
	replayStacks = 500 // new in the first round, each of so many frames
	replayFrames = 40
	replayOwners = 10 // of each stack
)

// newReplay returns a sampler without programs.
func newReplay(tb testing.TB) *bpfSampler {
	o := objects.New()
	tb.Cleanup(o.Close)
	t := &tally{objects: o, kernel: kernelcode.New(""), inside: o.Kernel(), stacks: newStacks(), cgroups: procfs.NewCgroups(nil), perSample: 1}
	t.rewrites = rewrites.New(o, &t.looks)
	tb.Cleanup(t.rewrites.Close)
	return &bpfSampler{bpfEvents: bpfEvents{tally: t}, bodies: map[bpf.StackID]*body{}}
}

// replayIntroduce introduces the stacks.
func replayIntroduce(s *bpfSampler) {
	for i := range uint64(replayStacks) {
		frames := make([]bpf.Frame, replayFrames)
		for f := range frames {
			frames[f] = bpf.Frame{Kind: bpf.InKernel, At: 0xffffffff81000000 + i*uint64(f)}
			if f > replayFrames/2 {
				frames[f].Kind = bpf.Written
			}
		}
		s.Stack(bpf.StackID{A: i, B: i}, frames, unwind.Complete)
	}
}

// replayCount counts a round.
func replayCount(t testing.TB, s *bpfSampler) {
	for i := range uint64(replayStacks) {
		for owner := range uint32(replayOwners) {
			c := bpfCount{bpf.StackID{A: i, B: i}, bpf.Task{TID: owner, Process: "process", Thread: "thread"}, 3}
			if !s.count(c) {
				t.Fatal("a stack is not known")
			}
		}
	}
}

// TestReplayBudget compares what a replay allocates with a golden, so that a change that costs shows.
func TestReplayBudget(t *testing.T) {
	s := newReplay(t)
	var got strings.Builder
	part := func(name string, f func()) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		fmt.Fprintf(&got, "%-12s %9d allocations %9d bytes\n", name, after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc)
	}
	part("new stacks", func() { replayIntroduce(s) })
	part("first round", func() { replayCount(t, s) })
	part("ten rounds", func() {
		for range 10 {
			replayCount(t, s)
		}
	})
	if want := int64(11 * replayStacks * replayOwners * 3); s.stats.Samples != uint64(want) || s.tally.stacks.counts.Len() != replayStacks*replayOwners {
		t.Errorf("%d samples, %d entries", s.stats.Samples, s.tally.stacks.counts.Len())
	}
	if testenv.Race {
		return // the detector allocates too
	}
	compareBudget(t, filepath.Join("testdata", "replay.txt"), got.String())
}

// compareBudget wants no number to be more than a tenth above that of a golden, nor far below: then the golden
// is out of date.
func compareBudget(t *testing.T, golden, got string) {
	t.Helper()
	if *updateBudget {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	have, wanted := strings.Fields(got), strings.Fields(string(want))
	same := len(have) == len(wanted)
	for i := 0; same && i < len(have); i++ {
		var n, w float64
		_, notNumber := fmt.Sscan(have[i], &n)
		if _, err := fmt.Sscan(wanted[i], &w); err != nil || notNumber != nil {
			same = have[i] == wanted[i]
		} else {
			same = n <= w*1.1+100 && n >= w*0.7-100
		}
	}
	if !same {
		t.Errorf("it takes\n%s%s has\n%s(go test -run '^%s$' -update rewrites it)", got, golden, want, t.Name())
	}
}

// BenchmarkReplay counts a round of stacks that are known.
func BenchmarkReplay(b *testing.B) {
	s := newReplay(b)
	replayIntroduce(s)
	replayCount(b, s)
	b.ReportAllocs()
	for b.Loop() {
		replayCount(b, s)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(replayStacks*replayOwners), "ns/count")
}

// TestCountAgain counts the same samples with and without what is remembered of stacks that were counted, with
// so little room that owners and stacks are folded.
func TestCountAgain(t *testing.T) {
	for _, most := range []int{20, 200, 2000} {
		fast, slow := newReplay(t), newReplay(t)
		r := rand.New(rand.NewPCG(1, uint64(most)))
		for _, s := range []*bpfSampler{fast, slow} {
			replayIntroduce(s)
			s.stacks.most = most
			s.bodies[bpf.StackID{A: 7, B: 7}].private = true
		}
		for range 3000 {
			i, tid := r.Uint64N(60), r.Uint32N(20)
			c := bpfCount{bpf.StackID{A: i, B: i}, bpf.Task{TID: tid, Process: fmt.Sprint("process", tid%3)}, 1 + r.Uint64N(3)}
			for _, b := range slow.bodies {
				b.index = 0
			}
			if !fast.count(c) || !slow.count(c) {
				t.Fatal("a stack is not known")
			}
		}
		f, s := fast.stacks, slow.stacks
		if !slices.Equal(f.counts.All(), s.counts.All()) || !slices.Equal(f.totals, s.totals) || !slices.Equal(f.owners.All(), s.owners.All()) || f.walks.Len() != s.walks.Len() || fast.stats.Coarse != slow.stats.Coarse || fast.stats.Samples != slow.stats.Samples {
			t.Errorf("room for %d: %d and %d entries, %d and %d coarse", most, f.counts.Len(), s.counts.Len(), fast.stats.Coarse, slow.stats.Coarse)
		}
		if fast.bodies[bpf.StackID{A: 7, B: 7}].index != 0 {
			t.Error("a stack that is another one in each process is remembered")
		}
	}
}
