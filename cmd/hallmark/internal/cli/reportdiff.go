package cli

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	pprof "github.com/google/pprof/profile"

	"hallmark/cmd/hallmark/internal/input"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/plaintext"
	"hallmark/profile"
	"hallmark/profile/query"
)

// runDiff reports what changed from a base to a profile.
func (r *report) runDiff(name string) error {
	verb.CollectSeldom()
	if r.input.Event == input.EveryEvent {
		return verb.Usagef("--diff compares one event: --event names it")
	}
	base, baseMisses, err := r.readNamed(r.base)
	if err != nil {
		return err
	}
	baseStatus := r.input.Status()
	p, misses, err := r.readNamed(name)
	if err != nil {
		return err
	}
	for _, note := range profile.Separate(base, p) {
		fmt.Fprintf(r.env.Stderr, "hallmark: %s\n", plaintext.Line(note))
	}
	if err := r.compare(name, r.base, p, misses, base, baseMisses); err != nil {
		return err
	}
	return cmp.Or(baseStatus, r.input.Status())
}

// reportComparison reports what changed in text that is a comparison, whose profile is p.
func (r *report) reportComparison(name string, p *pprof.Profile) error {
	base := r.input.Base
	misses, err := r.named(name, p)
	if err != nil {
		return err
	}
	baseMisses, err := r.named(name, base)
	if err != nil {
		return err
	}
	return r.compare(name, name, p, misses, base, baseMisses)
}

// compare reports what changed from one profile with symbols to another.
func (r *report) compare(name, baseName string, p *pprof.Profile, misses profile.Misses, base *pprof.Profile, baseMisses profile.Misses) error {
	sel, err := r.selected(p, misses, base, baseMisses)
	if err != nil {
		return fmt.Errorf("%s less %s: %w", plaintext.Name(name), plaintext.Name(baseName), err)
	}
	d := newDiff(sel, r.normalize)
	if r.json {
		return r.writeDiffJSON(d)
	}
	r.writeDiff(d, baseName, name)
	return nil
}

// readNamed reads a profile, and gives it symbols.
func (r *report) readNamed(name string) (*pprof.Profile, profile.Misses, error) {
	p, err := r.input.Read(r.env, name)
	if err != nil {
		return nil, nil, err
	}
	misses, err := r.named(name, p)
	return p, misses, err
}

// named gives symbols to a profile.
func (r *report) named(name string, p *pprof.Profile) (profile.Misses, error) {
	misses, err := r.symbols.Show(r.env, p)
	if err == nil {
		err = r.input.CheckCalls(name, p)
	}
	if err == nil {
		profile.DropUninteresting(p)
	}
	return misses, err
}

// diff is two profiles that are compared.
type diff struct {
	sel   *query.Selection
	set   *query.Set
	scale float64 // what the base is multiplied by
}

func newDiff(sel *query.Selection, normalize bool) *diff {
	d := &diff{sel: sel, set: sel.Set(), scale: 1}
	if normalize {
		d.scale = sel.Scale()
	}
	return d
}

// whole is what shares are of.
func (d *diff) whole() int64 { return max(d.sel.Total(), d.scaled(d.sel.BaseTotal())) }

func (d *diff) scaled(v int64) int64 { return int64(math.Round(d.scale * float64(v))) }

// change writes a change: "+1.20s", "-3.1%".
func signed(text string, v float64) string {
	if v > 0 {
		return "+" + text
	}
	return text
}

// changeCells are the cells of a change, and of its share of the whole.
func (d *diff) changeCells(in terminal.Ruler, v float64) (value, share string) {
	n := int64(math.Round(v))
	return signed(in.Format(n), v), signed(terminal.Percent(n, d.whole()), float64(n))
}

func (r *report) writeDiff(d *diff, before, after string) {
	w := r.env.Stdout
	unit, kind := d.sel.Unit(), d.sel.SampleType()
	in := terminal.RulerFor(max(d.whole(), d.sel.BaseTotal()), unit)
	base, own := d.set.Base().Duration(), d.set.Profile().Duration()
	fmt.Fprintf(w, "before: %s %s%s, %s\n", terminal.Quantity(d.sel.BaseTotal(), unit), plaintext.Line(kind), over(base), plaintext.Name(before))
	fmt.Fprintf(w, "after:  %s %s%s, %s\n", terminal.Quantity(d.sel.Total(), unit), plaintext.Line(kind), over(own), plaintext.Name(after))
	switch {
	case d.scale != 1:
		fmt.Fprintf(w, "Values before are multiplied by %.4g, so that both profiles have the same total.\n", d.scale)
	case unlike(base, own):
		fmt.Fprintln(w, "They were recorded for different times. Values are compared as they are; --normalize gives both the same total.")
	}
	if d.sel.Total() == 0 || d.sel.BaseTotal() == 0 {
		fmt.Fprintln(w, "One of the profiles is empty.")
	}
	rows := d.changed(d.sel.Changes(d.scale))
	t := &terminal.Grid{Columns: []terminal.Column{number, number, number, number, number, {Most: 24, Gives: true}, {}}}
	t.Add("change", "", "flat before", "flat after", "change of cum", "binary", "function")
	for _, row := range rows[:shown(len(rows), r.top)] {
		f := &d.set.Frames()[row.Frame]
		value, share := d.changeCells(in, row.Change(d.scale))
		cum, _ := d.changeCells(in, row.CumChange(d.scale))
		t.Add(value, share, in.Format(d.scaled(row.BaseFlat)), in.Format(row.Flat), cum, terminal.Name(d.set.Binaries()[f.Binary].Name), plaintext.Quote(f.Name))
	}
	r.section(t, len(rows), r.top)
	others := min(mostOthers, r.top)
	r.writeDiffBinaries(d, in, others)
	r.writeDiffProcesses(d, in, others)
	fmt.Fprintln(w)
	coverage := d.sel.Coverage()
	fmt.Fprint(w, "After: ")
	writeCoverage(w, &coverage)
}

// over says for how long a profile was recorded.
func over(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return " in " + terminal.Quantity(int64(d), "nanoseconds")
}

// unlike reports whether two profiles are known to be of times that differ by more than a tenth.
func unlike(a, b time.Duration) bool { return a > 0 && b > 0 && max(a, b)-min(a, b) > max(a, b)/10 }

// changed leaves out the functions of which nothing is shown that changed.
func (d *diff) changed(rows []query.FunctionRow) []query.FunctionRow {
	return slices.DeleteFunc(rows, func(r query.FunctionRow) bool {
		return math.Round(r.Change(d.scale)) == 0 && math.Round(r.CumChange(d.scale)) == 0
	})
}

// binaries returns the binaries by what they changed most by.
func (d *diff) binaries() []query.BinaryRow {
	rows := slices.DeleteFunc(d.sel.BinaryTable(), func(r query.BinaryRow) bool { return r.Flat == 0 && r.BaseFlat == 0 })
	slices.SortStableFunc(rows, func(a, b query.BinaryRow) int {
		return cmp.Compare(math.Abs(b.Change(d.scale)), math.Abs(a.Change(d.scale)))
	})
	return rows
}

func (r *report) writeDiffBinaries(d *diff, in terminal.Ruler, most int) {
	rows := d.binaries()
	t := &terminal.Grid{Columns: []terminal.Column{number, number, number, number, {Gives: true, Start: true}, {}}}
	t.Add("change", "", "flat before", "flat after", "identity", "binary")
	width := terminal.Width(r.env.Stdout)
	for _, row := range rows[:shown(len(rows), most)] {
		b := &d.set.Binaries()[row.Binary]
		value, share := d.changeCells(in, row.Change(d.scale))
		id := cmp.Or(terminal.ShortID(b.BuildID, width), "-")
		if b.BaseBuildID != "" {
			id = terminal.ShortID(b.BaseBuildID, terminal.NarrowWidth-1) + " → " + terminal.ShortID(b.BuildID, terminal.NarrowWidth-1)
		}
		name := terminal.Name(cmp.Or(b.File, "[unknown]")) + claimMark(claimantOf(b))
		if b.BaseFile != "" {
			name += " (before " + terminal.Name(b.BaseFile) + ")"
		}
		t.Add(value, share, in.Format(d.scaled(row.BaseFlat)), in.Format(row.Flat), id, name)
	}
	r.section(t, len(rows), most)
}

func (r *report) writeDiffProcesses(d *diff, in terminal.Ruler, most int) {
	rows := d.processes()
	if len(rows) == 0 {
		return
	}
	t := &terminal.Grid{Columns: []terminal.Column{number, number, number, number, {}}}
	t.Add("change", "", "before", "after", "process")
	for _, row := range rows[:shown(len(rows), most)] {
		value, share := d.changeCells(in, float64(row.Flat)-d.scale*float64(row.BaseFlat))
		t.Add(value, share, in.Format(d.scaled(row.BaseFlat)), in.Format(row.Flat), plaintext.Name(cmp.Or(row.Name, "?")))
	}
	r.section(t, len(rows), most)
}

// processes returns the processes by what they changed most by.
func (d *diff) processes() []query.ProcessRow {
	rows := d.sel.Processes()
	change := func(r *query.ProcessRow) float64 { return math.Abs(float64(r.Flat) - d.scale*float64(r.BaseFlat)) }
	slices.SortStableFunc(rows, func(a, b query.ProcessRow) int { return cmp.Compare(change(&b), change(&a)) })
	return rows
}

// claimantOf returns whose claim the identity of a binary is, and "" if it is nobody's.
func claimantOf(b *query.Binary) string {
	if b.Claimant == nil {
		return ""
	}
	return b.Claimant.String()
}

// diffRow is a row in JSON. Fields "before" are not scaled, and the change is from the base that is
// multiplied by the scale.
type diffRow struct {
	Function      string  `json:"function,omitempty"`
	Unnamed       bool    `json:"unnamed,omitempty"`
	Process       string  `json:"process,omitempty"`
	File          string  `json:"binary,omitempty"`
	BuildID       string  `json:"build_id,omitempty"`
	BeforeBuildID string  `json:"build_id_before,omitempty"`
	Claimant      string  `json:"claimant,omitempty"`
	Flat          int64   `json:"flat"`
	Cum           int64   `json:"cum,omitempty"`
	FlatBefore    int64   `json:"flat_before"`
	CumBefore     int64   `json:"cum_before,omitempty"`
	Change        float64 `json:"change"`
	CumChange     float64 `json:"cum_change,omitempty"`
}

func (d *diff) row(c *query.Counts) diffRow {
	return diffRow{
		Flat: c.Flat, Cum: c.Cum, FlatBefore: c.BaseFlat, CumBefore: c.BaseCum,
		Change: c.Change(d.scale), CumChange: c.CumChange(d.scale),
	}
}

func (r *report) writeDiffJSON(d *diff) error {
	functions, binaries, processes := []diffRow{}, []diffRow{}, []diffRow{}
	rows := d.sel.Changes(d.scale)
	for _, row := range rows[:shown(len(rows), r.top)] {
		f := &d.set.Frames()[row.Frame]
		b := &d.set.Binaries()[f.Binary]
		one := d.row(&row.Counts)
		one.Function, one.Unnamed, one.File, one.BuildID, one.BeforeBuildID = f.Name, f.Unnamed, b.File, b.BuildID, b.BaseBuildID
		functions = append(functions, one)
	}
	for _, row := range d.binaries() {
		b := &d.set.Binaries()[row.Binary]
		one := d.row(&row.Counts)
		one.File, one.BuildID, one.BeforeBuildID, one.Claimant = b.File, b.BuildID, b.BaseBuildID, claimantOf(b)
		binaries = append(binaries, one)
	}
	for _, row := range d.processes() {
		processes = append(processes, diffRow{
			Process: row.Name, Flat: row.Flat, FlatBefore: row.BaseFlat, Change: float64(row.Flat) - d.scale*float64(row.BaseFlat),
		})
	}
	out := verb.NewObjectWriter(r.env.Stdout)
	out.Indent()
	return out.Write(struct {
		SampleType  string           `json:"sample_type"`
		Unit        string           `json:"unit"`
		Total       int64            `json:"total"`
		TotalBefore int64            `json:"total_before"`
		Scale       float64          `json:"scale"`
		Functions   []diffRow        `json:"functions"`
		Binaries    []diffRow        `json:"binaries"`
		Processes   []diffRow        `json:"processes"`
		Coverage    profile.Coverage `json:"coverage"`
	}{d.sel.SampleType(), d.sel.Unit(), d.sel.Total(), d.sel.BaseTotal(), d.scale, functions, binaries, processes, d.sel.Coverage()})
}
