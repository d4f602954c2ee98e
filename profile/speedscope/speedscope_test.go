package speedscope

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/proftest"
	"hallmark/profile"
)

// document is a speedscope file as its readers see it. Pointers say what is
// missing from what is zero.
type document struct {
	Schema string `json:"$schema"`
	Name   *string
	Shared struct {
		Frames []struct {
			Name *string
			File string
			Line int64
		}
	}
	Profiles []struct {
		Type, Name           string
		Unit                 string
		StartValue, EndValue *int64
		Samples              [][]int
		Weights              []int64
	}
}

// read reads what Write wrote, and checks what the schema demands
// (file-format-schema.json of the npm package speedscope: FileFormat.File,
// FileFormat.SampledProfile) and what speedscope's importer demands beyond it.
func read(t testing.TB, data []byte) document {
	t.Helper()
	var d document
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	if d.Schema != "https://www.speedscope.app/file-format-schema.json" {
		t.Errorf("$schema is %q", d.Schema)
	}
	if d.Shared.Frames == nil || len(d.Profiles) == 0 {
		t.Fatalf("no list of frames or %d profiles:\n%s", len(d.Profiles), data)
	}
	for i, f := range d.Shared.Frames {
		if f.Name == nil {
			t.Errorf("frame %d has no name", i)
		}
	}
	for i := range d.Profiles {
		checkProfile(t, &d, i)
	}
	return d
}

func checkProfile(t testing.TB, d *document, i int) {
	t.Helper()
	p := d.Profiles[i]
	if p.Type != "sampled" || p.StartValue == nil || p.EndValue == nil || p.Samples == nil || p.Weights == nil {
		t.Fatalf("profile is not a sampled one, or lacks a field: %+v", p)
	}
	if !slices.Contains([]string{"none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"}, p.Unit) {
		t.Errorf("unit %q is not one of the schema", p.Unit)
	}
	if len(p.Samples) != len(p.Weights) {
		t.Fatalf("%d samples and %d weights", len(p.Samples), len(p.Weights))
	}
	var total int64
	for i, s := range p.Samples {
		total += p.Weights[i]
		for _, frame := range s {
			if frame < 0 || frame >= len(d.Shared.Frames) {
				t.Fatalf("frame %d of %d", frame, len(d.Shared.Frames))
			}
		}
	}
	if *p.EndValue-*p.StartValue != total {
		t.Errorf("from %d to %d, with weights of %d", *p.StartValue, *p.EndValue, total)
	}
}

func write(t testing.TB, p *pprof.Profile, o Options) document {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, p, o); err != nil {
		t.Fatal(err)
	}
	return read(t, out.Bytes())
}

// stacks returns the weights by stack, outermost function first.
func (d *document) stacks() map[string]int64 {
	stacks := map[string]int64{}
	for i, s := range d.Profiles[0].Samples {
		var names []string
		for _, frame := range s {
			names = append(names, *d.Shared.Frames[frame].Name)
		}
		stacks[strings.Join(names, ";")] += d.Profiles[0].Weights[i]
	}
	return stacks
}

func TestWrite(t *testing.T) {
	d := write(t, proftest.Mixed(), Options{Name: "mixed", SampleType: "samples"})
	want := map[string]int64{
		"app;main;loop;step":                   5,
		"app;main;walk;walk;walk":              3,
		"app;main;[libz.so.1+0x3abc];vfs_read": 2,
		"app;main;vfs_read;[kernel+0x3000]":    1,
		"old;[file-gone] /opt/old;main":        2,
		"old;[not-mapped]":                     1,
		"main":                                 4,
	}
	got := d.stacks()
	if len(got) != len(want) {
		t.Errorf("%d stacks, want %d", len(got), len(want))
	}
	for stack, n := range want {
		if got[stack] != n {
			t.Errorf("%s weighs %d, want %d", stack, got[stack], n)
		}
	}
	if d.Name == nil || *d.Name != "mixed" || d.Profiles[0].Name != "samples" || d.Profiles[0].Unit != "none" {
		t.Errorf("names %v, %q, unit %q", d.Name, d.Profiles[0].Name, d.Profiles[0].Unit)
	}
}

func TestDefaultIsTheProfilesOwn(t *testing.T) {
	d := write(t, proftest.Mixed(), Options{})
	if p := d.Profiles[0]; p.Name != "cpu" || p.Unit != "nanoseconds" || *p.EndValue != 18*proftest.Period {
		t.Errorf("%s in %s, to %d", p.Name, p.Unit, *p.EndValue)
	}
}

// TestFunctionIsOneFrame wants one frame for all places in a function, and two
// for functions of the same name in two files.
func TestFunctionIsOneFrame(t *testing.T) {
	m := proftest.New()
	a, b := m.Mapping("/bin/a", proftest.AppID, 0x400000), m.Mapping("/bin/b", proftest.LibID, 0x800000)
	m.Sample("", 0, 1, m.Location(a, 0x401000, "f"))
	m.Sample("", 0, 1, m.Location(a, 0x401010, "f"))
	m.Sample("", 0, 1, m.Location(b, 0x801000, "f"))
	d := write(t, m.Profile, Options{})
	if len(d.Shared.Frames) != 2 || len(d.Profiles[0].Samples) != 2 {
		t.Errorf("%d frames and %d stacks, want 2 and 2", len(d.Shared.Frames), len(d.Profiles[0].Samples))
	}
}

func TestEmptyProfileHasLists(t *testing.T) {
	d := write(t, proftest.New().Profile, Options{})
	if len(d.Shared.Frames) != 0 || len(d.Profiles[0].Samples) != 0 {
		t.Errorf("an empty profile has %d frames", len(d.Shared.Frames))
	}
}

func TestNegativeValuesAreRefused(t *testing.T) {
	m := proftest.New()
	m.Sample("x", 1, -1)
	if err := Write(&bytes.Buffer{}, m.Profile, Options{}); !errors.Is(err, profile.ErrNegative) {
		t.Errorf("error %v, want %v", err, profile.ErrNegative)
	}
}

// TestAgreesWithPprof compares each function's own and cumulative weight with
// what pprof says of the same file.
func TestAgreesWithPprof(t *testing.T) {
	for _, test := range []struct {
		name, sampleType, unit string
		p                      *pprof.Profile
	}{
		{"cpu profile by the runtime", "cpu", "ns", proftest.CPU(t)},
		{"heap profile by the runtime", "alloc_space", "B", proftest.Heap(t)},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := write(t, test.p, Options{SampleType: test.sampleType})
			got := map[string]proftest.Value{}
			for i, stack := range d.Profiles[0].Samples {
				seen := map[string]bool{}
				for depth, frame := range stack {
					name := *d.Shared.Frames[frame].Name
					v := got[name]
					if depth == len(stack)-1 {
						v.Flat += d.Profiles[0].Weights[i]
					}
					if !seen[name] {
						seen[name] = true
						v.Cum += d.Profiles[0].Weights[i]
					}
					got[name] = v
				}
			}
			for name, want := range proftest.Top(t, proftest.Save(t, test.p), test.sampleType, test.unit) {
				if got[name] != want {
					t.Errorf("%s: %+v, pprof says %+v", name, got[name], want)
				}
			}
		})
	}
}

// FuzzWrite gives odd names to everything that has one. The output must still
// keep the schema.
func FuzzWrite(f *testing.F) {
	f.Add("main", "[kernel]", "app", "nanoseconds", int64(3))
	f.Add("a\"b", "</script>", "\x00", "bytes", int64(1))
	f.Add("\xff\xfe", "[", "\u2028", "apples", int64(math.MaxInt32))
	f.Add("", "", "", "", int64(-1))
	f.Fuzz(func(t *testing.T, function, file, process, unit string, count int64) {
		count %= math.MaxInt64 / proftest.Period
		m := proftest.New()
		m.Profile.SampleType[1].Unit = unit
		mapping := m.Mapping(file, "", 0x400000)
		m.Sample(process, 1, count, m.Location(mapping, 0x401000, function), m.Location(mapping, 0x402000))
		var out bytes.Buffer
		err := Write(&out, m.Profile, Options{Name: process})
		if count < 0 {
			if !errors.Is(err, profile.ErrNegative) {
				t.Fatalf("error %v for a weight of %d", err, count)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		d := read(t, out.Bytes())
		if count > 0 && len(d.Profiles[0].Samples) != 1 {
			t.Errorf("%d stacks, want 1", len(d.Profiles[0].Samples))
		}
		if limit := 16 * (len(function) + 3*len(file) + 2*len(process) + len(unit) + 128); out.Len() > limit {
			t.Errorf("%d bytes were written", out.Len())
		}
	})
}

// TestUnknownCode wants all code of a binary without names to be one function.
func TestUnknownCode(t *testing.T) {
	m := proftest.New()
	lib := m.Mapping("/lib/libfoo.so", proftest.LibID, 0x400000)
	m.Sample("", 0, 1, m.Location(lib, 0x401000))
	m.Sample("", 0, 2, m.Location(lib, 0x402000))
	profile.NameUnknown(m.Profile)
	d := write(t, m.Profile, Options{SampleType: "samples"})
	if n := len(d.Shared.Frames); n != 1 || d.stacks()["libfoo.so [unknown]"] != 3 {
		t.Errorf("%d frames, stacks %v", n, d.stacks())
	}
}
