package firefox

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/proftest"
	"hallmark/profile"
)

// The types of what is written as it comes, as encoding/json takes them.
type (
	wholeFile struct {
		Meta             meta          `json:"meta"`
		Libs             []lib         `json:"libs"`
		Pages            []any         `json:"pages"`
		Counters         []any         `json:"counters"`
		ProfilerOverhead []any         `json:"profilerOverhead"`
		Threads          []wholeThread `json:"threads"`
	}
	wholeThread struct {
		ProcessType         string        `json:"processType"`
		ProcessStartupTime  float64       `json:"processStartupTime"`
		ProcessShutdownTime *float64      `json:"processShutdownTime"`
		RegisterTime        float64       `json:"registerTime"`
		UnregisterTime      *float64      `json:"unregisterTime"`
		PausedRanges        []any         `json:"pausedRanges"`
		ProcessName         string        `json:"processName,omitempty"`
		Name                string        `json:"name"`
		IsMainThread        bool          `json:"isMainThread"`
		PID                 string        `json:"pid"`
		TID                 int64         `json:"tid"`
		Samples             wholeSamples  `json:"samples"`
		Markers             wholeMarkers  `json:"markers"`
		StackTable          shownStacks   `json:"stackTable"`
		FrameTable          frameTable    `json:"frameTable"`
		FuncTable           funcTable     `json:"funcTable"`
		ResourceTable       resourceTable `json:"resourceTable"`
		NativeSymbols       wholeSymbols  `json:"nativeSymbols"`
		StringArray         []string      `json:"stringArray"`
	}
	wholeSamples struct {
		Length     int       `json:"length"`
		Stack      []*int    `json:"stack"`
		Time       []float64 `json:"time"`
		Weight     []float64 `json:"weight"`
		WeightType string    `json:"weightType"`
		CPU        []float64 `json:"threadCPUDelta,omitempty"`
	}
	wholeMarkers struct {
		Length    int   `json:"length"`
		Data      []any `json:"data"`
		Name      []any `json:"name"`
		StartTime []any `json:"startTime"`
		EndTime   []any `json:"endTime"`
		Phase     []any `json:"phase"`
		Category  []any `json:"category"`
	}
	wholeSymbols struct {
		Length       int   `json:"length"`
		LibIndex     []any `json:"libIndex"`
		Address      []any `json:"address"`
		Name         []any `json:"name"`
		FunctionSize []any `json:"functionSize"`
	}
)

// write returns what is written, after a look that encoding/json writes the same of what it
// reads there.
func write(t *testing.T, p *pprof.Profile, o Options) wholeFile {
	t.Helper()
	var got, want bytes.Buffer
	if err := Write(&got, p, o); err != nil {
		t.Fatal(err)
	}
	var f wholeFile
	d := json.NewDecoder(bytes.NewReader(got.Bytes()))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		t.Fatal(err)
	}
	e := json.NewEncoder(&want)
	e.SetEscapeHTML(false)
	if err := e.Encode(f); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Fatalf("written:\n%s\nencoding/json writes:\n%s", &got, &want)
	}
	return f
}

// shown is a sample of a thread.
type shown struct{ time, weight, cpu float64 }

// laid lays out all samples by thread, with all of them in memory.
func laid(p *pprof.Profile, index int) map[owner][]shown {
	type timed struct{ time, weight int64 }
	times, rest, all := map[owner][]timed{}, map[owner][]int64{}, map[owner][]shown{}
	start, u := startOf(p), unitOf(p.SampleType[index].Unit)
	for _, s := range p.Sample {
		var o owner
		o.process, o.pid = profile.Process(s)
		o.thread, o.tid = profile.Thread(s)
		left, count := s.Value[index], max(s.Value[0], int64(len(profile.Times(s))))
		if left >= count {
			for i, at := range profile.Times(s) {
				part := left / (count - int64(i))
				left -= part
				times[o] = append(times[o], timed{at - start, part})
			}
		}
		if left > 0 {
			rest[o] = append(rest[o], left)
		}
		all[o] = nil
	}
	for o := range all {
		slices.SortStableFunc(times[o], func(a, b timed) int { return cmp.Compare(a.time, b.time) })
		at := int64(0)
		for _, weight := range rest[o] {
			one := shown{time: float64(at) / 1e6, weight: float64(weight) * u.scale}
			if len(times[o]) > 0 {
				one.time = float64(times[o][0].time) / 1e6
			}
			all[o] = append(all[o], one)
			if u.name == unitTime {
				at += int64(float64(weight) * u.scale * 1e6)
			} else {
				at += 1e6
			}
		}
		for _, m := range times[o] {
			one := shown{time: float64(m.time) / 1e6, weight: float64(m.weight) * u.scale}
			if u.name == unitTime && len(rest[o]) == 0 {
				one.cpu = float64(m.weight) * u.scale * 1e3
			}
			all[o] = append(all[o], one)
		}
		if len(all[o]) == 0 {
			delete(all, o)
		}
	}
	return all
}

// shownStacks is the stackTable of the format.
type shownStacks struct {
	Length      int    `json:"length"`
	Frame       []int  `json:"frame"`
	Prefix      []*int `json:"prefix"`
	Category    []int  `json:"category"`
	Subcategory []int  `json:"subcategory"`
}

// randomProfile has samples of some threads with times for all, some or none of what they
// count, mostly in order.
func randomProfile(random *rand.Rand) *pprof.Profile {
	p := proftest.Mixed()
	for _, like := range slices.Clone(p.Sample) {
		for range random.IntN(3) {
			s := *like
			s.Value = slices.Clone(s.Value)
			p.Sample = append(p.Sample, &s)
		}
	}
	processes, threads := []string{"", "a"}, []string{"", "<b> & \"c\"", "\u2028"}
	for _, s := range p.Sample {
		s.Label = map[string][]string{"process": {processes[random.IntN(2)]}, "thread": {threads[random.IntN(3)]}}
		s.NumLabel = map[string][]int64{"pid": {random.Int64N(2)}, "tid": {random.Int64N(3)}}
		s.Value[0] = random.Int64N(20)
		s.Value[1] = random.Int64N(3) * random.Int64N(1e9)
		times := make([]int64, random.Int64N(s.Value[0]+2)) // that may be one too many
		for i := range times {
			times[i] = 1_700_000_000_000_000_000 + random.Int64N(40)*random.Int64N(1e6)
		}
		if random.IntN(3) > 0 {
			slices.Sort(times)
		}
		profile.AddTimes(s, times)
	}
	return p
}

// TestSamples wants every sample where a plain way puts it, of profiles with all there is.
func TestSamples(t *testing.T) {
	for seed := range uint64(300) {
		p := randomProfile(rand.New(rand.NewPCG(seed, 5)))
		for index, sampleType := range p.SampleType {
			want, got := map[string][]shown{}, map[string][]shown{}
			for o, list := range laid(p, index) {
				want[fmt.Sprintf("%q of %q, %s/%d", cmp.Or(o.thread, o.process, "profile"), cmp.Or(o.process, "profile"), o.number(), o.tid)] = list
			}
			var last float64
			for i, th := range write(t, p, Options{Name: "<name>", SampleType: sampleType.Type}).Threads {
				who, total := fmt.Sprintf("%q of %q, %s/%d", th.Name, th.ProcessName, th.PID, th.TID), 0.0
				for k, at := range th.Samples.Time {
					one := shown{time: at, weight: th.Samples.Weight[k]}
					if th.Samples.CPU != nil {
						one.cpu = th.Samples.CPU[k]
					}
					got[who] = append(got[who], one)
					total += th.Samples.Weight[k]
				}
				if i > 0 && total > last*(1+1e-9) {
					t.Errorf("seed %d: %s stands behind one that weighs less", seed, who)
				}
				last = total
			}
			compareShown(t, fmt.Sprintf("seed %d, %s", seed, sampleType.Type), got, want)
		}
	}
}

func compareShown(t *testing.T, what string, got, want map[string][]shown) {
	t.Helper()
	for who := range want {
		if !slices.Equal(got[who], want[who]) {
			t.Errorf("%s: %s has\n%v, want\n%v", what, who, got[who], want[who])
		}
	}
	for who := range got {
		if want[who] == nil {
			t.Errorf("%s: %s is not in the profile", what, who)
		}
	}
}

// TestEncoding has encoding/json write the same of real profiles, and of one that is empty.
func TestEncoding(t *testing.T) {
	for _, p := range []*pprof.Profile{proftest.CPU(t), proftest.Heap(t), proftest.New().Profile} {
		write(t, p, Options{})
	}
}
