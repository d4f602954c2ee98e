package fromtext

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/perftest"
	"hallmark/internal/proftest"
	"hallmark/profile"
	"hallmark/profile/folded"
	"hallmark/reason"
)

const perfText = `# ========
# cmdline : /usr/bin/perf record -g x
# ========
Web Content 123/124 [001] 22977.565696:   10101010 cpu-clock:u:
	ffffffff81775b9a elf_load+0x28a ([kernel.kallsyms])
	    1137 inner (inlined)
	    1138 operator()(int)+0xe (/opt/my app (v2)/web)
  web.cc:12
	    7f1be02f2ad7 [unknown] ([unknown])

web 123/123 [000] 22977.6: 5 cpu-clock:u:
	    2724a [unknown] (/usr/lib/libc.so.6 (deleted))
	    7fab LInterpreter;::run+0x1 (/tmp/perf-123.map)

Web Content 123/124 22978.565696: PERF_RECORD_MMAP2 123/124: [0x1(0x2) @ 0 fe:00 1 0]: r-xp /usr/bin/dash
Web Content 123/124 [001] 22979.000000001:   7 cpu-clock:u:
	    2724a [unknown] (/usr/lib/libc.so.6 (deleted))
	    7fab LInterpreter;::run+0x1 (/tmp/perf-123.map)

swapper     0 [001] 22979.1:          1 sched:sched_switch: prev_comm=swapper/1 prev_pid=0
	ffffffff81775b9a schedule+0x28a ([kernel.kallsyms])
:-1    -1 [000] 22980.5: 1 cpu-clock:u: 1137 main+0x2 (/bin/x)`

func describe(p *pprof.Profile) []string {
	var lines []string
	for _, s := range p.Sample {
		var b strings.Builder
		process, pid := profile.Process(s)
		thread, tid := profile.Thread(s)
		fmt.Fprintf(&b, "%s/%d %s/%d %v", process, pid, thread, tid, s.Value)
		for c := range profile.Calls(s) {
			file := "-"
			if c.Location.Mapping != nil {
				file = c.Location.Mapping.File
			}
			fmt.Fprintf(&b, " %s@%s", c.Name(), file)
		}
		if times := profile.Times(s); times != nil {
			fmt.Fprint(&b, " ", times)
		}
		lines = append(lines, b.String())
	}
	return lines
}

func TestScript(t *testing.T) {
	if f := Detect([]byte(perfText)); f != Script {
		t.Fatalf("it is taken for %v", f)
	}
	p, events, err := Read(strings.NewReader(perfText), Script, Options{Times: true})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Web Content/123 Web Content/124 [1 10101010] elf_load@[kernel] inner@/opt/my app (v2)/web operator()(int)@/opt/my app (v2)/web [0x7f1be02f2ad7]@- [22977565696000]",
		"web/123 web/123 [1 5] [libc.so.6+0x2724a]@/usr/lib/libc.so.6 (deleted) LInterpreter;::run@[anonymous] [22977600000000]",
		"web/123 Web Content/124 [1 7] [libc.so.6+0x2724a]@/usr/lib/libc.so.6 (deleted) LInterpreter;::run@[anonymous] [22979000000001]",
		":-1/0 :-1/0 [1 1] main@/bin/x [22980500000000]",
	}
	if got := describe(p); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !slices.Equal(events, []Event{{"cpu-clock:u", 4}, {"sched:sched_switch", 1}}) {
		t.Errorf("events are %v", events)
	}
	if err := p.CheckValid(); err != nil {
		t.Error(err)
	}
	if p.SampleType[1].Type != "cpu" || p.DefaultSampleType != "cpu" {
		t.Errorf("counts %v", p.SampleType[1])
	}
	p, _, err = Read(strings.NewReader(perfText), Script, Options{Event: "sched:sched_switch"})
	if err != nil || len(p.Sample) != 1 {
		t.Errorf("other event: %v", err)
	}
	if _, _, err = Read(strings.NewReader(perfText), Script, Options{Event: "cycles"}); !errors.Is(err, ErrNoEvent) || !strings.Contains(err.Error(), "sched_switch") {
		t.Errorf("no event: %v", err)
	}
}

const foldedText = `# by hand
main;loop;step_[i] 5
main;loop;[libz.so.1+0x2abc] 2
main;read;vfs_read_[k] 1.000

app;app [unknown];[unknown] 4
main;my thread 7;jitted_[j] 3
`

func TestFolded(t *testing.T) {
	if f := Detect([]byte(foldedText)); f != Folded {
		t.Fatalf("it is taken for %v", f)
	}
	p, _, err := Read(strings.NewReader(foldedText), Folded, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"/0 /0 [5] step@- loop@- main@-",
		"/0 /0 [2] [libz.so.1+0x2abc]@libz.so.1 loop@- main@-",
		"/0 /0 [1] vfs_read@[kernel] read@- main@-",
		"/0 /0 [4] [unknown]@- app [unknown]@app app@-",
		"/0 /0 [3] jitted@[anonymous] my thread 7@- main@-",
	}
	if got := describe(p); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(p.Sample[0].Location) != 2 {
		t.Error("the inlined call is a location of its own")
	}
	c := profile.MeasureCoverage(p, nil)
	if c.Frames != 40 || c.Symbolized != 30 || c.Gaps[0].Reason != reason.NotRecorded {
		t.Errorf("coverage is %+v", c)
	}
}

// TestRoundTrip reads what package folded writes.
func TestRoundTrip(t *testing.T) {
	for _, p := range []*pprof.Profile{proftest.Mixed(), proftest.Random(4, 400)} {
		var first, second bytes.Buffer
		if err := folded.Write(&first, p, folded.Options{}); err != nil {
			t.Fatal(err)
		}
		again, _, err := Read(bytes.NewReader(first.Bytes()), Folded, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := folded.Write(&second, again, folded.Options{}); err != nil {
			t.Fatal(err)
		}
		if first.String() != second.String() {
			was, is := strings.Split(first.String(), "\n"), strings.Split(second.String(), "\n")
			for i := range min(len(was), len(is)) {
				if was[i] != is[i] {
					t.Fatalf("line %d was %q and is %q", i+1, was[i], is[i])
				}
			}
			t.Errorf("%d lines are %d", len(was), len(is))
		}
	}
}

func TestDetect(t *testing.T) {
	for text, want := range map[string]Format{
		"":                      None,
		"hello world\n":         None,
		"a 1\nb 2\n":            Folded, // stacks of one frame
		"a 1\nb\n":              None,
		"a;b 1\n":               Folded,
		"a;b 1\nwhat is this\n": None,
		"heap profile: 1: 2 [3: 4] @ heap/1\n1: 2 [3: 4] @ 0x10 0x20\n": None,
		"sh 11091  2511.750332:     250000 cpu-clock: \n":               Script,
		"{\"a;b\": 1}\n":                 None,
		"a;b 1\x00\n":                    None,
		strings.Repeat("a;b 12\n", 5000): Folded,
	} {
		if got := Detect([]byte(text)); got != want {
			t.Errorf("%.40q is taken for %v, want %v", text, got, want)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		text string
		f    Format
		o    Options
		want error
		says string
	}{
		{"a;b 1\na;c x\n", Folded, Options{}, ErrFormat, "line 2, offset 6"},
		{"a;b 1.5\n", Folded, Options{}, ErrFormat, "whole number"},
		{"a;b 99999999999999999999\n", Folded, Options{}, ErrFormat, "64 bits"},
		{perfText + "\nwhat\n", Script, Options{}, ErrFormat, "neither"},
		{strings.Repeat("a;b 1\n", 100), Folded, Options{MaxSize: 100}, profile.ErrTooLarge, "100 bytes"},
		{strings.Repeat("a;b;", 100) + "c 1\n" + "d;e 1\n", Folded, Options{Memory: 1000}, profile.ErrTooLarge, "memory"},
		{"", Script, Options{}, ErrNoEvent, "none"},
	} {
		_, _, err := Read(strings.NewReader(c.text), c.f, c.o)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%.20q: %v, want %q", c.text, err, c.says)
		}
	}
}

// TestBesidePerf counts by function what perf itself counts, of one recording.
func TestBesidePerf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "perf.data")
	perftest.Record(t, file, "-g", "-e", "cpu-clock:u", "--", "sh", "-c", "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done")
	p, _, err := Read(bytes.NewReader(perftest.Run(t, "script", "-i", file)), Script, Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	total := int64(0)
	for _, s := range p.Sample {
		total += s.Value[0]
		for c := range profile.Calls(s) {
			if c.Function != nil {
				got[c.Name()] += s.Value[0]
			}
			break
		}
	}
	if total < 10 {
		t.Skipf("perf took %d samples", total)
	}
	report := string(perftest.Run(t, "report", "-i", file, "--stdio", "--no-children", "-g", "none", "-F", "sample,sym", "-t", ";"))
	compared := 0
	for line := range strings.Lines(report) {
		count, name, ok := strings.Cut(strings.TrimSpace(line), ";")
		name = strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(name), "[.]"), "[k]"))
		var n int64
		if _, err := fmt.Sscan(count, &n); err != nil || !ok || strings.HasPrefix(name, "0x") {
			continue
		}
		compared++
		if got[name] != n {
			t.Errorf("%s has %d samples, perf report says %d", name, got[name], n)
		}
	}
	if compared < 2 {
		t.Errorf("%d functions were compared:\n%s", compared, report)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(perfText))
	f.Add([]byte(foldedText))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, format := range []Format{Folded, Script, Detect(data)} {
			if p, _, err := Read(bytes.NewReader(data), format, Options{Times: true, Memory: 64 << 20}); err == nil {
				if err := p.CheckValid(); err != nil {
					t.Error(err)
				}
			}
		}
	})
}
