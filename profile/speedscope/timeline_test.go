package speedscope

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

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
