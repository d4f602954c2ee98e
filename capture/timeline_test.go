package capture

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"hallmark/internal/proctest"
	"hallmark/profile"
)

// TestTimelineOrder records two programs one after the other.
func TestTimelineOrder(t *testing.T) { eachBackend(t, timelineOrder) }

func timelineOrder(t *testing.T, backend Backend) {
	file := proctest.BuildC(t)
	before := time.Now()
	p, _, stats := recordCommand(t, Options{Backend: backend, Timeline: true}, "sh", "-c", `"$0" 150; "$0" 150 other`, file)
	after := time.Now()
	times := map[string][]int64{}
	for _, s := range p.Sample {
		at := profile.Times(s)
		if int64(len(at)) != s.Value[0] {
			t.Fatalf("%d samples with %d times", s.Value[0], len(at))
		}
		_, pid := profile.Process(s)
		for _, ns := range at {
			if ns < before.UnixNano() || ns > after.UnixNano() {
				t.Fatalf("a sample at %v, of a recording from %v to %v", time.Unix(0, ns), before, after)
			}
		}
		for c := range profile.Calls(s) {
			if c.Name() == "burn" {
				times[fmt.Sprint(pid)] = append(times[fmt.Sprint(pid)], at...)
			}
		}
	}
	var ranges [][2]int64
	for _, at := range times {
		ranges = append(ranges, [2]int64{slices.Min(at), slices.Max(at)})
	}
	slices.SortFunc(ranges, func(a, b [2]int64) int { return int(a[0] - b[0]) })
	if len(ranges) != 2 || ranges[0][1] > ranges[1][0] {
		t.Errorf("two programs ran from to %v, of %d samples", ranges, stats.Samples)
	}
}

// TestTimelineKeeps gives back what was added, in many pieces.
func TestTimelineKeeps(t *testing.T) {
	line := newTimeline()
	want := map[counted][]int64{}
	for i := range uint64(100_000) {
		key := counted{uint32(i*i) % 1000, uint32(i % 7)}
		at := 1<<40 + i*10_000_000 - i%3*20_000_000 // not quite in order
		line.add(key, at)
		want[key] = append(want[key], line.epoch+int64(at))
	}
	got := line.times()
	if len(got) != len(want) || line.cut != 0 {
		t.Fatalf("%d keys, want %d, %d cut", len(got), len(want), line.cut)
	}
	for key := range want {
		if !slices.Equal(got[key], want[key]) {
			t.Fatalf("%v has %v, want %v", key, got[key], want[key])
		}
	}
}

// TestTimelineIsBounded counts what there is no room for.
func TestTimelineIsBounded(t *testing.T) {
	line := newTimeline()
	line.room = 1000
	for i := range uint64(1000) {
		line.add(counted{}, i)
	}
	kept := len(line.times()[counted{}])
	if line.cut == 0 || kept == 0 || uint64(kept)+line.cut != 1000 {
		t.Errorf("%d times kept, %d cut", kept, line.cut)
	}
}
