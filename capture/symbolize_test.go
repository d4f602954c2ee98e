package capture

import (
	"context"
	"slices"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/debuginfo"
	"hallmark/internal/proctest"
	"hallmark/launch"
	"hallmark/profile"
	"hallmark/symbol"
)

// recordUnnamed records a program, and returns what has no symbols yet. The caller has a cache of
// its own, in which there is no index.
func recordUnnamed(t *testing.T, program string) *Recording {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	c, err := launch.Start([]string{program, "300ms"}) // of which one in C reads the number
	if err != nil {
		t.Fatal(err)
	}
	s := startSession(t, Options{Command: c})
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := s.Finish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// linesOf returns the lines of a function in a profile.
func linesOf(p *pprof.Profile, function string) (lines []int64) {
	for _, l := range p.Location {
		for _, line := range l.Line {
			if line.Function.Name == function {
				lines = append(lines, line.Line)
			}
		}
	}
	return lines
}

// TestRecordedLines records a program with debug information of which nobody has made an index.
func TestRecordedLines(t *testing.T) {
	needPerf(t)
	program := proctest.BuildC(t, "-g")
	r := recordUnnamed(t, program)
	if _, err := r.Symbolize(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lines := linesOf(r.Profile, "burn"); len(lines) == 0 || slices.Contains(lines, 0) {
		t.Errorf("burn in lines %v", lines)
	}
	if notes := profile.WithoutLines(r.Profile); len(notes) > 0 {
		t.Error(notes)
	}
}

// TestRecordedLinesByIndex records a program, and looks for lines as they are read from the program,
// and from an index.
func TestRecordedLinesByIndex(t *testing.T) {
	needPerf(t)
	for name, program := range map[string]string{"C": proctest.BuildC(t, "-g", "-O2"), "Go": proctest.BuildGo(t)} {
		t.Run(name, func(t *testing.T) {
			r := recordUnnamed(t, program)
			l := &liner{Recording: r, inTime: t.Context(), most: maxDebugInfo}
			b, results := l.ask(t, program)
			file, err := symbol.OpenFile(program)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			x, err := new(debuginfo.Library).Prepare(t.Context(), b.ID, file, symbol.IndexOptions{})
			if err != nil {
				t.Fatal(err)
			}
			x.Close()
			_, prepared := l.ask(t, program)
			if !slices.EqualFunc(results, prepared, func(a, b symbol.Result) bool { return slices.Equal(a.Frames, b.Frames) }) {
				t.Errorf("by the file %+v\nby an index %+v", results, prepared)
			}
			if !slices.ContainsFunc(results, func(r symbol.Result) bool { return !lacksLine(r) }) {
				t.Errorf("no lines: %+v", results)
			}
		})
	}
}

// ask asks for all frames of a file.
func (l *liner) ask(t *testing.T, file string) (*profile.Binary, []symbol.Result) {
	t.Helper()
	for m, b := range profile.Binaries(l.Profile) {
		if m == nil || m.File != file {
			continue
		}
		var at []addr.Offset
		for _, place := range l.Profile.Location {
			if place.Mapping == m {
				at = append(at, profile.FileOffset(place))
			}
		}
		if len(at) > 0 {
			return &b, l.Lookup(t.Context(), &b, at)
		}
	}
	t.Fatalf("no frames in %s", file)
	return nil, nil
}

// TestLinesHaveBounds asks for lines of a file with more debug information than may be read, and for
// those of one when the time is over.
func TestLinesHaveBounds(t *testing.T) {
	needPerf(t)
	program := proctest.BuildC(t, "-g")
	r := recordUnnamed(t, program)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, l := range map[string]*liner{
		"size": {Recording: r, inTime: t.Context(), most: 16},
		"time": {Recording: r, inTime: over, most: maxDebugInfo},
	} {
		_, results := l.ask(t, program)
		for _, one := range results {
			if len(one.Frames) == 0 || one.Frames[0].Func == "" || !lacksLine(one) {
				t.Errorf("%s: %+v", name, one)
			}
		}
		if !slices.Equal(l.left, []string{program}) {
			t.Errorf("%s: left are %q", name, l.left)
		}
	}
}
