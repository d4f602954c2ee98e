package web

import (
	"net/http"

	"hallmark/profile/query"
)

// maxSplit is how many values of a label are first frames: each is a selection of its own.
const maxSplit = 12

// splitTree answers with a tree whose outermost frames are the values of a label. They have the
// numbers -2, -3 … in the order of what they cost, also in paths.
func (q *question) splitTree(s *selected, key string, path []int, o query.TreeOptions) error {
	rows := s.ByLabel(key)
	p := &picture{chain: 1, names: map[int32]shownFrame{}}
	p.nodes = append(p.nodes, drawn{frame: -1, value: s.Total(), baseValue: s.BaseTotal(), size: [2]int64{s.Total(), s.BaseTotal()}})
	if len(path) > 0 {
		i := -2 - path[0]
		if i < 0 || i >= min(len(rows), maxSplit) {
			return treeError(query.ErrNoPath)
		}
		return q.sendZoomed(s, key, rows, i, path[1:], o, p)
	}
	if len(rows) == 0 {
		return refuse(http.StatusNotFound, "no sample has the label %q", key)
	}
	for i, row := range rows[:min(len(rows), maxSplit)] {
		t, err := q.ofValue(key, rows, i, nil, o)
		if err != nil {
			return err
		}
		p.left += leftOut(t)
		p.nameValue(key, row, i)
		at := len(p.nodes)
		p.walk(t, 1)
		p.nodes[at].frame = int32(-2 - i)
	}
	return q.sendTree(s, p)
}

// sendZoomed sends the tree of one value, or a part of it.
func (q *question) sendZoomed(s *selected, key string, rows []query.LabelRow, i int, path []int, o query.TreeOptions, p *picture) error {
	t, err := q.ofValue(key, rows, i, path, o)
	if err != nil {
		return err
	}
	p.left = leftOut(t)
	p.nameValue(key, rows[i], i)
	for _, n := range t.Ancestors {
		p.nodes = append(p.nodes, drawnOf(n, int32(len(p.nodes))))
	}
	p.chain = len(p.nodes) + 1
	p.walk(t, int32(len(p.nodes)))
	p.nodes[1].frame = int32(-2 - i)
	return q.sendTree(s, p)
}

// ofValue returns the tree of the samples with one value of a label, of rows. A sample with several values is only in the
// tree of the first row that has one of them: the trees add up to the whole.
func (q *question) ofValue(key string, rows []query.LabelRow, i int, root []int, o query.TreeOptions) (*query.Tree, error) {
	f, err := q.filter()
	if err != nil {
		return nil, err
	}
	f.Labels = append(f.Labels, query.LabelFilter{Key: key, Values: []string{rows[i].Value}})
	if i > 0 {
		earlier := query.LabelFilter{Key: key, Not: true}
		for _, r := range rows[:i] {
			earlier.Values = append(earlier.Values, r.Value)
		}
		f.Labels = append(f.Labels, earlier)
	}
	s, err := q.shown.Set.SelectContext(q.ctx, f)
	if err != nil {
		return nil, err
	}
	o.Root = root
	t, err := s.Tree(o)
	if err != nil {
		return nil, treeError(err)
	}
	return t, nil
}

func (p *picture) nameValue(key string, row query.LabelRow, i int) {
	name := plain(key) + ": " + plain(row.Value)
	if row.Missing {
		name = plain(key) + ": (none)"
	}
	p.names[int32(-2-i)] = shownFrame{ID: int32(-2 - i), Name: name, Kind: "label", Binary: -1}
}
