package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	pprof "github.com/google/pprof/profile"
)

// What the pages show of a profile. The driver makes a hundred times as much memory of it: a few
// bytes of a profile, which gzip made fewer, would stand for pages that no browser shows.
const (
	maxShownName   = 1 << 10 // bytes of a name
	maxShownText   = 6 << 20 // of the names of all places together
	maxShownPlaces = 40_000  // lines of functions, and functions
	maxShownLabels = 8 << 20 // bytes of the labels of all samples together
)

// reduce cuts long names in p, and shows the functions and lines that cost least as one each, if
// they are too many for a page. The legend of each page says what is left out.
func reduce(p *pprof.Profile) {
	var notes []string
	if n := cutNames(p); n > 0 {
		notes = append(notes, fmt.Sprintf("%s, behind %d bytes", counted(n, "name"), maxShownName))
	}
	s := newSelection(p)
	if functions, lines := s.choose(); functions+lines > 0 {
		s.apply(p)
		if functions > 0 {
			notes = append(notes, counted(functions, "function")+" that cost least, shown as one")
		}
		if lines > 0 {
			notes = append(notes, counted(lines, "line")+" of functions that cost least, shown as their function")
		}
	}
	if dropLabels(p) {
		notes = append(notes, "labels of samples")
	}
	if notes != nil {
		p.Comments = append(p.Comments, "Left out on these pages: "+strings.Join(notes, "; "))
	}
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// cutNames cuts names that are too long, and returns how many. Different names stay different.
func cutNames(p *pprof.Profile) int {
	cut := map[string]string{}
	shorten := func(names ...*string) {
		for _, name := range names {
			if len(*name) <= maxShownName {
				continue
			}
			short, ok := cut[*name]
			if !ok {
				short = cutName(*name, len(cut)+1)
				cut[*name] = short
			}
			*name = short
		}
	}
	for _, f := range p.Function {
		shorten(&f.Name, &f.SystemName, &f.Filename)
	}
	for _, m := range p.Mapping {
		shorten(&m.File, &m.BuildID)
	}
	for _, t := range p.SampleType {
		shorten(&t.Type, &t.Unit)
	}
	for i := range p.Comments {
		shorten(&p.Comments[i])
	}
	for _, s := range p.Sample {
		for _, values := range []map[string][]string{s.Label, s.NumUnit} {
			for _, v := range values {
				for i := range v {
					shorten(&v[i])
				}
			}
		}
	}
	return len(cut)
}

// cutName returns the beginning of a name, and which of the long ones it is.
func cutName(name string, number int) string {
	size := maxShownName
	for size > 0 && !utf8.RuneStart(name[size]) {
		size--
	}
	return fmt.Sprintf("%s… (long name %d)", name[:size], number)
}

// shownPlace is what the driver makes a node of.
type shownPlace struct {
	function *pprof.Function
	line     int64 // 0 for the function
}

// selection says which functions and lines are shown.
type selection struct {
	functions, lines map[shownPlace]float64 // what they cost, functions with line 0
	shown            map[shownPlace]bool
}

// newSelection adds up what functions and lines cost.
func newSelection(p *pprof.Profile) *selection {
	s := &selection{functions: map[shownPlace]float64{}, lines: map[shownPlace]float64{}}
	for l, cost := range costOfLocations(p) {
		for _, line := range l.Line {
			if line.Function == nil {
				continue
			}
			s.functions[shownPlace{line.Function, 0}] += cost
			if line.Line != 0 {
				s.lines[shownPlace{line.Function, line.Line}] += cost
			}
		}
	}
	return s
}

// costOfLocations returns the share of locations in all types of samples.
func costOfLocations(p *pprof.Profile) map[*pprof.Location]float64 {
	totals := make([]float64, len(p.SampleType))
	for _, s := range p.Sample {
		for i, v := range s.Value {
			totals[i] += float64(abs(v))
		}
	}
	costs := make(map[*pprof.Location]float64, len(p.Location))
	for _, s := range p.Sample {
		cost := 0.0
		for i, v := range s.Value {
			if v != 0 {
				cost += float64(abs(v)) / totals[i]
			}
		}
		for _, l := range s.Location {
			costs[l] += cost
		}
	}
	return costs
}

// choose chooses what is shown, and returns how many functions and lines are not. Functions come
// first, as a line without its function says nothing.
func (s *selection) choose() (functions, lines int) {
	places, text := maxShownPlaces, maxShownText
	if s.fits(places, text) {
		return 0, 0
	}
	s.shown = map[shownPlace]bool{}
	take := func(all map[shownPlace]float64, places, text int) (left int) {
		for _, p := range byCost(all) {
			size := len(p.function.Name) + len(p.function.Filename)
			if places == 0 || text < size {
				left++
				continue
			}
			places, text = places-1, text-size
			s.shown[p] = true
		}
		return left
	}
	functions = take(s.functions, places/2, text/2)
	maps.DeleteFunc(s.lines, func(p shownPlace, _ float64) bool { return !s.shown[shownPlace{p.function, 0}] })
	return functions, take(s.lines, places/2, text/2)
}

// fits reports whether all can be shown.
func (s *selection) fits(places, text int) bool {
	if len(s.functions)+len(s.lines) > places {
		return false
	}
	for _, all := range []map[shownPlace]float64{s.functions, s.lines} {
		for p := range all {
			text -= len(p.function.Name) + len(p.function.Filename)
		}
	}
	return text >= 0
}

// byCost returns the places, the most expensive one first.
func byCost(all map[shownPlace]float64) []shownPlace {
	return slices.SortedFunc(maps.Keys(all), func(a, b shownPlace) int {
		return cmp.Or(cmp.Compare(all[b], all[a]), cmp.Compare(a.function.ID, b.function.ID), cmp.Compare(a.line, b.line))
	})
}

// apply replaces what is not shown.
func (s *selection) apply(p *pprof.Profile) {
	others := &pprof.Function{Name: "(other functions)"}
	for _, l := range p.Location {
		for i := range l.Line {
			line := &l.Line[i]
			switch {
			case line.Function == nil:
			case !s.shown[shownPlace{line.Function, 0}]:
				*line = pprof.Line{Function: others}
			case line.Line != 0 && !s.shown[shownPlace{line.Function, line.Line}]:
				line.Line, line.Column = 0, 0
			}
		}
	}
	for _, f := range p.Function {
		others.ID = max(others.ID, f.ID+1)
	}
	p.Function = append(slices.DeleteFunc(p.Function, func(f *pprof.Function) bool { return !s.shown[shownPlace{f, 0}] }), others)
}

// dropLabels removes the labels of samples if they are too much text, and reports whether they
// were: the driver makes a string of those of each sample.
func dropLabels(p *pprof.Profile) bool {
	size := 0
	for _, s := range p.Sample {
		for key, values := range s.Label {
			for _, v := range values {
				size += len(key) + len(v)
			}
		}
	}
	if size <= maxShownLabels {
		return false
	}
	for _, s := range p.Sample {
		s.Label = nil
	}
	return true
}
