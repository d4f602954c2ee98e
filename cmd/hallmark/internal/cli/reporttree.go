package cli

import (
	"fmt"
	"strings"

	pprof "github.com/google/pprof/profile"

	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/plaintext"
	"hallmark/profile"
	"hallmark/profile/compact"
	"hallmark/profile/query"
)

// mostNodes is how many lines a tree has where --top does not say it.
const mostNodes = 60

// selected returns what is asked of a profile with symbols, and of the base that it is compared
// with, nil for none. Code without a symbol is as the tables of the report have it.
func (r *report) selected(p *pprof.Profile, misses profile.Misses, base *pprof.Profile, baseMisses profile.Misses) (*query.Selection, error) {
	after, err := compactOf(p, misses)
	if err != nil {
		return nil, err
	}
	var before *compact.Profile
	if base != nil {
		if before, err = compactOf(base, baseMisses); err != nil {
			return nil, err
		}
	}
	f, err := r.filter.of(after, before)
	if err != nil {
		return nil, err
	}
	f.SampleType, f.Unknown = r.input.SampleType, query.ByBinary
	sel, err := query.New(after, before).Select(f)
	if err == nil && r.filter.isSet() && sel.Total() == 0 && sel.BaseTotal() == 0 {
		err = errFiltered
	}
	return sel, err
}

func compactOf(p *pprof.Profile, misses profile.Misses) (*compact.Profile, error) {
	c, err := compact.FromPprof(p)
	if err != nil {
		return nil, err
	}
	return c.WithSymbols(p, misses), nil
}

// treeNode is a node in JSON.
type treeNode struct {
	Parent   int    `json:"parent"` // -1 of the root
	Function string `json:"function,omitempty"`
	Unnamed  bool   `json:"unnamed,omitempty"`
	Inlined  bool   `json:"inlined,omitempty"`
	File     string `json:"binary,omitempty"`
	BuildID  string `json:"build_id,omitempty"`
	Flat     int64  `json:"flat"`
	Cum      int64  `json:"cum"`
	Cut      int64  `json:"cut,omitempty"`
}

// mostCalls is how many calls a tree has that is to have all: one takes about a kilobyte until it is written.
const mostCalls = 500_000

// writeTree writes a profile as a tree of calls.
func (r *report) writeTree(p *pprof.Profile, misses profile.Misses) error {
	sel, err := r.selected(p, misses, nil, nil)
	if err != nil {
		return err
	}
	o := query.TreeOptions{Inverted: r.invert, MaxNodes: r.top + 1}
	if r.top == 0 {
		o = query.TreeOptions{Inverted: r.invert, MaxNodes: mostCalls, MaxDepth: 1 << 20, MinShare: -1}
	}
	tree, err := sel.Tree(o)
	if err != nil {
		return err
	}
	if len(tree.Nodes) == mostCalls {
		fmt.Fprintf(r.env.Stderr, "hallmark: the tree has more than %d calls: those that count most are shown\n", mostCalls)
	}
	if r.json {
		return r.writeTreeJSON(sel, tree)
	}
	w := r.env.Stdout
	if sel.Total() == 0 {
		fmt.Fprintln(w, "The profile is empty.")
		return nil
	}
	fmt.Fprintln(w, plaintext.Line(terminal.Quantity(sel.Total(), sel.Unit())+" "+sel.SampleType()))
	fmt.Fprintln(w)
	t := &treeText{set: sel.Set(), tree: tree, total: sel.Total(), in: terminal.RulerFor(sel.Total(), sel.Unit()),
		table: &terminal.Grid{Columns: []terminal.Column{number, number, number, number, {}}}}
	if r.invert {
		t.table.Columns = t.table.Columns[2:]
		t.table.Add("flat", "", "function, below it its callers")
	} else {
		t.table.Add("cum", "", "flat", "", "function, below it what it called")
	}
	t.write()
	t.table.Write(w, terminal.Width(w))
	if t.cut > 0 {
		fmt.Fprintf(w, "… and less, --top 0 shows all\n")
	}
	fmt.Fprintln(w)
	coverage := sel.Coverage()
	writeCoverage(w, &coverage)
	return nil
}

// treeText is a tree on its way into lines.
type treeText struct {
	set   *query.Set
	tree  *query.Tree
	total int64
	in    terminal.Ruler
	table *terminal.Grid
	cut   int32
}

// line is a node that is still to be written.
type treeLine struct {
	node   int
	indent string // of the node
	below  string // of what is below it
}

// write adds a line for each node. A function that is the only one below another stands below it
// without being indented: most stacks are deeper than lines are long.
func (t *treeText) write() {
	children := make([][]int, len(t.tree.Nodes))
	for i, n := range t.tree.Nodes {
		if n.Parent >= 0 {
			children[n.Parent] = append(children[n.Parent], i)
		}
		t.cut += n.CutNodes
	}
	stack := []treeLine{}
	push := func(parent int, below string) {
		all := children[parent]
		for i := len(all) - 1; i >= 0; i-- {
			l := treeLine{all[i], below + "├ ", below + "│ "}
			switch {
			case len(all) == 1 && t.tree.Nodes[parent].CutNodes == 0 && t.tree.Nodes[parent].Self == 0:
				l.indent, l.below = below, below
			case i == len(all)-1:
				l.indent, l.below = below+"└ ", below+"  "
			}
			stack = append(stack, l)
		}
	}
	push(0, "")
	for len(stack) > 0 {
		l := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		t.add(&l)
		push(l.node, l.below)
	}
}

// deepest is how far a line is indented at most.
const deepest = 60

func (t *treeText) add(l *treeLine) {
	n := &t.tree.Nodes[l.node]
	f := &t.set.Frames()[n.Frame]
	b := &t.set.Binaries()[f.Binary]
	indent := l.indent
	if runes := []rune(indent); len(runes) > deepest {
		indent = "… " + string(runes[len(runes)-deepest:])
	}
	text := indent + plaintext.Quote(f.Name)
	if n.Inlined {
		text += " (inlined)"
	}
	if !f.Unnamed || !strings.HasPrefix(f.Name, b.Name) { // code without a symbol is called by its binary
		text += "  " + terminal.Name(b.Name)
	}
	if len(t.table.Columns) == 3 { // what has no caller is no flat value
		t.table.Add(t.in.Format(n.Total), terminal.Percent(n.Total, t.total), text)
		return
	}
	flat, share := "", ""
	if n.Self != 0 {
		flat, share = t.in.Format(n.Self), terminal.Percent(n.Self, t.total)
	}
	t.table.Add(t.in.Format(n.Total), terminal.Percent(n.Total, t.total), flat, share, text)
}

func (r *report) writeTreeJSON(sel *query.Selection, tree *query.Tree) error {
	nodes := make([]treeNode, len(tree.Nodes))
	for i, n := range tree.Nodes {
		nodes[i] = treeNode{Parent: int(n.Parent), Inlined: n.Inlined, Flat: n.Self, Cum: n.Total, Cut: n.Cut}
		if n.Frame >= 0 {
			f := &sel.Set().Frames()[n.Frame]
			b := &sel.Set().Binaries()[f.Binary]
			nodes[i].Function, nodes[i].Unnamed, nodes[i].File, nodes[i].BuildID = f.Name, f.Unnamed, b.File, b.BuildID
		}
	}
	out := verb.NewObjectWriter(r.env.Stdout)
	out.Indent()
	return out.Write(struct {
		SampleType string           `json:"sample_type"`
		Unit       string           `json:"unit"`
		Total      int64            `json:"total"`
		Inverted   bool             `json:"inverted"`
		Nodes      []treeNode       `json:"nodes"`
		Coverage   profile.Coverage `json:"coverage"`
	}{sel.SampleType(), sel.Unit(), sel.Total(), r.invert, nodes, sel.Coverage()})
}
