// Package top shows, round after round, what runs now: functions, binaries by identity, or
// processes. The screen follows from a [State] alone, which keys change.
package top

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/internal/plaintext"
	"hallmark/profile"
	"hallmark/profile/summary"
)

// Table is what the lines of the screen are.
type Table int

// Tables that there are.
const (
	Functions Table = iota
	Binaries
	Processes
)

// ParseTable returns the table of a name.
func ParseTable(name string) (Table, bool) {
	i := slices.Index(tableNames[:], name)
	return Table(i), i >= 0
}

var tableNames = [...]string{"functions", "binaries", "processes"}

// TableNames returns the names of all tables.
func TableNames() []string { return slices.Clone(tableNames[:]) }

// String returns the name of the table.
func (t Table) String() string { return tableNames[t] }

// State is what is shown, and how.
type State struct {
	Table  Table
	ByCum  bool   // sorted by cum
	Filter string // lines that have it, whatever their case
	Paused bool
	First  int // line of the table at the top

	Target string // "the machine", "process 42"
	Round  int    // 0: none yet
	Sum    *summary.Summary

	typing bool // a filter
	help   bool
}

// Key changes the state as a key of the keyboard wants it, and reports whether it ends the show.
func (s *State) Key(key rune) (quit bool) {
	if s.typing {
		s.typed(key)
		return key == ctrlC
	}
	if s.help { // any key leaves it, and one that does something does that
		s.help = false
		if key == escape || key == '?' || key == 'h' {
			return false
		}
	}
	switch key {
	case 'q', 'Q', ctrlC, ctrlD:
		return true
	case 'f':
		s.Table, s.First = Functions, 0
	case 'b':
		s.Table, s.First = Binaries, 0
	case 'p':
		s.Table, s.First = Processes, 0
	case '\t':
		s.Table, s.First = (s.Table+1)%Table(len(tableNames)), 0
	case 's':
		s.ByCum, s.First = !s.ByCum, 0
	case '/':
		s.typing, s.Filter, s.First = true, "", 0
	case escape:
		s.Filter, s.First = "", 0
	case ' ':
		s.Paused = !s.Paused
	case '?', 'h':
		s.help = true
	case Down, 'j':
		s.First++
	case Up, 'k':
		s.First--
	case PageDown:
		s.First += 10
	case PageUp:
		s.First -= 10
	case 'g':
		s.First = 0
	}
	s.First = max(s.First, 0)
	return false
}

// Keys that are no characters, in a private area of Unicode.
const (
	Up rune = 0xe000 + iota
	Down
	PageUp
	PageDown
)

const (
	ctrlC     = 3
	ctrlD     = 4
	escape    = 27
	backspace = 127
)

// maxFilter is how long a filter can be.
const maxFilter = 200

func (s *State) typed(key rune) {
	switch {
	case key == '\r' || key == '\n':
		s.typing = false
	case key == escape || key == ctrlC:
		s.typing, s.Filter = false, ""
	case key == backspace || key == 8:
		_, n := utf8.DecodeLastRuneInString(s.Filter)
		s.Filter = s.Filter[:len(s.Filter)-n]
	case unicode.IsPrint(key) && key < 0xe000 && len(s.Filter) < maxFilter:
		s.Filter += string(key)
	}
	s.First = 0
}

// help is lines of entries, each of which stays in one line.
var help = [][]string{
	{"f functions", "b binaries, by identity", "p processes", "Tab the next of them"},
	{"s sort by what a function did itself (flat),", "or also by what it called (cum)"},
	{"/ show only lines that have some text;", "Enter keeps it, Escape takes it away"},
	{"Space pauses", "Up Down PageUp PageDown scroll", "g goes to the first line"},
	{"? or Escape leaves this help,", "as any other key does", "q ends"},
}

// fold returns the entries of the help in lines that are no wider than that, where the entries are not.
func fold(lines [][]string, width int) (out []string) {
	for _, entries := range lines {
		line := ""
		for _, e := range entries {
			gap := "   "
			if strings.HasSuffix(line, ",") || strings.HasSuffix(line, ";") {
				gap = " "
			}
			switch {
			case line == "":
				line = e
			case len(line)+len(gap)+len(e) <= width:
				line += gap + e
			default:
				out, line = append(out, line), "  "+e
			}
		}
		out = append(out, line)
	}
	return out
}

// Screen returns the lines of a screen of this size: none is longer than it is wide.
func (s *State) Screen(width, height int) []string {
	lines := []string{s.title()}
	if s.help {
		lines = append(lines, fold(help, width)...)
	} else if s.Sum != nil {
		lines = append(lines, s.table(width, max(1, height-3))...)
	}
	for len(lines) < height-2 {
		lines = append(lines, "")
	}
	lines = append(lines[:max(1, min(len(lines), height-2))], s.status(), s.prompt(width))
	for i := range lines {
		lines[i] = cut(plaintext.Line(lines[i]), width)
	}
	return lines[:min(len(lines), height)]
}

func cut(line string, width int) string {
	runes := []rune(line)
	if len(runes) <= width {
		return line
	}
	return string(runes[:max(0, width-1)]) + "…"
}

func (s *State) title() string {
	title := "hallmark top: " + s.Target
	if s.Sum == nil {
		return title + ", the first round is recorded"
	}
	title += fmt.Sprintf(", round %d: %s %s", s.Round, terminal.Quantity(s.Sum.Total, s.Sum.Unit), s.Sum.SampleType)
	if s.Sum.Duration > 0 {
		title += fmt.Sprintf(" in %s", terminal.Quantity(int64(s.Sum.Duration.Round(time.Millisecond)), "nanoseconds"))
	}
	if s.Sum.SampleType != "samples" {
		title += ", " + plaintext.Plural(s.Sum.Samples, "sample")
	}
	if s.Paused {
		title += " (paused)"
	}
	return title
}

// status is the coverage: how much of what is shown is known.
func (s *State) status() string {
	if s.Sum == nil {
		return ""
	}
	return coverage(&s.Sum.Coverage)
}

func coverage(c *profile.Coverage) string {
	if c.Frames == 0 {
		return "coverage: no frames"
	}
	line := fmt.Sprintf("coverage: %s identified, %s named", terminal.Percent(c.Identified, c.Frames), terminal.Percent(c.Symbolized, c.Frames))
	if c.Stacks != nil {
		line += fmt.Sprintf(", %s of the stacks complete", terminal.Percent(c.Stacks.Complete, c.Stacks.Samples))
	}
	if len(c.Gaps) > 0 {
		g := &c.Gaps[0]
		line += fmt.Sprintf("; %s no %s: %s", terminal.Percent(g.Frames, c.Frames), g.Lacks, g.Reason)
	}
	return line
}

func (s *State) prompt(width int) string {
	switch {
	case s.typing:
		return "/" + s.Filter + "_"
	case s.help:
		return "? or Escape: back   q ends"
	case s.Filter != "":
		return "? help   q ends   Escape shows all   only lines with " + s.Filter
	}
	keys := []string{"f functions", "b binaries", "p processes", "s sort", "/ filter", "Space pause", "? help", "q ends"}
	for n := len(keys) - 2; n > 0; n-- { // the last two have the rest
		if all := strings.Join(append(slices.Clone(keys[:n]), keys[len(keys)-2:]...), "  "); len(all) <= width {
			return all
		}
	}
	return strings.Join(keys[len(keys)-2:], "  ")
}

// row is a line of the table.
type row struct {
	flat, cum int64
	cells     []string
}

// rows returns the lines of the table, sorted and filtered.
func (s *State) rows() (head []string, rows []row) {
	switch s.Table {
	case Functions:
		head = []string{"binary", "function"}
		for _, f := range s.Sum.Functions {
			rows = append(rows, row{f.Flat, f.Cum, []string{terminal.Name(profile.ShortName(f.File)), plaintext.Quote(f.Name)}})
		}
	case Binaries:
		head = []string{"identity", "binary"}
		for _, b := range s.Sum.Binaries {
			rows = append(rows, row{b.Flat, b.Cum, []string{cmp.Or(b.BuildID, "-"), terminal.Name(cmp.Or(b.File, "[unknown]"))}})
		}
	case Processes:
		head = []string{"pids", "process"}
		for _, p := range s.Sum.Processes {
			rows = append(rows, row{p.Flat, p.Flat, []string{terminal.Count(p.PIDs), terminal.Name(cmp.Or(p.Name, "?"))}})
		}
	}
	if s.Filter != "" {
		want := strings.ToLower(s.Filter)
		rows = slices.DeleteFunc(rows, func(r row) bool {
			return !strings.Contains(strings.ToLower(strings.Join(r.cells, " ")), want)
		})
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		if s.ByCum {
			return cmp.Or(cmp.Compare(b.cum, a.cum), cmp.Compare(b.flat, a.flat))
		}
		return cmp.Or(cmp.Compare(b.flat, a.flat), cmp.Compare(b.cum, a.cum))
	})
	return head, rows
}

// table returns the lines of the table that there is room for.
func (s *State) table(width, room int) []string {
	head, rows := s.rows()
	s.First = max(0, min(s.First, len(rows)-1))
	rows = rows[s.First:]
	var out bytes.Buffer
	s.grid(head, rows[:min(len(rows), room-1)]).Write(&out, width)
	if len(rows) == 0 {
		fmt.Fprintln(&out, "nothing")
	}
	return strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
}

func (s *State) grid(head []string, rows []row) *terminal.Grid {
	number := terminal.Column{Right: true}
	in := terminal.RulerFor(s.Sum.Total, s.Sum.Unit)
	second := terminal.Column{Most: 24, Gives: true}
	if s.Table == Binaries {
		second = terminal.Column{Gives: true, Start: true}
	}
	t := &terminal.Grid{Columns: []terminal.Column{number, number, number, number, second, {}}}
	flat, cum := "flat", "cum"
	if s.ByCum {
		cum += "↓"
	} else {
		flat += "↓"
	}
	if s.Table == Processes { // they have no cum of their own
		t.Columns = t.Columns[2:]
		t.Add(append([]string{"flat", ""}, head...)...)
		for _, r := range rows {
			t.Add(append([]string{in.Format(r.flat), terminal.Percent(r.flat, s.Sum.Total)}, r.cells...)...)
		}
		return t
	}
	t.Add(append([]string{flat, "", cum, ""}, head...)...)
	for _, r := range rows {
		t.Add(append([]string{in.Format(r.flat), terminal.Percent(r.flat, s.Sum.Total), in.Format(r.cum), terminal.Percent(r.cum, s.Sum.Total)}, r.cells...)...)
	}
	return t
}

// WriteRound writes a round as plain text, with so many lines at most.
func (s *State) WriteRound(w io.Writer, most int) {
	fmt.Fprintln(w, plaintext.Line(s.title()))
	head, rows := s.rows()
	if most > 0 {
		rows = rows[:min(len(rows), most)]
	}
	s.grid(head, rows).Write(w, terminal.Width(w))
	fmt.Fprintf(w, "%s\n\n", plaintext.Line(s.status()))
}
