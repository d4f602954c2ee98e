package web

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"

	"hallmark/profile/query"
)

// Bounds of the values of a label that are first frames: each is a selection of its own.
const (
	maxSplit   = 12
	leastSplit = 2.5 // times what can be seen
)

// split is the values of a label that are first frames. A sample with several values is in the tree of the first of
// them alone, and those with none of them are together: the trees add up to the whole.
type split struct {
	key    string
	values []query.LabelRow
	others int // values that have no tree of their own
	weight func(value, base int64) float64
	whole  float64 // weight of all samples
}

// splitBy returns the values of a label that count most.
func (q *question) splitBy(s *selected, key string, o query.TreeOptions) (*split, error) {
	scale := q.scale(s)
	by := &split{key: key, weight: func(value, base int64) float64 {
		return max(math.Abs(float64(value)), scale*math.Abs(float64(base)))
	}}
	by.whole = by.weight(s.Total(), s.BaseTotal())
	rows := s.ByLabel(key)
	if len(rows) == 0 {
		return nil, refuse(http.StatusNotFound, "no sample has the label %q", key)
	}
	of := func(r *query.LabelRow) float64 { return by.weight(r.Flat, r.BaseFlat) }
	slices.SortStableFunc(rows, func(a, b query.LabelRow) int { return cmp.Compare(of(&b), of(&a)) })
	shown := 1
	for shown < min(len(rows), maxSplit) && of(&rows[shown]) >= leastSplit*o.MinShare*by.whole {
		shown++
	}
	if shown == len(rows)-1 {
		shown++
	}
	by.values, by.others = rows[:shown], len(rows)-shown
	return by, nil
}

// parts returns how many trees there are.
func (by *split) parts() int { return len(by.values) + min(by.others, 1) }

// filters returns what chooses the samples of a part.
func (by *split) filters(part int) []query.LabelFilter {
	earlier := query.LabelFilter{Key: by.key, Not: true}
	for _, r := range by.values[:min(part, len(by.values))] {
		earlier.Values = append(earlier.Values, r.Value)
	}
	filters := []query.LabelFilter{earlier}
	if part < len(by.values) {
		filters = append(filters, query.LabelFilter{Key: by.key, Values: []string{by.values[part].Value}})
	}
	return filters
}

func (by *split) name(part int) string {
	switch {
	case part == len(by.values):
		return fmt.Sprintf("%d others", by.others)
	case by.values[part].Missing:
		return "(none)"
	}
	return plain(by.values[part].Value)
}

// number is that of the first frame of a part, also in paths.
func (by *split) number(part int) int32 { return int32(-2 - part) }

// splitTree answers with a tree whose outermost frames are the values of a label, in the order of what they cost.
func (q *question) splitTree(s *selected, key string, path []int, o query.TreeOptions) error {
	p := &picture{chain: 1, names: map[int32]shownFrame{}}
	p.nodes = append(p.nodes, drawn{frame: -1, value: s.Total(), baseValue: s.BaseTotal(), size: [2]int64{s.Total(), s.BaseTotal()}})
	if len(path) == 0 && len(s.ByLabel(key)) == 0 {
		return q.sendTree(s, p) // nothing is selected
	}
	by, err := q.splitBy(s, key, o)
	if err != nil {
		return err
	}
	if len(path) > 0 {
		part := -2 - path[0]
		if part < 0 || part >= by.parts() {
			return treeError(query.ErrNoPath)
		}
		return q.sendZoomed(s, by, part, path[1:], o, p)
	}
	for part := range by.parts() {
		if err := q.addPart(p, by, part, o); err != nil {
			return err
		}
	}
	return q.sendTree(s, p)
}

// addPart adds the tree of one value to a picture, as far as it can be seen there.
func (q *question) addPart(p *picture, by *split, part int, o query.TreeOptions) error {
	s, err := q.part(by, part)
	if err != nil {
		return err
	}
	if weight := by.weight(s.Total(), s.BaseTotal()); weight > 0 {
		share := weight / by.whole
		o.MinShare /= share
		o.MaxNodes = max(maxNodes/100, int(maxNodes*share))
	}
	t, err := s.Tree(o)
	if err != nil {
		return treeError(err)
	}
	p.left += leftOut(t)
	at := len(p.nodes)
	p.walk(t, 1)
	p.nameValue(at, by, part)
	return nil
}

// sendZoomed sends the tree of one value, or a part of it.
func (q *question) sendZoomed(whole *selected, by *split, part int, path []int, o query.TreeOptions, p *picture) error {
	s, err := q.part(by, part)
	if err != nil {
		return err
	}
	o.Root = path
	t, err := s.Tree(o)
	if err != nil {
		return treeError(err)
	}
	p.left = leftOut(t)
	for _, n := range t.Ancestors {
		p.nodes = append(p.nodes, drawnOf(n, int32(len(p.nodes))))
	}
	p.chain = len(p.nodes) + 1
	p.walk(t, int32(len(p.nodes)))
	p.nameValue(1, by, part)
	return q.sendTree(whole, p)
}

// part returns the samples of a part.
func (q *question) part(by *split, part int) (*query.Selection, error) {
	f, err := q.filter()
	if err != nil {
		return nil, err
	}
	f.Labels = append(f.Labels, by.filters(part)...)
	return q.shown.Set.SelectContext(q.ctx, f)
}

// nameValue makes a node the one of a part.
func (p *picture) nameValue(node int, by *split, part int) {
	n := by.number(part)
	p.nodes[node].frame = n
	p.names[n] = shownFrame{ID: n, Name: by.name(part), Label: plain(by.key), Kind: "label", Binary: -1}
}
