package web

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"strings"

	"hallmark/profile"
	"hallmark/profile/query"
)

// A page of a table.
const (
	pageRows = 200
	mostRows = 1 << 30
)

// tableHead is what all tables have.
type tableHead struct {
	Unit      string  `json:"unit"`
	Total     int64   `json:"total"`
	BaseTotal int64   `json:"baseTotal"`
	Scale     float64 `json:"scale"`
	Count     int     `json:"count"` // rows there are
}

func (q *question) tableHead(s *selected, count int) tableHead {
	return tableHead{plain(s.Unit()), s.Total(), s.BaseTotal(), q.scale(s), count}
}

// values are the figures of a row.
type values struct {
	Flat     int64 `json:"flat"`
	Cum      int64 `json:"cum"`
	BaseFlat int64 `json:"baseFlat,omitempty"`
	BaseCum  int64 `json:"baseCum,omitempty"`
}

// page returns the rows of the page that the question asks for.
func page[T any](q *question, rows []T) ([]T, error) {
	offset, err := q.number("offset", 0, 0, mostRows)
	if err != nil {
		return nil, err
	}
	limit, err := q.number("limit", pageRows, 1, 10_000)
	if err != nil {
		return nil, err
	}
	rows = rows[min(int(offset), len(rows)):]
	return rows[:min(int(limit), len(rows))], nil
}

type functionRow struct {
	values
	Frame    int    `json:"frame"`
	Key      string `json:"key"`
	Name     string `json:"name"`
	Kind     string `json:"kind"`
	Unnamed  bool   `json:"unnamed,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Binary   int    `json:"bin"`
	File     string `json:"file,omitempty"` // short name of the binary
	Identity string `json:"identity,omitempty"`
	Source   string `json:"source,omitempty"`
}

// functions answers with the functions and what they cost, in an order.
func (q *question) functions() error {
	s, err := q.selection()
	if err != nil {
		return err
	}
	rows := s.functions()
	frames := q.shown.Set.Frames()
	re, err := q.pattern("q")
	if err != nil {
		return err
	}
	if re != nil {
		wanted := map[int]bool{}
		found, err := q.find(s, re)
		if err != nil {
			return err
		}
		for _, f := range found.Frames {
			wanted[f] = true
		}
		rows = keep(rows, func(r query.FunctionRow) bool { return wanted[r.Frame] })
	}
	bin, err := q.number("bin", -1, 0, mostRows)
	if err != nil {
		return err
	}
	if bin >= 0 {
		rows = keep(rows, func(r query.FunctionRow) bool { return frames[r.Frame].Binary == int(bin) })
	}
	if rows, err = sortedFunctions(rows, frames, q.query.Get("sort"), q.scale(s)); err != nil {
		return err
	}
	a := struct {
		tableHead
		Rows []functionRow `json:"rows"`
	}{q.tableHead(s, len(rows)), []functionRow{}}
	if rows, err = page(q, rows); err != nil {
		return err
	}
	for _, r := range rows {
		a.Rows = append(a.Rows, q.functionRow(r))
	}
	return q.send(a)
}

// keep returns the rows that are wanted, in a slice of their own.
func keep[T any](rows []T, wanted func(T) bool) []T {
	var kept []T
	for _, r := range rows {
		if wanted(r) {
			kept = append(kept, r)
		}
	}
	return kept
}

func (q *question) functionRow(r query.FunctionRow) functionRow {
	f := q.shown.Set.Frames()[r.Frame]
	row := functionRow{
		values: values{r.Flat, r.Cum, r.BaseFlat, r.BaseCum},
		Frame:  r.Frame, Key: f.Key, Name: plain(f.Name), Kind: string(f.Kind), Unnamed: f.Unnamed, Reason: plain(f.Reason),
		Binary: f.Binary, Source: plain(f.Source),
	}
	if all := q.shown.Set.Binaries(); f.Binary >= 0 && f.Binary < len(all) {
		row.File, row.Identity = plain(all[f.Binary].Name), plain(all[f.Binary].BuildID)
	}
	return row
}

// sortedFunctions returns rows in an order, of which the largest value or change is first.
func sortedFunctions(rows []query.FunctionRow, frames []query.Frame, by string, scale float64) ([]query.FunctionRow, error) {
	size := func(n int64) int64 { return max(n, -n) }
	change := func(r query.FunctionRow) float64 {
		d := float64(r.Flat) - float64(r.BaseFlat)*scale
		return max(d, -d)
	}
	changeCum := func(r query.FunctionRow) float64 {
		d := float64(r.Cum) - float64(r.BaseCum)*scale
		return max(d, -d)
	}
	var compare func(a, b query.FunctionRow) int
	flat := func(a, b query.FunctionRow) int {
		return cmp.Or(cmp.Compare(size(b.Flat), size(a.Flat)), cmp.Compare(size(b.Cum), size(a.Cum)))
	}
	switch by {
	case "", "flat":
		compare = flat
	case "cum":
		compare = func(a, b query.FunctionRow) int {
			return cmp.Or(cmp.Compare(size(b.Cum), size(a.Cum)), cmp.Compare(size(b.Flat), size(a.Flat)))
		}
	case "change":
		compare = func(a, b query.FunctionRow) int {
			return cmp.Or(cmp.Compare(change(b), change(a)), cmp.Compare(changeCum(b), changeCum(a)))
		}
	case "name":
		compare = func(a, b query.FunctionRow) int { return 0 }
	default:
		return nil, refuse(http.StatusBadRequest, "functions have no order %q: flat, cum, change or name", by)
	}
	rows = slices.Clone(rows)
	slices.SortFunc(rows, func(a, b query.FunctionRow) int {
		return cmp.Or(compare(a, b), strings.Compare(frames[a.Frame].Name, frames[b.Frame].Name), cmp.Compare(a.Frame, b.Frame))
	})
	return rows, nil
}

type binaryRow struct {
	values
	Binary     int        `json:"binary"`
	File       string     `json:"file"`
	Identity   string     `json:"identity,omitempty"`
	BaseID     string     `json:"baseIdentity,omitempty"` // of another build, in the base
	BaseFile   string     `json:"baseFile,omitempty"`     // the file of the base, if it has another name
	Content    string     `json:"content,omitempty"`
	Claims     string     `json:"claims,omitempty"`
	Contested  bool       `json:"contested,omitempty"`
	Proof      string     `json:"proof,omitempty"`    // of the identity: proven, claimed, contested
	Claimant   string     `json:"claimant,omitempty"` // whose claim it is, if not root's or that of the user who recorded
	Reason     string     `json:"reason,omitempty"`
	Package    string     `json:"package,omitempty"`
	Frames     int64      `json:"frames"`
	Identified int64      `json:"identified"`
	Symbolized int64      `json:"symbolized"`
	Gaps       []shownGap `json:"gaps"`
}

// binaries answers with the binaries by identity, and with how much of each is known.
func (q *question) binaries() error {
	s, err := q.selection()
	if err != nil {
		return err
	}
	rows := s.BinaryTable()
	if scale := q.scale(s); q.shown.Set.HasBase() {
		rows = byChange(rows, func(r *query.BinaryRow) float64 { return r.Change(scale) })
	}
	a := struct {
		tableHead
		Rows []binaryRow `json:"rows"`
	}{q.tableHead(s, len(rows)), []binaryRow{}}
	if rows, err = page(q, rows); err != nil {
		return err
	}
	all := q.shown.Set.Binaries()
	for _, r := range rows {
		row := binaryRow{
			values: values{r.Flat, r.Cum, r.BaseFlat, r.BaseCum},
			Binary: r.Binary, Frames: r.Frames, Identified: r.Identified, Symbolized: r.Symbolized, Gaps: shownGaps(q.fit(r.Gaps)),
		}
		if r.Binary >= 0 && r.Binary < len(all) {
			b := all[r.Binary]
			row.File, row.Identity, row.Content = plain(b.File), plain(b.BuildID), plain(b.Content)
			row.BaseID, row.BaseFile = plain(b.BaseBuildID), plain(b.BaseFile)
			row.Claims, row.Contested, row.Reason = plain(b.Claims), b.Contested, plain(b.Reason)
			if b.BuildID != "" {
				row.Proof = b.Proof.String()
			}
			if b.Claimant != nil {
				row.Claimant = b.Claimant.String()
			}
			row.Package = q.packageOf(b)
		}
		a.Rows = append(a.Rows, row)
	}
	return q.send(a)
}

// byChange returns rows by what changed most, in either direction.
func byChange[T any](rows []T, change func(*T) float64) []T {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b T) int { return cmp.Compare(math.Abs(change(&b)), math.Abs(change(&a))) })
	return rows
}

// fit has the profile's own advice in the gaps of one binary.
func (q *question) fit(gaps []profile.Gap) []profile.Gap {
	if q.shown.FitAdvice == nil {
		return gaps
	}
	c := profile.Coverage{Gaps: slices.Clone(gaps)}
	q.shown.FitAdvice(&c)
	return c.Gaps
}

func (q *question) packageOf(b query.Binary) string {
	if q.shown.Packages == nil || b.BuildID == "" {
		return ""
	}
	known, ok := q.binary(b)
	if !ok {
		return ""
	}
	return plain(q.shown.Packages.Package(&known))
}

// binary returns what the profile knows of the file that a binary is.
func (q *question) binary(b query.Binary) (profile.Binary, bool) {
	for m, known := range profile.Binaries(q.shown.Set.Profile().Places()) {
		isClaimant := (b.Claimant == nil) == (known.Claimant == nil) && (b.Claimant == nil || *b.Claimant == *known.Claimant)
		if m.File == b.File && m.BuildID == b.BuildID && isClaimant && (b.Content == "" || known.Content.String() == b.Content) {
			return known, true
		}
	}
	return profile.Binary{}, false
}

type labelRow struct {
	Value    string `json:"value"`
	Filter   string `json:"filter,omitempty"`
	Missing  bool   `json:"missing,omitempty"`
	Flat     int64  `json:"flat"`
	BaseFlat int64  `json:"baseFlat,omitempty"`
	PIDs     int    `json:"pids,omitempty"`
}

// labels answers with the values of a label, and what samples with each of them cost.
func (q *question) labels() error {
	s, err := q.selection()
	if err != nil {
		return err
	}
	key := q.query.Get("key")
	var rows []labelRow
	pids := map[string]int{}
	if key == "process" {
		for _, p := range s.Processes() {
			pids[p.Name] = len(p.PIDs)
		}
	}
	for _, r := range s.ByLabel(key) {
		rows = append(rows, labelRow{plain(r.Value), labelFilter(key, r.Value), r.Missing, r.Flat, r.BaseFlat, pids[r.Value]})
	}
	if scale := q.scale(s); q.shown.Set.HasBase() {
		rows = byChange(rows, func(r *labelRow) float64 { return float64(r.Flat) - scale*float64(r.BaseFlat) })
	}
	a := struct {
		tableHead
		Key  string     `json:"key"`
		Rows []labelRow `json:"rows"`
	}{q.tableHead(s, len(rows)), plain(key), []labelRow{}}
	if rows, err = page(q, rows); err != nil {
		return err
	}
	a.Rows = append(a.Rows, rows...)
	return q.send(a)
}
