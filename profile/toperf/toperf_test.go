package toperf

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/perftest"
	"hallmark/internal/proftest"
	"hallmark/internal/testenv"
	"hallmark/perfdata"
	"hallmark/profile"
	"hallmark/profile/fromperf"
	"hallmark/reason"
	"hallmark/symbol"
)

// perfRecord records a few programs that start each other.
func perfRecord(t *testing.T, args ...string) (file string) {
	t.Helper()
	file, _ = perfRecordNamed(t, args...)
	return file
}

// perfRecordNamed also returns how the names of these programs, and of no others, begin.
func perfRecordNamed(t *testing.T, args ...string) (file, names string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "perf.data")
	work, names := perftest.Work(t)
	perftest.Record(t, file, slices.Concat([]string{perftest.Asks}, args, []string{"--"}, work)...)
	return file, names
}

// home is where perf keeps what it has of build IDs.
var home string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "toperf")
	if err != nil {
		panic(err)
	}
	home = dir
	status := testenv.Isolated(m).Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

func perf(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, "perf"), args...)
	cmd.Env = append(os.Environ(), "HOME="+home, "DEBUGINFOD_URLS=")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("perf %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

func read(t *testing.T, file string) *pprof.Profile {
	t.Helper()
	r, err := perfdata.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, stats, err := fromperf.Read(r, fromperf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if stats.Malformed != 0 || stats.Damage != nil || len(r.Problems()) != 0 {
		t.Errorf("%+v %v", stats, r.Problems())
	}
	for _, s := range p.Sample { // how perf walked stacks is known of those that it recorded
		delete(s.Label, "stack")
		delete(s.Label, "unwound")
	}
	return p
}

// write writes a profile as a file, or as a stream.
func write(t *testing.T, p *pprof.Profile, stream bool, o Options) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "out.perf.data"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := io.Writer(f)
	if stream {
		w = struct{ io.Writer }{f}
	}
	if err := Write(w, p, o); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// scriptStacks counts the samples that perf script prints, without what is another
// address in another file of the same.
func scriptStacks(t *testing.T, file string) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, sample := range strings.Split(perf(t, "script", "--no-inline", "-i", file, "-F", "comm,pid,tid,period,ip,sym,symoff,dso"), "\n\n") {
		var lines []string
		for i, line := range strings.Split(strings.TrimSpace(sample), "\n") {
			fields := strings.Fields(line)
			if i > 0 && len(fields) > 1 {
				fields = fields[1:]
			}
			lines = append(lines, strings.ReplaceAll(strings.Join(fields, " "), "_text)", ")"))
		}
		if lines[0] != "" {
			counts[strings.Join(lines, "\n")]++
		}
	}
	return counts
}

// TestPerfShowsTheSame compares what perf script prints of a recording, and of what
// becomes of it by way of a profile: every sample with all of its frames.
func TestPerfShowsTheSame(t *testing.T) {
	for _, test := range []struct {
		args   []string
		root   bool
		stream bool
	}{
		{args: []string{"-g", "-F", "999"}},
		{args: []string{"-g", "-F", "999"}, stream: true},
		{args: []string{"-g", "-e", "page-faults", "-c", "7"}},
		{args: []string{"-g", "-a", "-F", "499"}, root: true},
	} {
		t.Run(fmt.Sprint(test.args, test.stream), func(t *testing.T) {
			if test.root {
				testenv.Root(t)
			}
			file, names := perfRecordNamed(t, test.args...)
			again := write(t, read(t, file), test.stream, Options{})
			compare(t, scriptStacks(t, again), scriptStacks(t, file), names)
		})
	}
}

// compare wants as many samples, and the same ones of programs whose names begin so: what
// others on the machine map and execute has classes of its own. Frames that no mapping holds
// have no address in a profile, and those in data that perf takes for code no file: both are
// [unknown] here. And in the midst of execve perf still sees what was mapped before.
func compare(t *testing.T, got, want map[string]int, names string) {
	t.Helper()
	own, missing := 0, 0
	for stack, n := range want {
		if !strings.HasPrefix(stack, names) {
			continue
		}
		own += n
		if got[stack] >= n {
			continue
		}
		missing += n - got[stack]
		// A sample without any frame has at least the address where it was taken here.
		if strings.Contains(stack, "\n") && !strings.Contains(stack, "[unknown]") && !strings.Contains(stack, "execve") {
			t.Errorf("%d times and not %d:\n%s", got[stack], n, stack)
		}
	}
	sum := func(stacks map[string]int) (sum int) {
		for _, n := range stacks {
			sum += n
		}
		return sum
	}
	if have, recorded := sum(got), sum(want); have != recorded {
		t.Errorf("%d samples, and %d were recorded", have, recorded)
	}
	if own < 20 {
		testenv.Lack(t, "%d samples", own)
	}
	testenv.AtMost(t, "samples that differ", int64(missing), int64(own), 0.1)
}

// flat returns all of a profile but the order in which it is written.
func flat(p *pprof.Profile) []string {
	var lines []string
	for _, s := range p.Sample {
		var b strings.Builder
		fmt.Fprint(&b, s.Value, s.Label, s.NumLabel)
		for _, l := range s.Location {
			fmt.Fprintf(&b, "\n  %#x %s %s", l.Address, l.Mapping.File, l.Mapping.BuildID)
			for c := range profile.CallsAt(l) {
				fmt.Fprint(&b, " ", c.Name())
			}
		}
		lines = append(lines, b.String())
	}
	slices.Sort(lines)
	return lines
}

// TestRoundTrip wants the same profile back, twice.
func TestRoundTrip(t *testing.T) {
	file := perfRecord(t, "-g", "-F", "999")
	p := read(t, file)
	for _, stream := range []bool{false, true} {
		again := read(t, write(t, p, stream, Options{}))
		if got, want := flat(again), flat(p); !slices.Equal(got, want) {
			t.Errorf("stream %v: the profile is\n%s\nand was\n%s", stream, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if again.DurationNanos != p.DurationNanos || again.Period != p.Period {
			t.Errorf("stream %v: %d ns, period %d, and before %d, %d", stream, again.DurationNanos, again.Period, p.DurationNanos, p.Period)
		}
	}
}

func symbols(function string) []symbol.Frame {
	return []symbol.Frame{{Func: function, Linkage: function}}
}

// made returns a profile with every kind of frame.
func made() *pprof.Profile {
	b := profile.NewBuilder(1000)
	id := func(kind buildid.Kind, text string) buildid.ID {
		id, err := buildid.New(kind, []byte(text))
		if err != nil {
			panic(err)
		}
		return id
	}
	program := &profile.Binary{ID: id(buildid.GNU, "12345678901234567890"), Path: "/opt/program", Segments: []profile.Segment{{Offset: 0x1000, Virt: 0x402000, Size: 0x5000}}}
	library := &profile.Binary{ID: id(buildid.Go, "a/b/c/d"), Path: "/opt/go program"}
	kernel := &profile.Binary{ID: id(buildid.GNU, "kernelkernelkernelke"), Path: "[kernel]", Segments: []profile.Segment{{Virt: 0xffffffff81000000, Size: 0x1000000}}}
	module := &profile.Binary{ID: id(buildid.GNU, "modulemodulemodulemo"), Path: "[nf_tables]"}
	frames := []profile.Frame{
		{Binary: kernel, Offset: 0x1234}, {Binary: module, Offset: 0x777},
		{Binary: program, Offset: 0x1500}, {Binary: library, Offset: 0x99999},
		{Reason: reason.NotMapped}, {Reason: reason.Anonymous, Addr: 0x7f0000001234},
		{Reason: reason.NotExecutable}, {Reason: reason.NotRecorded, Path: "/gone", Addr: 0x4321},
		{Reason: reason.Anonymous, Addr: 0x7f0000001334, Symbols: symbols("JS:*one /a/b.js:1")},
		{Reason: reason.Anonymous, Addr: 0x7f0000001434, Symbols: symbols("JS:*one /a/b.js:1")},
		{Reason: reason.Anonymous, Addr: 0x7f0000001500, Symbols: symbols("two")},
	}
	count := func(l profile.Labels, n, nanos int64, frames ...profile.Frame) *pprof.Sample {
		return b.Add(frames, &l, n, nanos)
	}
	first := profile.Labels{PID: 7, TID: 7, Process: "first", Thread: "first", Cgroup: "/a.slice"}
	count(first, 3, 3001, frames...)
	count(profile.Labels{PID: 7, TID: 8, Process: "first", Thread: "worker"}, 1, 1000, frames[2], frames[5])
	count(profile.Labels{PID: 9, TID: 9, Process: "second", Thread: "second"}, 2, 2000, frames[0])
	count(profile.Labels{Process: "swapper", Thread: "swapper"}, 5, 5000, frames[0], frames[0])
	p := b.Profile()
	p.TimeNanos, p.DurationNanos = 1_700_000_000_000_000_000, 4_000_000
	return p
}

// TestEveryKindOfFrame takes a profile there and back in which every kind of frame is.
func TestEveryKindOfFrame(t *testing.T) {
	p := made()
	again := read(t, write(t, p, false, Options{EveryIdentity: true}))
	want := made()
	for _, m := range want.Mapping {
		switch {
		case strings.HasPrefix(m.BuildID, "go"):
			id, _ := profile.Identity(m)
			m.BuildID = id.GNUForm().String()
		}
	}
	// A recording reports offsets in files, and not where their segments belong.
	for _, l := range want.Location {
		if l.Mapping.Start < 1<<63 {
			l.Address = uint64(profile.FileOffset(l))
		}
	}
	for _, m := range want.Mapping {
		if m.Start < 1<<63 {
			m.Start = m.Offset
		}
	}
	if got, want := flat(again), flat(want); !slices.Equal(got, want) {
		t.Errorf("the profile is\n%s\nand was\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if again.TimeNanos != p.TimeNanos || again.DurationNanos != p.DurationNanos {
		t.Errorf("time %d + %d, and before %d + %d", again.TimeNanos, again.DurationNanos, p.TimeNanos, p.DurationNanos)
	}
}

// TestGeneratedNames has perf show functions of generated code, and none in other code.
func TestGeneratedNames(t *testing.T) {
	out := perf(t, "script", "-F", "ip,dso", "-i", write(t, made(), false, Options{}))
	for _, want := range []string{
		"7f0000001335 ([jit] JS:*one \u2215a\u2215b.js:1)", "7f0000001435 ([jit] JS:*one \u2215a\u2215b.js:1)",
		"7f0000001501 ([jit] two)", "7f0000001235 (/tmp/perf-7.map)",
	} {
		if n := strings.Count(out, want); n < 3 {
			t.Errorf("%d times %s in\n%s", n, want, out)
		}
	}
}

// TestBuildIDList compares with perf's list: all files have an ID, Go's included.
func TestBuildIDList(t *testing.T) {
	var want []string
	for _, a := range newLayout(made(), true).areas {
		if a.record.BuildID != nil {
			want = append(want, fmt.Sprintf("%x %s", a.record.BuildID, a.listed))
		}
	}
	var got []string
	for line := range strings.Lines(perf(t, "buildid-list", "-i", write(t, made(), false, Options{EveryIdentity: true}))) {
		if id, name, _ := strings.Cut(strings.TrimRight(line, "\n"), " "); strings.Trim(id, " ") != "" {
			got = append(got, id+" "+name)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if len(want) != 4 || !slices.Equal(got, want) {
		t.Errorf("perf lists\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestTimes wants every sample at its time, in order.
func TestTimes(t *testing.T) {
	p := made()
	profile.AddTimes(p.Sample[0], []int64{1_700_000_000_000_000_300, 1_700_000_000_000_000_100, 1_700_000_000_000_000_200})
	profile.AddTimes(p.Sample[1], []int64{1_700_000_000_000_000_150})
	p.Sample = p.Sample[:2]
	out := perf(t, "script", "--ns", "-F", "tid,time", "-i", write(t, p, false, Options{}))
	var got []string
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 2 {
			got = append(got, f[0]+" "+strings.TrimSuffix(f[1], ":"))
		}
	}
	want := []string{"7 1700000000.000000100", "8 1700000000.000000150", "7 1700000000.000000200", "7 1700000000.000000300"}
	if !slices.Equal(got, want) {
		t.Errorf("perf script prints %q, want %q\n%s", got, want, out)
	}
}

// TestNoDate wants no date of a recording of which nobody knows when it was made.
func TestNoDate(t *testing.T) {
	p := made()
	p.TimeNanos = 0
	for _, stream := range []bool{false, true} {
		if again := read(t, write(t, p, stream, Options{})); again.TimeNanos != 0 {
			t.Errorf("stream %v: recorded at %v", stream, time.Unix(0, again.TimeNanos))
		}
	}
}

// TestManySamples wants the same weights in fewer samples.
func TestManySamples(t *testing.T) {
	p := made()
	for _, s := range p.Sample {
		s.Value[0], s.Value[1] = s.Value[0]*1e12+7, s.Value[1]*1e12+9
	}
	again := read(t, write(t, p, true, Options{MaxSamples: 1000}))
	want, got := map[string]int64{}, map[string]int64{}
	var samples int64
	for _, s := range p.Sample {
		want[fmt.Sprint(s.Label, len(s.Location))] += s.Value[1]
	}
	for _, s := range again.Sample {
		got[fmt.Sprint(s.Label, len(s.Location))] += s.Value[1]
		samples += s.Value[0]
	}
	if !maps.Equal(got, want) || samples > 1000+int64(len(p.Sample)) || samples < 900 {
		t.Errorf("%d samples of %v, want %v", samples, got, want)
	}
}

// TestProfilesOfOthers writes profiles whose addresses and labels are none of ours.
func TestProfilesOfOthers(t *testing.T) {
	for name, p := range map[string]*pprof.Profile{"cpu": proftest.CPU(t), "heap": proftest.Heap(t), "mixed": proftest.Mixed()} {
		index, err := profile.SampleIndex(p, "")
		if err != nil {
			t.Fatal(err)
		}
		again := read(t, write(t, p, false, Options{}))
		var got, want int64
		for _, s := range p.Sample {
			want += s.Value[index]
		}
		for _, s := range again.Sample {
			got += s.Value[1]
		}
		if got != want || want == 0 {
			t.Errorf("%s: total %d, want %d", name, got, want)
		}
	}
}

func TestNegative(t *testing.T) {
	p := made()
	p.Sample[0].Value[1] = -1
	if err := Write(io.Discard, p, Options{}); !errors.Is(err, profile.ErrNegative) {
		t.Errorf("error %v", err)
	}
}

// TestAreasDoNotOverlap puts many files among addresses that are taken.
func TestAreasDoNotOverlap(t *testing.T) {
	b := profile.NewBuilder(1)
	for i := range 200 {
		id, _ := buildid.New(buildid.GNU, fmt.Appendf(nil, "%020d", i))
		b.Add([]profile.Frame{
			{Binary: &profile.Binary{ID: id, Path: fmt.Sprint("/f", i)}, Offset: 0x12345678},
			{Reason: reason.Anonymous, Addr: firstUser + 1<<19*addr.Abs(i)},
		}, &profile.Labels{PID: 1}, 1, 1)
	}
	l := newLayout(b.Profile(), false)
	type span struct{ start, end uint64 }
	var spans []span
	add := func(a *area) {
		spans = append(spans, span{uint64(a.record.Start), uint64(a.record.Start) + a.record.Size})
	}
	for _, a := range l.areas {
		add(a)
	}
	seen := map[*area]bool{}
	for _, at := range l.code {
		if a := l.places[at].area; !seen[a] {
			seen[a] = true
			add(a)
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return int(int64(a.start) - int64(b.start)) })
	for i := 1; i < len(spans); i++ {
		if spans[i].start < spans[i-1].end {
			t.Errorf("%#x overlap %#x", spans[i-1], spans[i])
		}
	}
	if len(spans) != 400 {
		t.Errorf("%d areas", len(spans))
	}
}
