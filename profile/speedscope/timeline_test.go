package speedscope

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/proftest"
	"hallmark/profile"
)

// TestTimeline has two threads with samples at known times, and samples without.
func TestTimeline(t *testing.T) {
	const ms = 1_000_000
	m := proftest.New()
	f := m.Mapping("/bin/a", proftest.AppID, 0x400000)
	for _, sample := range []struct {
		tid      int64
		function string
		count    int64
		times    []int64 // ms
	}{
		{1, "one", 2, []int64{130, 110}},
		{1, "two", 1, []int64{117}}, // the timer was early: it would overlap
		{2, "one", 1, []int64{200}},
		{2, "two", 3, []int64{240}}, // the times of two were not kept
		{2, "three", 1, nil},
	} {
		m.Sample("app", 7, sample.count, m.Location(f, 0x401000, sample.function))
		s := m.Profile.Sample[len(m.Profile.Sample)-1]
		s.NumLabel["tid"] = []int64{sample.tid}
		s.Label["thread"] = []string{"worker"}
		var times []int64
		for _, at := range sample.times {
			times = append(times, 1_800_000_000_000*ms+at*ms)
		}
		profile.AddTimes(s, times)
	}
	d := write(t, m.Profile, Options{})
	type step struct {
		stack string
		ms    int64
	}
	want := map[string][]step{
		"app (7), thread worker (1)": {{"app one", 10}, {"app two", 10}, {"app one", 10}},
		"app (7), thread worker (2)": {{"", 90}, {"app one", 10}, {"", 30}, {"app two", 10}},
		"cpu":                        {{"app two", 20}, {"app three", 10}},
	}
	got := map[string][]step{}
	for _, p := range d.Profiles {
		for i, stack := range p.Samples {
			name := ""
			for _, frame := range stack {
				if name != "" {
					name += " "
				}
				name += *d.Shared.Frames[frame].Name
			}
			got[p.Name] = append(got[p.Name], step{name, p.Weights[i] / ms})
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if d.Profiles[0].Name != "app (7), thread worker (1)" {
		t.Errorf("%q comes before the busiest thread", d.Profiles[0].Name)
	}
}

// TestOrderOfCounts wants events in the order of time, without room between them.
func TestOrderOfCounts(t *testing.T) {
	m := proftest.New()
	f := m.Mapping("/bin/a", proftest.AppID, 0x400000)
	m.Sample("app", 7, 3, m.Location(f, 0x401000, "one"))
	m.Sample("app", 7, 1, m.Location(f, 0x402000, "two"))
	m.Sample("app", 7, 4, m.Location(f, 0x403000, "three"))
	profile.AddTimes(m.Profile.Sample[0], []int64{100, 900, 200})
	profile.AddTimes(m.Profile.Sample[1], []int64{300})
	d := write(t, m.Profile, Options{SampleType: "samples"})
	var got []string
	for _, p := range d.Profiles {
		for i, stack := range p.Samples {
			got = append(got, fmt.Sprintf("%s %d", *d.Shared.Frames[stack[len(stack)-1]].Name, p.Weights[i]))
		}
	}
	if want := []string{"one 1", "one 1", "two 1", "one 1", "three 4"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if p := d.Profiles[0]; p.Unit != "none" || *p.EndValue != 4 {
		t.Errorf("unit %q, end %d", p.Unit, *p.EndValue)
	}
}

// TestForeignTimes has a label of the same name that means something else.
func TestForeignTimes(t *testing.T) {
	m := proftest.New()
	m.Sample("app", 7, 1)
	m.Profile.Sample[0].NumLabel["timestamp"] = []int64{5}
	if d := write(t, m.Profile, Options{}); d.Profiles[0].Name != "cpu" {
		t.Errorf("a timeline %q", d.Profiles[0].Name)
	}
}

// step is a stack of a thread.
type step struct {
	stack  string
	weight int64
}

// laid lays out the steps of each thread, with all of them in memory. Stacks are known by
// their first location.
func laid(p *pprof.Profile, toScale bool, index int) map[string][]step {
	type moment struct {
		time, weight int64
		stack        string
	}
	threads, start := map[string][]moment{}, int64(math.MaxInt64)
	for _, s := range p.Sample {
		times, left := profile.Times(s), s.Value[index]
		count := max(s.Value[0], int64(len(times)))
		if left < count {
			continue
		}
		_, tid := profile.Thread(s)
		name := fmt.Sprintf("app (7), thread worker (%d)", tid)
		for i, at := range times {
			weight := s.Value[index] / count
			if int64(i) == count-1 {
				weight = left
			}
			left -= weight
			threads[name] = append(threads[name], moment{at, weight, s.Location[0].Line[0].Function.Name})
		}
	}
	steps := map[string][]step{}
	for _, list := range threads {
		slices.SortStableFunc(list, func(a, b moment) int { return cmp.Compare(a.time, b.time) })
		start = min(start, list[0].time-list[0].weight)
	}
	for name, list := range threads {
		end := start
		for _, m := range list {
			if gap := m.time - m.weight - end; gap > 0 && toScale {
				steps[name] = append(steps[name], step{"", gap})
				end += gap
			}
			steps[name] = append(steps[name], step{m.stack, m.weight})
			end += m.weight
		}
	}
	return steps
}

// TestSteps wants every step where a plain way puts it, of random samples with times for all,
// some or none of what they count, mostly in order.
func TestSteps(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 6))
		m := proftest.New()
		f := m.Mapping("/bin/a", proftest.AppID, 0x400000)
		for i := range 1 + random.IntN(30) {
			m.Sample("app", 7, random.Int64N(20), m.Location(f, 0x401000+uint64(i), fmt.Sprint("f", i)))
			s := m.Profile.Sample[i]
			s.Value[1] = random.Int64N(3) * random.Int64N(1e9)
			s.NumLabel["tid"], s.Label["thread"] = []int64{1 + random.Int64N(3)}, []string{"worker"}
			times := make([]int64, random.Int64N(s.Value[0]+2)) // that may be one too many
			for k := range times {
				times[k] = 1_800_000_000_000_000_000 + random.Int64N(40)*random.Int64N(1e9)
			}
			if random.IntN(3) > 0 {
				slices.Sort(times)
			}
			profile.AddTimes(s, times)
		}
		for index, sampleType := range m.Profile.SampleType {
			d, got := write(t, m.Profile, Options{SampleType: sampleType.Type}), map[string][]step{}
			for _, p := range d.Profiles {
				for i, stack := range p.Samples {
					one := step{"", p.Weights[i]}
					if len(stack) > 0 {
						one.stack = *d.Shared.Frames[stack[len(stack)-1]].Name
					}
					if p.Name != sampleType.Type { // what has no time
						got[p.Name] = append(got[p.Name], one)
					}
				}
			}
			if want := laid(m.Profile, sampleType.Unit == "nanoseconds", index); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, %s: got\n%v, want\n%v", seed, sampleType.Type, got, want)
			}
		}
	}
}
