package firefox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/proftest"
	"hallmark/profile"
	"hallmark/profile/folded"
)

// loaded is what any reader of JSON makes of the file.
type loaded struct {
	t    *testing.T
	file map[string]any
}

func load(t *testing.T, p *pprof.Profile, o Options) loaded {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, p, o); err != nil {
		t.Fatal(err)
	}
	l := loaded{t: t}
	if err := json.Unmarshal(b.Bytes(), &l.file); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l loaded) list(of any, name string) []any {
	l.t.Helper()
	list, ok := of.(map[string]any)[name].([]any)
	if !ok {
		l.t.Fatalf("%s is no list", name)
	}
	return list
}

// column returns numbers, NaN for null.
func (l loaded) column(table any, name string) []float64 {
	l.t.Helper()
	var numbers []float64
	for _, v := range l.list(table, name) {
		n, ok := v.(float64)
		if !ok {
			n = math.NaN()
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// within checks that the numbers of a column are null where that may be, or from low to
// below the limit.
func (l loaded) within(table any, name string, low, limit int, null bool) {
	l.t.Helper()
	for i, n := range l.column(table, name) {
		switch {
		case math.IsNaN(n) && null:
		case n >= float64(low) && n < float64(limit) && n == math.Trunc(n):
		default:
			l.t.Errorf("%s[%d] is %v, not from %d to below %d", name, i, n, low, limit)
		}
	}
}

// length checks that all columns of a table are as long as it says.
func (l loaded) length(of map[string]any, name string) int {
	l.t.Helper()
	table := of[name].(map[string]any)
	n := int(table["length"].(float64))
	for column, v := range table {
		if list, ok := v.([]any); ok && len(list) != n {
			l.t.Errorf("%s.%s has %d entries of %d", name, column, len(list), n)
		}
	}
	return n
}

// check goes by the types of the profiler. It returns how much each stack weighs, as
// folded stacks have it but for the marks of the kernel.
func (l loaded) check() map[string]float64 {
	l.t.Helper()
	stacks := map[string]float64{}
	categories := len(l.list(l.file["meta"], "categories"))
	libs := len(l.file["libs"].([]any))
	for _, each := range l.file["threads"].([]any) {
		th := each.(map[string]any)
		texts := len(th["stringArray"].([]any))
		nSamples, nStacks, nFrames := l.length(th, "samples"), l.length(th, "stackTable"), l.length(th, "frameTable")
		nFuncs, nResources := l.length(th, "funcTable"), l.length(th, "resourceTable")
		l.length(th, "markers")
		l.length(th, "nativeSymbols")
		l.within(th["samples"], "stack", 0, nStacks, true)
		l.within(th["stackTable"], "frame", 0, nFrames, false)
		l.within(th["stackTable"], "category", 0, categories, false)
		l.within(th["frameTable"], "category", 0, categories, false)
		l.within(th["frameTable"], "func", 0, nFuncs, false)
		l.within(th["frameTable"], "address", -1, 1<<53, false)
		l.within(th["funcTable"], "name", 0, texts, false)
		l.within(th["funcTable"], "fileName", 0, texts, true)
		l.within(th["funcTable"], "resource", -1, nResources, false)
		l.within(th["resourceTable"], "lib", 0, libs, true)
		l.within(th["resourceTable"], "name", 0, texts, false)
		prefixes := l.column(th["stackTable"], "prefix")
		for i, p := range prefixes {
			if !math.IsNaN(p) && (p < 0 || p >= float64(i)) {
				l.t.Errorf("stack %d was called from %v", i, p)
			}
		}
		name := func(stack float64) string {
			var names []string
			for ; !math.IsNaN(stack); stack = prefixes[int(stack)] {
				frame := l.column(th["stackTable"], "frame")[int(stack)]
				f := l.column(th["frameTable"], "func")[int(frame)]
				n := l.column(th["funcTable"], "name")[int(f)]
				names = append([]string{strings.ReplaceAll(l.list(th, "stringArray")[int(n)].(string), ";", ":")}, names...)
			}
			if process, _ := th["processName"].(string); process != "profile" {
				names = append([]string{process}, names...)
			}
			return strings.Join(names, ";")
		}
		times, weights := l.column(th["samples"], "time"), l.column(th["samples"], "weight")
		for i, stack := range l.column(th["samples"], "stack") {
			if i > 0 && times[i] < times[i-1] {
				l.t.Errorf("sample %d is before the one before it", i)
			}
			stacks[name(stack)] += weights[i]
		}
		if nSamples == 0 {
			l.t.Error("a thread has no samples")
		}
	}
	return stacks
}

// foldedStacks are those of another writer.
func foldedStacks(t *testing.T, p *pprof.Profile, sampleType string) map[string]float64 {
	t.Helper()
	var b bytes.Buffer
	if err := folded.Write(&b, p, folded.Options{SampleType: sampleType}); err != nil {
		t.Fatal(err)
	}
	stacks := map[string]float64{}
	for line := range strings.Lines(b.String()) {
		i := strings.LastIndexByte(line, ' ')
		var n float64
		fmt.Sscan(line[i+1:], &n)
		stacks[strings.ReplaceAll(line[:i], "_[k]", "")] += n
	}
	return stacks
}

func TestSameStacks(t *testing.T) {
	for name, p := range map[string]*pprof.Profile{"cpu": proftest.CPU(t), "heap": proftest.Heap(t), "mixed": proftest.Mixed()} {
		for _, sampleType := range p.SampleType {
			got := load(t, p, Options{SampleType: sampleType.Type}).check()
			want := foldedStacks(t, p, sampleType.Type)
			if sampleType.Unit == "nanoseconds" {
				for stack := range want {
					want[stack] = math.Round(want[stack])
					got[stack] = math.Round(got[stack] * 1e6)
				}
			}
			if !maps.Equal(got, want) {
				t.Errorf("%s, %s: stacks %v, want %v", name, sampleType.Type, got, want)
			}
		}
	}
}

// TestTimes wants every sample at its time, and none of the weight lost.
func TestTimes(t *testing.T) {
	p := proftest.Mixed()
	const start = 1_700_000_000_000_000_000
	var want []float64
	for i, s := range p.Sample {
		var times []int64
		for k := range s.Value[0] - 1 { // the time of one was not kept
			times = append(times, start+int64(i)*1_000_000+k*500_000)
		}
		profile.AddTimes(s, times)
		for _, at := range times {
			want = append(want, float64(at-start)/1e6)
		}
	}
	l := load(t, p, Options{SampleType: "samples"})
	if got, want := l.check(), foldedStacks(t, p, "samples"); !maps.Equal(got, want) {
		t.Errorf("stacks %v, want %v", got, want)
	}
	counts := map[float64]int{}
	for _, th := range l.file["threads"].([]any) {
		for _, at := range l.column(th.(map[string]any)["samples"], "time") {
			counts[at]++
		}
	}
	for _, at := range want {
		if counts[at] == 0 {
			t.Errorf("no sample at %v ms", at)
		}
	}
}

func TestBreakpadID(t *testing.T) {
	id := []byte{0x5d, 0xc7, 0x67, 0xc0, 0x2e, 0x18, 0x3b, 0xb9, 0x2c, 0x91, 0xcd, 0x56, 0xbe, 0x96, 0xc4, 0x93, 0xd8, 0x25, 0x5f, 0x86}
	if got, want := breakpadID(id), "C067C75D182EB93B2C91CD56BE96C4930"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestNegative(t *testing.T) {
	p := proftest.Mixed()
	p.Sample[0].Value[0], p.Sample[0].Value[1] = -1, -1
	if err := Write(io.Discard, p, Options{}); !errors.Is(err, profile.ErrNegative) {
		t.Errorf("error %v", err)
	}
}

// TestUnknownCode wants all code of a binary without names to be one function.
func TestUnknownCode(t *testing.T) {
	m := proftest.New()
	lib := m.Mapping("/lib/libfoo.so", proftest.LibID, 0x400000)
	m.Sample("", 0, 1, m.Location(lib, 0x401000))
	m.Sample("", 0, 2, m.Location(lib, 0x402000))
	profile.NameUnknown(m.Profile)
	l := load(t, m.Profile, Options{SampleType: "samples"})
	th := l.file["threads"].([]any)[0].(map[string]any)
	if n := l.length(th, "funcTable"); n != 1 || l.check()["libfoo.so [unknown]"] != 3 {
		t.Errorf("%d functions, stacks %v", n, l.check())
	}
}

// TestContentsAreTwoFiles has two files without build IDs under one name.
func TestContentsAreTwoFiles(t *testing.T) {
	m := proftest.New()
	for _, content := range []string{"content:1bb9ccd07e400a8ae066eb8536d303f2e21fb347", "content:0b39277809cf4210b644a44e2cf3d78c6ec364af"} {
		mapping := m.Mapping("/bin/x", content, 0x1000)
		m.Sample("x", 1, 1, m.Location(mapping, 0x1010, "f"))
	}
	l := load(t, m.Profile, Options{})
	l.check()
	if libs := l.file["libs"].([]any); len(libs) != 2 {
		t.Errorf("files %v", libs)
	}
}
