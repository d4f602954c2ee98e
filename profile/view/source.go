package view

import (
	"cmp"
	"fmt"
	"html/template"
	"iter"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/plaintext"
	"hallmark/profile"
)

// maxListed is how many functions a page of source lines has at most.
const maxListed = 50

// serveSource shows what the lines of functions cost, with their text where the user named a
// directory that has the file. Nothing proves that such a file is what was compiled, so the
// page names it.
func (s *source) serveSource(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	wanted, err := regexp.Compile(query.Get("f"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	index, err := profile.SampleIndex(s.shown, cmp.Or(query.Get("si"), s.options.SampleType))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	listings := s.listings(wanted, index)
	page := sourcePage{
		Filter: query.Get("f"), Type: s.shown.SampleType[index].Type,
		Left: max(0, len(listings)-maxListed), HasSources: s.sources != nil,
	}
	for _, l := range listings[:min(len(listings), maxListed)] {
		page.Functions = append(page.Functions, s.sourceFunction(l, s.shown.SampleType[index].Unit))
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	sourceTemplate.Execute(w, page)
}

// sourceLine is a line of a function in a file.
type sourceLine struct {
	function, file string
	line           int64
}

// listing is what the lines of one function in one file cost.
type listing struct {
	function, file string
	cost           cost
	lines          map[int64]cost
}

// cost is of samples whose stacks end in a place, and of those that go through it.
type cost struct{ flat, cum int64 }

func (c cost) plus(value int64, isLeaf bool) cost {
	c.cum += value
	if isLeaf {
		c.flat += value
	}
	return c
}

// listings returns the functions that are wanted by their name or that of their file, the
// most expensive one first. A function that calls itself is counted once in each stack.
func (s *source) listings(wanted *regexp.Regexp, index int) []*listing {
	all := map[sourceLine]*listing{}
	seen := map[sourceLine]bool{}
	for _, sample := range s.shown.Sample {
		clear(seen)
		for line, isLeaf := range linesOf(sample) {
			if f := line.Function; isWanted(f, wanted) {
				count(all, seen, sourceLine{f.Name, f.Filename, line.Line}, sample.Value[index], isLeaf)
			}
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *listing) int {
		return cmp.Or(cmp.Compare(abs(b.cost.cum), abs(a.cost.cum)), cmp.Compare(a.function, b.function), cmp.Compare(a.file, b.file))
	})
}

// linesOf yields the calls of a stack whose functions are known, and whether it is the leaf.
func linesOf(s *pprof.Sample) iter.Seq2[pprof.Line, bool] {
	return func(yield func(pprof.Line, bool) bool) {
		for i, l := range s.Location {
			for j, line := range l.Line {
				if line.Function != nil && !yield(line, i == 0 && j == 0) {
					return
				}
			}
		}
	}
}

func isWanted(f *pprof.Function, wanted *regexp.Regexp) bool {
	return wanted.MatchString(f.Name) || wanted.MatchString(f.SystemName) || wanted.MatchString(f.Filename)
}

func count(all map[sourceLine]*listing, seen map[sourceLine]bool, at sourceLine, value int64, isLeaf bool) {
	function := sourceLine{at.function, at.file, wholeFunction}
	l := all[function]
	if l == nil {
		l = &listing{function: at.function, file: at.file, lines: map[int64]cost{}}
		all[function] = l
	}
	if !seen[function] {
		seen[function] = true
		l.cost = l.cost.plus(value, isLeaf)
	}
	if !seen[at] {
		seen[at] = true
		l.lines[at.line] = l.lines[at.line].plus(value, isLeaf)
	}
}

// wholeFunction is no number of a line.
const wholeFunction = -1

func abs(n int64) int64 { return max(n, -n) }

// The page.
type (
	sourcePage struct {
		Filter, Type string
		Functions    []sourceFunction
		Left         int // functions that are not shown
		HasSources   bool
	}
	sourceFunction struct {
		Name, File string
		Shown      string // the file that the text is from; empty for none
		Why        string // no text is shown
		Flat, Cum  string
		Lines      []shownLine
	}
	shownLine struct {
		Number    int64
		Flat, Cum string
		Text      string
		Gap       bool // lines before this one are left out
	}
)

// around is how many lines of text are shown before and after one that costs something.
const around = 5

func (s *source) sourceFunction(l *listing, unit string) sourceFunction {
	f := sourceFunction{Name: l.function, File: l.file, Flat: amount(l.cost.flat, unit), Cum: amount(l.cost.cum, unit)}
	text, shown, err := s.text(l.file)
	if err != nil {
		f.Why = plaintext.Line(err.Error())
	} else {
		f.Shown = shown
	}
	last := int64(0)
	for _, n := range shownNumbers(l, int64(len(text))) {
		line := shownLine{Number: n, Gap: last > 0 && n != last+1}
		if c, ok := l.lines[n]; ok {
			line.Flat, line.Cum = amount(c.flat, unit), amount(c.cum, unit)
		}
		if n > 0 && n <= int64(len(text)) {
			line.Text = plainSource(text[n-1])
		}
		f.Lines = append(f.Lines, line)
		last = n
	}
	return f
}

// shownNumbers returns the lines that cost something, and those around them that a text of
// so many lines has.
func shownNumbers(l *listing, length int64) []int64 {
	numbers := map[int64]bool{}
	for n := range l.lines {
		numbers[n] = true
		if n > 0 && n <= length {
			for near := max(1, n-around); near <= min(length, n+around); near++ {
				numbers[near] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(numbers))
}

// amount writes a value with its unit.
func amount(value int64, unit string) string {
	switch {
	case value == 0:
		return "."
	case unit == "nanoseconds":
		return time.Duration(value).Round(time.Microsecond).String()
	case unit == "count" || unit == "":
		return fmt.Sprint(value)
	}
	return fmt.Sprint(value, " ", unit)
}

var sourceTemplate = template.Must(template.New("").Funcs(template.FuncMap{"trim": strings.TrimSpace}).Parse(`<!DOCTYPE html>
<html>
<head>
<meta charset="utf-8">
<title>{{if .Filter}}{{.Filter}}{{else}}Source lines{{end}}</title>
<style>
body { font-family: sans-serif; margin: 1em 2em }
nav a { margin-right: 1em }
h2 { font-size: 1em; margin: 2em 0 0 }
p { margin: 0.3em 0; color: #555 }
td { font-family: monospace; white-space: pre; padding: 0 0.7em; text-align: right }
td.text { text-align: left }
tr.gap td { border-top: 1px dotted #999 }
</style>
</head>
<body>
<nav><a href="./flamegraph">Flame graph</a> <a href="./top">Top</a> <a href="./peek?f={{.Filter}}">Peek</a> <a href="./download">Download</a></nav>
<form action="./source"><p>Functions or files: <input name="f" size="60" value="{{.Filter}}"> <input type="hidden" name="si" value="{{.Type}}"><input type="submit" value="Show"></p></form>
{{if not .HasSources}}<p>For the text of the lines, name the directory of the sources: hallmark view --source DIR</p>
{{end}}{{range .Functions}}<h2>{{.Name}}</h2>
<p>{{if .File}}{{.File}}{{else}}no file is known{{end}}; flat {{trim .Flat}}, with callees {{trim .Cum}}
{{if .Shown}}<p>Text from {{.Shown}} in the directory of --source; nothing proves that this was compiled
{{else if .Why}}<p>{{.Why}}
{{end}}<table>
{{range .Lines}}<tr{{if .Gap}} class="gap"{{end}}><td>{{if .Number}}{{.Number}}{{else}}?{{end}}<td>{{.Flat}}<td>{{.Cum}}<td class="text">{{.Text}}
{{end}}</table>
{{else}}<p>No function has this name.
{{end}}{{if .Left}}<p>{{.Left}} more functions are not shown.
{{end}}</body>
</html>
`))
