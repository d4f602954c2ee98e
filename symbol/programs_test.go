package symbol

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"hallmark/addr"
	"hallmark/internal/dwarftest"
	"hallmark/internal/testenv"
)

// programs returns how many generated programs a test looks at, and the first seed:
// HALLMARK_PROGRAMS says how many, or which: "100000", or "60000-100000" for those from
// one seed to before another, or "=12345" for that seed alone.
func programs(t *testing.T, n int) (first, end uint64) {
	t.Helper()
	text, one := strings.CutPrefix(os.Getenv("HALLMARK_PROGRAMS"), "=")
	if text == "" {
		return 0, uint64(n)
	}
	from, to, several := strings.Cut(text, "-")
	first, err := strconv.ParseUint(from, 0, 64)
	if several && err == nil {
		end, err = strconv.ParseUint(to, 0, 64)
	}
	switch {
	case err != nil:
		t.Fatalf("HALLMARK_PROGRAMS: %v", err)
	case one:
		end = first + 1
	case !several:
		first, end = 0, first
	}
	return first, end
}

// TestGeneratedPrograms compares what is said of generated programs with what is true
// of them: address by address, of all addresses at once, and by an index.
func TestGeneratedPrograms(t *testing.T) {
	n := 600
	if testenv.Brief() {
		n = 200
	}
	first, end := programs(t, n)
	disputes := newDisputes()
	var next atomic.Uint64
	next.Store(first)
	var answers atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for seed := next.Add(1) - 1; seed < end; seed = next.Add(1) - 1 {
				p := dwarftest.Generate(seed)
				disputes.look(p)
				answers.Add(int64(len(p.Answers)))
				for way, err := range compareProgram(p) {
					disputes.add(p, way, err)
				}
			}
		})
	}
	workers.Wait()
	t.Logf("%d programs, %d addresses", end-first, answers.Load())
	disputes.report(t)
}

// disputes are programs that somebody says something else of than is true, by class.
type disputes struct {
	mu      sync.Mutex
	classes map[string][]dispute
	looked  map[string]int // at how many programs, by trait
	all     int
}

type dispute struct {
	seed   uint64
	traits []string
	text   string
}

func newDisputes() *disputes {
	return &disputes{classes: map[string][]dispute{}, looked: map[string]int{}}
}

// look notes that a program was looked at.
func (d *disputes) look(p *dwarftest.Program) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all++
	for _, trait := range p.Traits {
		d.looked[trait]++
	}
}

// suspects returns the traits that programs of a class have far more often than others.
func (d *disputes) suspects(class []dispute) string {
	has := map[string]int{}
	for _, one := range class {
		for _, trait := range one.traits {
			has[trait]++
		}
	}
	odds := func(trait string) float64 { return float64(has[trait]) / float64(d.looked[trait]) }
	traits := slices.SortedFunc(maps.Keys(has), func(a, b string) int { return cmp.Compare(odds(b), odds(a)) })
	var b strings.Builder
	for _, trait := range traits[:min(len(traits), 6)] {
		fmt.Fprintf(&b, " %q (%d of %d)", trait, has[trait], d.looked[trait])
	}
	return b.String()
}

func (d *disputes) add(p *dwarftest.Program, class, text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.classes[class] = append(d.classes[class], dispute{p.Seed, p.Traits, text})
}

// report fails the test where there are disputes, with the seeds by which each can be
// looked at alone.
func (d *disputes) report(t *testing.T) {
	t.Helper()
	for class, all := range d.classes {
		slices.SortFunc(all, func(a, b dispute) int { return len(a.traits) - len(b.traits) })
		var b strings.Builder
		for _, one := range all[:min(len(all), 3)] {
			fmt.Fprintf(&b, "\nHALLMARK_PROGRAMS==%d %s\n%s", one.seed, strings.Join(one.traits, ", "), one.text)
		}
		t.Errorf("%s: %d of %d programs; most often those with%s%s", class, len(all), d.all, d.suspects(all), b.String())
	}
}

// openProgram opens a generated program in memory.
func openProgram(p *dwarftest.Program) (*File, error) {
	f, err := NewFile(bytes.NewReader(p.Files[p.Main]), "/gen/"+p.Main)
	if err != nil {
		return nil, err
	}
	f.NoIndex = true
	f.Companion = func(c Companion) *File {
		data, ok := p.Files[filepath.Base(c.Path)]
		if !ok {
			return nil
		}
		f, err := NewFile(bytes.NewReader(data), c.Path)
		if err != nil {
			return nil
		}
		return f
	}
	return f, nil
}

// compareProgram returns how the answers for a program differ from the truth, by the
// way that leads to them.
func compareProgram(p *dwarftest.Program) map[string]string {
	wrong := map[string]string{}
	if len(p.Answers) == 0 {
		return wrong
	}
	addresses := make([]addr.Virt, len(p.Answers))
	for i, a := range p.Answers {
		addresses[i] = addr.Virt(a.Addr)
	}
	check := func(way string, of func(f *File) ([]Result, error)) {
		f, err := openProgram(p)
		if err != nil {
			wrong[way] = err.Error()
			return
		}
		defer f.Close()
		results, err := of(f)
		if err != nil {
			wrong[way] = err.Error()
			return
		}
		for i, r := range results {
			if diff := differs(p.Answers[i], r); diff != "" {
				wrong[way] = diff
				return
			}
		}
	}
	check("one by one", func(f *File) (results []Result, err error) {
		for _, v := range addresses {
			results = append(results, f.LookupVirt(v))
		}
		return results, nil
	})
	check("all at once", func(f *File) ([]Result, error) { return f.LookupVirts(addresses), nil })
	check("by an index", func(f *File) ([]Result, error) {
		x, err := f.Index(IndexOptions{Open: f.Companion, Threads: 1 + int(p.Seed%2)})
		if err != nil {
			return nil, err
		}
		return x.LookupVirts(addresses), nil
	})
	// The first address that a file is asked for is looked for in another way.
	for n := range 4 {
		first := (int(p.Seed%97) + n*len(addresses)/4) % len(addresses)
		f, err := openProgram(p)
		if err != nil {
			return wrong // as before
		}
		if diff := differs(p.Answers[first], f.LookupVirt(addresses[first])); diff != "" {
			wrong["the first one"] = diff
		}
		f.Close()
	}
	return wrong
}

// truth is an answer as a Result.
func truth(a dwarftest.Answer) Result {
	r := Result{}
	for i, f := range a.Frames {
		r.Frames = append(r.Frames, Frame{
			Linkage: f.Function, Symbol: f.Symbol, File: f.File, Line: f.Line, Column: f.Column, Start: f.Start, Inlined: i < len(a.Frames)-1,
		})
	}
	return r
}

// differs returns how a Result differs from the truth, or "".
func differs(a dwarftest.Answer, r Result) string {
	want := truth(a).Frames
	got := slices.Clone(r.Frames)
	for i := range got {
		got[i].Func, got[i].Lang = "", 0
	}
	if slices.Equal(got, want) {
		return ""
	}
	return fmt.Sprintf("%#x is %s\nnot %s", a.Addr, framesText(want), framesText(got)+" "+r.Reason.String())
}

func framesText(frames []Frame) string {
	var b strings.Builder
	for _, f := range frames {
		fmt.Fprintf(&b, "\n\t%.80s (%.80s, from line %d) %s:%d:%d", f.Linkage, f.Symbol, f.Start, f.File, f.Line, f.Column)
	}
	return b.String()
}
