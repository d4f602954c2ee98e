package fromperf

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/perftest"
	"hallmark/internal/testenv"
	"hallmark/perfdata"
)

// eventLines declare events of these names, numbered from 1.
func eventLines(names ...string) (lines []string) {
	for i, name := range names {
		config := 2 // page-faults
		switch {
		case name == "cpu-clock", name == "task-clock":
			config = 0
		case strings.HasPrefix(name, "dummy"):
			config = 9
		}
		lines = append(lines, fmt.Sprintf(`event {Name=%q IDs=[%d] Attr={Type=1 Config=%d Period=1000 Fields=IP|TID|TIME|PERIOD|IDENTIFIER Flags=0x40000}}`, name, i+1, config))
	}
	return lines
}

func sampleLine(event, time, period int) string {
	return fmt.Sprintf(`%d Sample {Misc=2 PID=7 TID=7 Time=%d Event=%d IP=%#x Period=%d}`, event-1, time, event, 0x400000+event, period)
}

// TestFirstEvent takes the first event of the file that has samples, whichever samples first,
// and names the others.
func TestFirstEvent(t *testing.T) {
	for _, test := range []struct {
		name    string
		events  []string
		samples []int // the events of samples, in the order of time
		want    string
		notes   []string
	}{
		{"the second one samples first", []string{"task-clock", "page-faults"}, []int{2, 2, 1, 2, 1}, "[2 10] cpu",
			[]string{"events of the file that are not counted here: page-faults (3 samples) (--event NAME counts another one, --event all counts all)"}},
		{"a dummy comes first", []string{"dummy:HG", "page-faults", "task-clock"}, []int{3, 1, 2}, "[1 5] page-faults",
			[]string{"events of the file that are not counted here: task-clock (1 sample) (--event NAME counts another one, --event all counts all)"}},
		{"the first one has no samples", []string{"task-clock", "page-faults", "cpu-clock"}, []int{3, 2, 3}, "[1 5] page-faults",
			[]string{"task-clock is the first event of the file and has no samples: page-faults has",
				"events of the file that are not counted here: task-clock (no samples), cpu-clock (2 samples) (--event NAME counts another one, --event all counts all)"}},
		{"one event", []string{"page-faults"}, []int{1}, "[1 5] page-faults", nil},
	} {
		lines := eventLines(test.events...)
		for i, e := range test.samples {
			lines = append(lines, sampleLine(e, i+1, 5))
		}
		p, stats, err := fromText(t, Options{Times: true}, lines...)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if got := fmt.Sprint(p.Sample[0].Value, " ", p.SampleType[1].Type); got != test.want || len(p.Sample) != 1 {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
		if !slices.Equal(stats.Notes(), test.notes) || !slices.Equal(p.Comments, test.notes) {
			t.Errorf("%s: notes %q, want %q", test.name, stats.Notes(), test.notes)
		}
		if stats.Samples != p.Sample[0].Value[0] {
			t.Errorf("%s: %d samples", test.name, stats.Samples)
		}
	}
}

// TestExactNameFirst has an event whose name with modifiers is wanted, behind one that has the
// same name without them.
func TestExactNameFirst(t *testing.T) {
	lines := append(eventLines("page-faults:u", "page-faults"), sampleLine(1, 1, 3), sampleLine(2, 2, 4))
	for name, want := range map[string]int64{"page-faults": 4, "page-faults:u": 3} {
		p, stats, err := fromText(t, Options{Event: name}, lines...)
		if err != nil {
			t.Fatal(err)
		}
		if p.Sample[0].Value[1] != want || len(stats.Notes()) != 0 || len(stats.Events) != 2 {
			t.Errorf("%s: %v, %+v", name, p.Sample[0].Value, stats)
		}
	}
}

// values returns the sum of each value, by the name of its type.
func values(p *pprof.Profile) map[string]int64 {
	sums := map[string]int64{}
	for _, s := range p.Sample {
		for i, v := range s.Value {
			sums[p.SampleType[i].Type] += v
		}
	}
	return sums
}

// TestAllEvents has the events of a recording by perf in one profile, in one each, and one
// after the other by their names; perf counts the same.
func TestAllEvents(t *testing.T) {
	file := perfRecord(t, "-e", "task-clock,page-faults,alignment-faults", "-F", "1999")
	want, samples := map[string]int64{}, map[string]int64{}
	for line := range strings.Lines(string(perftest.Run(t, "script", "-F", "event,period", "-i", file))) {
		var n int64
		var name string
		if _, err := fmt.Sscan(line, &n, &name); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		want[strings.TrimSuffix(name, ":")] += n
		samples[strings.TrimSuffix(name, ":")]++
	}
	if samples["task-clock"] < 5 || samples["page-faults"] < 5 {
		testenv.Lack(t, "%v", samples)
	}
	all, stats := readFile(t, file, Options{All: true, Times: true})
	got := values(all)
	if len(stats.Events) != 3 || len(stats.eventNotes()) == 1 != (samples["alignment-faults"] == 0) {
		t.Errorf("%+v", stats)
	}
	for _, e := range stats.Events {
		if e.Samples != samples[e.Name] || got[e.Name] != want[e.Name] {
			t.Errorf("%+v with sum %d, perf has %d samples with %d", e, got[e.Name], samples[e.Name], want[e.Name])
		}
	}
	r, err := perfdata.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	each, _, err := ReadEach(r, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(each) != len(all.SampleType)-1 {
		t.Fatalf("%d profiles of %d events", len(each), len(all.SampleType)-1)
	}
	for i, p := range each {
		name := all.SampleType[i+1].Type
		one, _ := readFile(t, file, Options{Event: name})
		p.Comments, one.Comments = nil, nil // others are named only where none was asked for
		if p.String() != one.String() {
			t.Errorf("%s: one of each is\n%.1000s\nand by name\n%.1000s", name, p, one)
		}
	}
}

// TestTooManyEvents has more events than are counted at once.
func TestTooManyEvents(t *testing.T) {
	var names, lines []string
	for i := range maxTallies + 5 {
		names = append(names, "page-faults")
		lines = append(lines, sampleLine(i+1, i+1, 1))
	}
	p, stats, err := fromText(t, Options{All: true}, append(eventLines(names...), lines...)...)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.SampleType) != maxTallies+1 || len(stats.others()) != 5 || p.SampleType[2].Type != "page-faults#2" {
		t.Errorf("%d types, %v, %v", len(p.SampleType), stats.others(), p.SampleType[2])
	}
}

// TestNamesAgreeWithPerf has events without names, which perf names by their attributes.
func TestNamesAgreeWithPerf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "perf.data")
	var attrs []perfdata.Attr
	add := func(kind uint32, config uint64, flags perfdata.AttrFlags) {
		attrs = append(attrs, perfdata.Attr{Type: kind, Config: config, Flags: flags})
	}
	const usual = excludeGuest
	for config := range uint64(11) {
		add(typeHardware, config, usual)
	}
	for config := range uint64(10) { // perf 6.1 knows no more
		add(typeSoftware, config, usual)
	}
	for which := range uint64(8) {
		for op := range uint64(4) {
			for result := range uint64(3) {
				add(typeCache, which|op<<8|result<<16, usual)
			}
		}
	}
	add(typeRaw, 0x1b1, usual)
	add(typeRaw, 0xc0ffee, 0)
	for access := range uint32(5) {
		attrs = append(attrs, perfdata.Attr{Type: typeBreakpoint, Config1: 0x401000, BreakpointType: access, Flags: usual})
	}
	for bits := range perfdata.AttrFlags(32) { // user, kernel and hypervisor; host and guest
		for precise := range perfdata.AttrFlags(4) {
			add(typeHardware, 0, bits&7<<4|bits>>3<<19|precise<<preciseShift)
		}
	}
	writeEvents(t, file, attrs)
	names := strings.Split(strings.TrimSuffix(string(perftest.Run(t, "evlist", "-i", file)), "\n"), "\n")
	names = slices.DeleteFunc(names, func(line string) bool { return strings.HasPrefix(line, "#") })
	if len(names) != len(attrs) {
		t.Fatalf("%d names of %d events", len(names), len(attrs))
	}
	for i, a := range attrs {
		if got := madeUpName(a); got != names[i] {
			t.Errorf("%+v: %q, perf says %q", a, got, names[i])
		}
	}
}

// writeEvents writes a recording that has events without names, and a sample.
func writeEvents(t *testing.T, file string, attrs []perfdata.Attr) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := perfdata.NewWriter(f, perfdata.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.Info.Hostname = "there"
	for i, a := range attrs {
		a.Fields = perfdata.SampleIdentifier | perfdata.SampleIP | perfdata.SampleTID | perfdata.SampleTime
		a.Flags |= perfdata.AttrSampleIDAll
		if err := w.AddEvent(&perfdata.Event{Attr: a, IDs: []uint64{uint64(i + 1)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Write(&perfdata.Sample{ID: perfdata.ID{PID: 1, TID: 1, Time: 1, Event: 1}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestOldStream has a pipe of an old perf, whose events have attributes alone.
func TestOldStream(t *testing.T) {
	p, _, err := fromText(t, Options{},
		`event {Attr={Type=0 Config=0 Period=4000 Fields=IP|TID|TIME|PERIOD Flags=0x140000}}`,
		`0 Sample {Misc=2 PID=7 TID=7 Time=10 IP=0x400010 Period=5}`)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.SampleType[1]; got.Type != "cycles" || got.Unit != "count" {
		t.Errorf("%v", got)
	}
}
