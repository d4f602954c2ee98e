package summary

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/proftest"
	"hallmark/internal/testenv"
	"hallmark/profile"
)

func summarize(t testing.TB, p *pprof.Profile, o Options) *Summary {
	t.Helper()
	s, err := New(p, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestMixed adds up proftest.Mixed by hand, in samples.
func TestMixed(t *testing.T) {
	s := summarize(t, proftest.Mixed(), Options{SampleType: "samples"})
	if s.SampleType != "samples" || s.Unit != "count" || s.Total != 18 || s.Samples != 18 {
		t.Errorf("%d %s of %s, %d samples", s.Total, s.Unit, s.SampleType, s.Samples)
	}
	const (
		lib  = "/usr/lib/libz.so.1 (deleted)"
		gone = "[file-gone] /opt/old"
	)
	functions := []Function{
		{Name: "step", File: "/usr/bin/app", BuildID: proftest.AppID, Flat: 5, Cum: 5},
		{Name: "main", File: "/usr/bin/app", BuildID: proftest.AppID, Flat: 4, Cum: 15},
		{Name: "walk", File: "/usr/bin/app", BuildID: proftest.AppID, Flat: 3, Cum: 3},
		{Name: "vfs_read", File: "[kernel]", BuildID: proftest.KernelID, Flat: 2, Cum: 3},
		{Name: "main", File: lib, BuildID: proftest.LibID, Flat: 2, Cum: 2},
		{Name: "[kernel] [unknown]", Unnamed: true, File: "[kernel]", BuildID: proftest.KernelID, Flat: 1, Cum: 1},
		{Name: "[not-mapped]", Unnamed: true, File: "[not-mapped]", Flat: 1, Cum: 1},
		{Name: "loop", File: "/usr/bin/app", BuildID: proftest.AppID, Flat: 0, Cum: 5},
		{Name: "[file-gone] old", Unnamed: true, File: gone, Flat: 0, Cum: 2},
		{Name: "libz.so.1 [unknown]", Unnamed: true, File: lib, BuildID: proftest.LibID, Flat: 0, Cum: 2},
	}
	if !slices.Equal(s.Functions, functions) {
		t.Errorf("functions\n%+v, want\n%+v", s.Functions, functions)
	}
	binaries := []Binary{
		{File: "/usr/bin/app", BuildID: proftest.AppID, Proof: "claimed", Flat: 12, Cum: 15},
		{File: "[kernel]", BuildID: proftest.KernelID, Proof: "proven", Flat: 3, Cum: 3},
		{File: lib, BuildID: proftest.LibID, Proof: "claimed", Flat: 2, Cum: 4},
		{File: "[not-mapped]", Flat: 1, Cum: 1},
		{File: gone, Flat: 0, Cum: 2},
	}
	if !slices.Equal(s.Binaries, binaries) {
		t.Errorf("binaries\n%+v, want\n%+v", s.Binaries, binaries)
	}
	processes := []Process{{Name: "app", PIDs: 2, Flat: 11}, {Name: "old", PIDs: 1, Flat: 3}}
	if !slices.Equal(s.Processes, processes) {
		t.Errorf("processes\n%+v, want\n%+v", s.Processes, processes)
	}
	if s.Coverage.Frames != 40 {
		t.Errorf("coverage of %d frames, want 40", s.Coverage.Frames)
	}
}

func TestByCum(t *testing.T) {
	s := summarize(t, proftest.Mixed(), Options{SampleType: "samples", ByCum: true})
	var names []string
	for _, f := range s.Functions[:3] {
		names = append(names, f.Name)
	}
	if want := []string{"main", "step", "loop"}; !slices.Equal(names, want) {
		t.Errorf("first functions are %q, want %q", names, want)
	}
}

// TestAgreesWithPprof compares with what pprof says of the same file. In these
// profiles no two binaries have a function of the same name.
func TestAgreesWithPprof(t *testing.T) {
	stripped := proftest.CPU(t)
	proftest.Strip(stripped)
	for _, test := range []struct {
		name, sampleType, unit string
		p                      *pprof.Profile
	}{
		{"cpu profile by the runtime", "cpu", "ns", proftest.CPU(t)},
		{"without symbols", "cpu", "ns", stripped},
		{"heap profile by the runtime", "alloc_space", "B", proftest.Heap(t)},
		{"its objects", "alloc_objects", "count", proftest.Heap(t)},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := proftest.Top(t, proftest.Save(t, test.p), test.sampleType, test.unit)
			compare(t, summarize(t, test.p, Options{SampleType: test.sampleType}), want)
		})
	}
}

// TestAgreesWithPprofOnItsOwn does the same with the profiles that pprof is
// tested with: of C++, Go and Java, in old formats too. None has symbols in one
// binary for a name that another has as well.
func TestAgreesWithPprofOnItsOwn(t *testing.T) {
	out, err := exec.Command(testenv.Tool(t, "go"), "list", "-m", "-f", "{{.Dir}}", "github.com/google/pprof").Output()
	if err != nil {
		t.Fatal(err)
	}
	units := map[string]string{"nanoseconds": "ns", "microseconds": "us", "bytes": "B"}
	for _, name := range []string{
		"cppbench.contention", "cppbench.cpu", "cppbench.growth", "cppbench.heap", "cppbench.thread",
		"gobench.cpu", "gobench.heap", "go.godoc.thread", "java.contention", "java.cpu", "java.heap",
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(strings.TrimSpace(string(out)), "profile", "testdata", name)
			p, err := profile.ReadFile(file, profile.ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			s := summarize(t, p, Options{})
			compare(t, s, proftest.Top(t, file, s.SampleType, cmp.Or(units[s.Unit], s.Unit)))
		})
	}
}

// compare checks the functions of s against those of pprof.
func compare(t *testing.T, s *Summary, want map[string]proftest.Value) {
	t.Helper()
	if len(s.Functions) < len(want) {
		t.Errorf("%d functions, pprof has %d", len(s.Functions), len(want))
	}
	for _, f := range s.Functions {
		name := f.Name
		switch {
		case f.Unnamed && f.File == "":
			name = "<unknown>"
		case f.Unnamed: // pprof has the file's name in brackets
			name = "[" + strings.Trim(profile.ShortName(f.File), "[]") + "]"
		}
		if got := (proftest.Value{Flat: f.Flat, Cum: f.Cum}); got != want[name] && got != (proftest.Value{}) {
			t.Errorf("%s: %+v, pprof says %+v", name, got, want[name])
		}
	}
}

// TestMixedAgreesWithPprof allows for what is different on purpose: pprof adds up
// functions of one name, here main.
func TestMixedAgreesWithPprof(t *testing.T) {
	p := proftest.Mixed()
	want := proftest.Top(t, proftest.Save(t, p), "samples", "count")
	flat := map[string]int64{}
	for _, f := range summarize(t, p, Options{SampleType: "samples"}).Functions {
		flat[f.Name] += f.Flat
		if !f.Unnamed && f.Name != "main" && want[f.Name] != (proftest.Value{Flat: f.Flat, Cum: f.Cum}) {
			t.Errorf("%s: %d, %d, pprof says %+v", f.Name, f.Flat, f.Cum, want[f.Name])
		}
	}
	if flat["main"] != want["main"].Flat {
		t.Errorf("main: %d, pprof says %+v", flat["main"], want["main"])
	}
}

// TestOneIdentityAtTwoPaths has files of one build ID: they are one binary only if their
// contents are known to be the same.
func TestOneIdentityAtTwoPaths(t *testing.T) {
	const one, two = "8bb18077fa415b4d1306d85709708bc9622c9d24", "0c17060ce6ca5b781e77d71bdbfec2fd25a7b18b"
	for _, test := range []struct {
		name      string
		contents  [2]string
		binaries  int
		contested bool
	}{
		{"copies", [2]string{one, one}, 1, false},
		{"builds", [2]string{one, two}, 2, true},
		{"unknown", [2]string{}, 2, false},
		{"one unknown", [2]string{one, ""}, 2, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := proftest.New()
			for i, file := range []string{"/a/app", "/b/app"} {
				m.Sample("", 0, 1, m.Location(m.Mapping(file, proftest.AppID, 0x400000), 0x401000, "f"))
				if c := test.contents[i]; c != "" {
					m.Profile.Comments = append(m.Profile.Comments, fmt.Sprintf("content=%s build_id=%s file=%q", c, proftest.AppID, file))
				}
			}
			s := summarize(t, m.Profile, Options{SampleType: "samples"})
			if len(s.Binaries) != test.binaries || len(s.Functions) != test.binaries {
				t.Fatalf("%+v and %+v, want %d", s.Binaries, s.Functions, test.binaries)
			}
			for _, b := range s.Binaries {
				if b.Contested != test.contested || b.Flat != int64(2/test.binaries) {
					t.Errorf("%+v", b)
				}
			}
			if len(s.Comments) > 0 {
				t.Errorf("comments %q", s.Comments)
			}
		})
	}
}

func TestEmptyProfile(t *testing.T) {
	s := summarize(t, proftest.New().Profile, Options{})
	if s.Total != 0 || s.SampleType != "cpu" || len(s.Functions) != 0 {
		t.Errorf("summary of nothing: %+v", s)
	}
	if _, err := New(&pprof.Profile{}, Options{}); err == nil {
		t.Error("a profile without sample types has a summary")
	}
}

// TestJSONFields is the promise that fields of the JSON form stay.
func TestJSONFields(t *testing.T) {
	p := proftest.Mixed()
	p.TimeNanos, p.DurationNanos, p.Comments = 1e18, 1e9, []string{"a comment"}
	p.Function[0].Filename = "main.c"
	b, err := json.Marshal(summarize(t, p, Options{}))
	if err != nil {
		t.Fatal(err)
	}
	var all any
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"binaries.binary", "binaries.build_id", "binaries.cum", "binaries.flat", "binaries.proof",
		"comments",
		"coverage.claimed", "coverage.proven",
		"coverage.file_frames", "coverage.file_identified", "coverage.frame_count",
		"coverage.gaps.advice",
		"coverage.gaps.binaries.binary", "coverage.gaps.binaries.build_id", "coverage.gaps.binaries.frame_count",
		"coverage.gaps.frame_count", "coverage.gaps.lacks", "coverage.gaps.reason", "coverage.gaps.text",
		"coverage.identified", "coverage.symbolized",
		"duration_ns",
		"functions.binary", "functions.build_id", "functions.cum", "functions.flat", "functions.function", "functions.source_file", "functions.unnamed",
		"processes.flat", "processes.pids", "processes.process",
		"sample_type", "samples", "time", "total", "unit",
	}
	fields := map[string]bool{}
	collectFields(all, "", fields)
	for _, name := range want {
		if !fields[name] {
			t.Errorf("field %s is gone", name)
		}
		delete(fields, name)
	}
	for name := range fields {
		t.Errorf("field %s is new: it is to stay, so say so here", name)
	}
}

// collectFields notes the paths of the plain values in a JSON document.
func collectFields(value any, path string, fields map[string]bool) {
	switch value := value.(type) {
	case map[string]any:
		for name, v := range value {
			collectFields(v, strings.TrimPrefix(path+"."+name, "."), fields)
		}
	case []any:
		for _, v := range value {
			collectFields(v, path, fields)
		}
	default:
		fields[path] = true
	}
}

// TestProcessNumbers has processes with numbers, without, and the idle process, whose number is 0.
func TestProcessNumbers(t *testing.T) {
	m := proftest.New()
	at := m.Location(m.Mapping("/bin/x", proftest.AppID, 0x1000), 0x1010, "f")
	m.Sample("numbered", 7, 4, at)
	m.Sample("numbered", 8, 4, at)
	m.Sample("of text", 0, 2, at)
	m.Sample("swapper/0", 0, 1, at)
	for _, s := range m.Profile.Sample {
		if s.NumLabel["pid"][0] == 0 {
			delete(s.NumLabel, "pid")
		}
	}
	s := summarize(t, m.Profile, Options{})
	got := map[string]int{}
	for _, p := range s.Processes {
		got[p.Name] = p.PIDs
	}
	if want := map[string]int{"numbered": 2, "of text": 0, "swapper/0": 1}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
