package fromperf

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/perftest"
	"hallmark/internal/testenv"
	"hallmark/perfdata"
	"hallmark/profile"
)

// TestTimesAgreeWithPerf compares the time of every sample, by thread, with what perf
// script prints.
func TestTimesAgreeWithPerf(t *testing.T) {
	for _, test := range []struct {
		args []string
		root bool
		wall bool // the recording has the time of day
	}{
		{args: []string{"-g", "-F", "999"}},
		{args: []string{"-g", "-F", "999", "-k", "CLOCK_MONOTONIC"}, wall: true},
		{args: []string{"-g", "-F", "999", "-k", "CLOCK_REALTIME"}, wall: true},
		{args: []string{"-g", "-a", "-F", "499"}, root: true},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			if test.root {
				testenv.Root(t)
			}
			file := perfRecord(t, test.args...)
			p, stats := readFile(t, file, Options{Times: true})
			if stats.Untimed != 0 {
				t.Errorf("%+v", stats)
			}
			if stats.Samples < 5 {
				testenv.Lack(t, "%d samples", stats.Samples)
			}
			r, err := perfdata.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			var move int64
			if c := r.Info().Clock; test.wall {
				if c.ClockID != clockRealtime { // which needs no translation
					move = int64(c.Wall) - int64(c.Time)
				}
				if first := slices.Min(allTimes(p)); p.TimeNanos != first {
					t.Errorf("the first sample was at %d, the profile begins at %d", first, p.TimeNanos)
				}
			} else if c != nil || p.TimeNanos != 0 {
				t.Errorf("the clock is %+v, and the profile begins at %d", c, p.TimeNanos)
			}
			compareTimes(t, timesByThread(t, p), perfTimes(t, file, move))
		})
	}
}

func compareTimes(t *testing.T, ours, theirs map[int64][]int64) {
	t.Helper()
	if !slices.Equal(slices.Sorted(maps.Keys(ours)), slices.Sorted(maps.Keys(theirs))) {
		t.Errorf("threads are %v, perf has %v", slices.Sorted(maps.Keys(ours)), slices.Sorted(maps.Keys(theirs)))
	}
	for tid := range ours {
		slices.Sort(ours[tid])
		slices.Sort(theirs[tid])
		if !slices.Equal(ours[tid], theirs[tid]) {
			t.Errorf("thread %d: times are\n%d\nperf has\n%d", tid, ours[tid], theirs[tid])
		}
	}
}

func allTimes(p *pprof.Profile) (all []int64) {
	for _, s := range p.Sample {
		all = append(all, profile.Times(s)...)
	}
	return all
}

// timesByThread returns the times of each thread. Each sample must have one.
func timesByThread(t *testing.T, p *pprof.Profile) map[int64][]int64 {
	t.Helper()
	all := map[int64][]int64{}
	for _, s := range p.Sample {
		_, tid := profile.Thread(s)
		times := profile.Times(s)
		if int64(len(times)) != s.Value[0] {
			t.Fatalf("%d samples with %d times", s.Value[0], len(times))
		}
		all[tid] = append(all[tid], times...)
	}
	return all
}

// perfTimes returns what perf script says, moved by a distance. A task that has ended has
// the number -1 there, and none in a profile.
func perfTimes(t *testing.T, file string, move int64) map[int64][]int64 {
	t.Helper()
	all := map[int64][]int64{}
	for line := range strings.Lines(string(perftest.Run(t, "script", "--ns", "-F", "tid,time", "-i", file))) {
		fields := strings.Fields(line)
		if len(fields) != 2 {
			t.Fatalf("perf script has %q", line)
		}
		tid, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ns, err := strconv.ParseInt(strings.Replace(strings.TrimSuffix(fields[1], ":"), ".", "", 1), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		all[max(tid, 0)] = append(all[max(tid, 0)], ns+move)
	}
	return all
}

// TestTimesOnlyWhenWanted has none without Options.Times, and none of a recording that
// has none.
func TestTimesOnlyWhenWanted(t *testing.T) {
	file := perfRecord(t, "-g", "-F", "999")
	p, _ := readFile(t, file, Options{})
	if all := allTimes(p); all != nil {
		t.Errorf("%d times that nobody wants", len(all))
	}
	untimed := `event {Name="cpu-clock" Attr={Type=1 Period=1000000 Fields=IP|TID|CALLCHAIN|PERIOD Flags=0x40000}}`
	p, _, err := fromText(t, Options{Times: true}, untimed, `0 Sample {PID=1 TID=1 Period=1 Callchain=[`+user+` 0x1000]}`)
	if err != nil {
		t.Fatal(err)
	}
	if all := allTimes(p); all != nil {
		t.Errorf("times %d of a recording that has none", all)
	}
}

// TestTimesKeep gives back what was added, in many pieces, moved.
func TestTimesKeep(t *testing.T) {
	line, want := newTimes(), make([][]int64, 1000)
	for i := range uint64(100_000) {
		number, at := int(i*i%1000), 1<<40+i*10_000_000-i%3*20_000_000 // not quite in order
		line.add(number, at)
		want[number] = append(want[number], int64(at)-5)
	}
	for number, got := range line.all(1000, -5) {
		if !slices.Equal(got, want[number]) {
			t.Fatalf("%d has %v, want %v", number, got, want[number])
		}
	}
	if line.cut != 0 {
		t.Errorf("%d cut", line.cut)
	}
}

// TestTimesAreBounded counts what there is no room for, and drops what is no time.
func TestTimesAreBounded(t *testing.T) {
	line := newTimes()
	line.room = 1000
	for i := range uint64(1000) {
		line.add(0, i+1)
	}
	kept := len(line.all(1, 0)[0])
	if line.cut == 0 || kept < 100 || int64(kept)+line.cut != 1000 {
		t.Errorf("%d times kept, %d cut", kept, line.cut)
	}
	line = newTimes()
	for _, at := range []uint64{0, 7, 1 << 63, 1<<64 - 1, 1 << 62, 9, 4} {
		line.add(0, at)
	}
	if got := fmt.Sprint(line.all(1, -5)[0]); got != "[2 4]" {
		t.Errorf("got %s", got)
	}
}
