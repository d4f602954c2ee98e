package web

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"hallmark/profile/query"
)

type (
	sourceFile struct {
		Source string       `json:"source"`
		Shown  string       `json:"shown,omitempty"` // the file that the text is from
		Why    string       `json:"why,omitempty"`   // no text is shown
		Lines  []sourceLine `json:"lines"`
	}
	sourceLine struct {
		Line int64  `json:"line"`
		Flat int64  `json:"flat,omitempty"`
		Cum  int64  `json:"cum,omitempty"`
		Text string `json:"text,omitempty"`
		Gap  bool   `json:"gap,omitempty"` // lines before this one are left out
	}
)

// Bounds of the sources that are shown.
const (
	around    = 5  // lines of text before and after one that costs something
	maxFiles  = 50 // files of one function
	maxLines  = 20_000
	maxColumn = 1000 // bytes of a line
)

// lines answers with what the lines of a function cost, and with their text where it can be shown.
func (q *question) lines() error {
	s, frame, err := q.subject()
	if err != nil {
		return err
	}
	f := q.shown.Set.Frames()[frame]
	row := s.byFrame()[frame]
	a := struct {
		Name   string       `json:"name"`
		Source string       `json:"source"`
		Unit   string       `json:"unit"`
		Cum    int64        `json:"cum"`
		Files  []sourceFile `json:"files"`
	}{plain(f.Name), plain(f.Source), plain(s.Unit()), row.Cum, []sourceFile{}}
	files := map[string][]query.LineRow{}
	for _, r := range s.Lines(frame) {
		files[r.Source] = append(files[r.Source], r)
	}
	names := slices.SortedFunc(maps.Keys(files), func(a, b string) int {
		return cmp.Or(cmp.Compare(cumOf(files[b]), cumOf(files[a])), strings.Compare(a, b))
	})
	for _, name := range names[:min(len(names), maxFiles)] {
		a.Files = append(a.Files, q.sourceFile(name, files[name]))
	}
	return q.send(a)
}

func cumOf(rows []query.LineRow) (sum int64) {
	for _, r := range rows {
		sum += r.Cum
	}
	return sum
}

// sourceFile returns the lines of a file that cost something, and those around them that its
// text has. Nothing proves that such a text is what was compiled, so the page names its file.
func (q *question) sourceFile(name string, rows []query.LineRow) sourceFile {
	f := sourceFile{Source: plain(name), Lines: []sourceLine{}}
	var text []string
	switch {
	case name == "" && !slices.ContainsFunc(rows, func(r query.LineRow) bool { return r.Line > 0 }):
		f.Why = q.noLines()
	case name == "":
	case q.shown.Texts == nil:
		f.Why = "For the text of the lines, name the directory of the sources: hallmark view --source DIR"
	default:
		var err error
		if text, f.Shown, err = q.shown.Texts.Text(name); err != nil {
			f.Why, f.Shown = plain(err.Error()), ""
		}
		f.Shown = plain(f.Shown)
	}
	costs := map[int64]query.LineRow{}
	for _, r := range rows {
		sum := costs[r.Line]
		sum.Flat, sum.Cum = sum.Flat+r.Flat, sum.Cum+r.Cum
		costs[r.Line] = sum
	}
	last := int64(0)
	for _, n := range shownNumbers(costs, int64(len(text))) {
		l := sourceLine{Line: n, Gap: last > 0 && n != last+1, Flat: costs[n].Flat, Cum: costs[n].Cum}
		if n > 0 && n <= int64(len(text)) {
			l.Text = plainSource(text[n-1])
		}
		f.Lines = append(f.Lines, l)
		last = n
	}
	return f
}

// noLines says why the lines of code are not known, and what helps.
func (q *question) noLines() string {
	const why = "No lines are known: nothing that names this profile has debug information of this identity."
	if q.shown.Code == nil {
		return why
	}
	return why + " A file that has it is looked for at its path, in the directories of debug files, below --debug-path, and on the servers of DEBUGINFOD_URLS."
}

// shownNumbers returns the lines that cost something, and those around them that a text of
// so many lines has.
func shownNumbers(costs map[int64]query.LineRow, length int64) []int64 {
	numbers := map[int64]bool{}
	for n := range costs {
		numbers[n] = true
		if n > 0 && n <= length {
			for near := max(1, n-around); near <= min(length, n+around); near++ {
				numbers[near] = true
			}
		}
	}
	sorted := slices.Sorted(maps.Keys(numbers))
	return sorted[:min(len(sorted), maxLines)]
}

// plainSource returns a line of a source file as it is shown. It keeps nothing of the file.
func plainSource(line string) string {
	line = strings.Clone(line[:min(len(line), maxColumn)])
	return plain(strings.ReplaceAll(strings.TrimSuffix(line, "\r"), "\t", "        "))
}
