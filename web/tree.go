package web

import (
	"encoding/binary"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"

	"hallmark/profile/query"
)

// Bounds of a tree. A page of 4,000 pixels has no more boxes that can be seen, in as many
// rows as a screen has.
const (
	maxNodes     = 30_000
	maxPath      = 2_000 // frames
	defaultWidth = 1500  // pixels
	widest       = 8000
	narrowest    = 0.4 // pixels of a box that can be seen
)

// tree answers with the stacks from their outermost frames, or from the leaves.
func (q *question) tree() error {
	s, err := q.selection()
	if err != nil {
		return err
	}
	o, err := q.treeOptions()
	if err != nil {
		return err
	}
	o.Inverted = q.query.Get("invert") == "1"
	path, err := rootPath(q.query.Get("root"))
	if err != nil {
		return err
	}
	if key := q.query.Get("split"); key != "" {
		return q.splitTree(s, key, path, o)
	}
	o.Root = path
	t, err := s.Tree(o)
	if err != nil {
		return treeError(err)
	}
	return q.sendTree(s, pictureOf(s, t))
}

func treeError(err error) error {
	if errors.Is(err, query.ErrNoPath) {
		return refuse(http.StatusNotFound, "The frame that filled the width is not in what is selected. Zoom out.")
	}
	return err
}

// callers answers with the stacks above a function.
func (q *question) callers() error { return q.around((*query.Selection).Callers) }

// callees answers with the stacks below a function.
func (q *question) callees() error { return q.around((*query.Selection).Callees) }

func (q *question) around(side func(*query.Selection, int, query.TreeOptions) (*query.Tree, error)) error {
	s, frame, err := q.subject()
	if err != nil {
		return err
	}
	o, err := q.treeOptions()
	if err != nil {
		return err
	}
	t, err := side(s.Selection, frame, o)
	if err != nil {
		return treeError(err)
	}
	p := pictureOf(s, t)
	if len(p.nodes) > 0 && p.nodes[0].frame < 0 {
		p.nodes[0].frame = int32(frame)
	}
	return q.sendTree(s, p)
}

// treeOptions returns what can be seen.
func (q *question) treeOptions() (o query.TreeOptions, err error) {
	width, err := q.number("width", defaultWidth, 1, widest)
	if err != nil {
		return o, err
	}
	return query.TreeOptions{MaxNodes: maxNodes, MinShare: narrowest / float64(width), Normalized: q.normalized(), Fold: q.query.Get("fold") == "1"}, nil
}

// rootPath reads numbers of frames that are joined by dots.
func rootPath(text string) ([]int, error) {
	if text == "" {
		return nil, nil
	}
	words := strings.Split(text, ".")
	if len(words) > maxPath {
		return nil, refuse(http.StatusBadRequest, "a path of more than %d frames", maxPath)
	}
	path := make([]int, len(words))
	for i, w := range words {
		n, err := strconv.Atoi(w)
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "the path has %q, which is no number of a frame", w)
		}
		path[i] = n
	}
	return path, nil
}

// picture is a tree in preorder, as it is drawn.
type picture struct {
	nodes []drawn
	chain int // nodes at the start that lead to the one that fills the width
	left  int
	names map[int32]shownFrame // of frames that the profile has not, with numbers below 0
}

type drawn struct {
	frame, depth        int32
	folded              int32
	inlined             bool
	value, self         int64
	baseValue, baseSelf int64
	size, selfSize      [2]int64 // the same without signs: of the profile, and of the base
	ends                []shownEnd
	endValue            int64
}

// pictureOf puts the nodes of a tree in preorder, behind those that lead to its root.
func pictureOf(s *selected, t *query.Tree) *picture {
	p := &picture{left: leftOut(t), chain: len(t.Ancestors) + 1}
	for _, n := range t.Ancestors {
		p.nodes = append(p.nodes, drawnOf(n, int32(len(p.nodes))))
	}
	p.walk(t, int32(len(p.nodes)))
	return p
}

// leftOut returns how many nodes were left out, as far as their parents are shown.
func leftOut(t *query.Tree) (n int) {
	for i := range t.Nodes {
		n += int(t.Nodes[i].CutNodes)
	}
	return n
}

func drawnOf(n query.Node, depth int32) drawn {
	d := drawn{frame: n.Frame, depth: depth, folded: n.Folded, inlined: n.Inlined, value: n.Total, self: n.Self, baseValue: n.BaseTotal, baseSelf: n.BaseSelf}
	d.size, d.selfSize = [2]int64{n.Size, n.BaseSize}, [2]int64{n.SelfSize, n.BaseSelfSize}
	for _, e := range n.Ends {
		d.endValue += e.Value
		d.ends = append(d.ends, shownEnd{plain(e.Reason), plain(e.Advice), e.Value, e.Unsure})
	}
	return d
}

// walk adds the nodes of a tree, whose root is at a depth. Parents are before their children in
// the tree, and children in the order in which they are drawn.
func (p *picture) walk(t *query.Tree, depth int32) {
	if len(t.Nodes) == 0 {
		return
	}
	first, next := make([]int32, len(t.Nodes)), make([]int32, len(t.Nodes))
	for i := range t.Nodes {
		first[i], next[i] = -1, -1
	}
	for i := len(t.Nodes) - 1; i > 0; i-- {
		parent := t.Nodes[i].Parent
		next[i], first[parent] = first[parent], int32(i)
	}
	depths := make([]int32, len(t.Nodes))
	depths[0] = depth
	stack := []int32{0}
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		p.nodes = append(p.nodes, drawnOf(t.Nodes[i], depths[i]))
		if i > 0 && next[i] >= 0 {
			stack = append(stack, next[i])
			depths[next[i]] = depths[i]
		}
		if first[i] >= 0 {
			stack = append(stack, first[i])
			depths[first[i]] = depths[i] + 1
		}
	}
}

// The head of a tree, in JSON.
type (
	treeHead struct {
		Nodes     int           `json:"nodes"`
		Diff      bool          `json:"diff"`
		Signed    bool          `json:"signed,omitempty"` // some values are negative
		Chain     int           `json:"chain"`
		Frames    []shownFrame  `json:"frames"`
		Binaries  []shownBinary `json:"binaries"`
		Unit      string        `json:"unit"`
		Total     int64         `json:"total"`
		BaseTotal int64         `json:"baseTotal"`
		Scale     float64       `json:"scale"`
		Left      int           `json:"left"`
		Ends      []nodeEnds    `json:"ends,omitempty"`
		Folded    [][2]int      `json:"folded,omitempty"` // nodes, and how many calls of themselves are in them
	}
	shownFrame struct {
		ID      int32  `json:"id"`
		Name    string `json:"name"`
		Label   string `json:"label,omitempty"` // whose value the name is
		Kind    string `json:"kind"`
		Binary  int    `json:"bin"`
		Inlined bool   `json:"inlined,omitempty"`
		Unnamed bool   `json:"unnamed,omitempty"`
		Why     string `json:"why,omitempty"`
	}
	shownBinary struct {
		ID       int    `json:"id"`
		Name     string `json:"name"`
		Identity string `json:"identity,omitempty"`
	}
	nodeEnds struct {
		Node    int        `json:"node"`
		Value   int64      `json:"value"`
		Reasons []shownEnd `json:"reasons"`
	}
	shownEnd struct {
		Reason string `json:"reason"`
		Advice string `json:"advice,omitempty"`
		Value  int64  `json:"value"`
		Unsure bool   `json:"unsure,omitempty"` // nobody knows whether callers are missing
	}
)

func (q *question) sendTree(s *selected, p *picture) error {
	b, err := appendTree(nil, s, p, q.scale(s))
	if err != nil {
		return err
	}
	q.w.Header().Set("Content-Type", "application/octet-stream")
	sendBytes(q.w, q.r, b)
	return nil
}

// normalized reports whether the base is to have the same total.
func (q *question) normalized() bool { return q.shown.Set.HasBase() && q.query.Get("scale") == "total" }

// scale returns by what values of the base are multiplied.
func (q *question) scale(s *selected) float64 {
	if !q.normalized() {
		return 1
	}
	if scale := s.Scale(); scale > 0 && !math.IsInf(scale, 0) {
		return scale
	}
	return 1
}

const treeMagic = "HMT1"

// appendTree writes a tree for the pages, with little-endian numbers:
//
//	"HMT1"
//	uint32     size of the head
//	head       JSON, see treeHead; and what makes all before a multiple of 8 bytes
//	float64    for each node in preorder its value with callees; then for each its own
//	float64    with a base the same two of the base
//	float64    where values have signs, how wide each node is, and then its own part
//	uint32     for each node the index of its frame in the head
//	uint32     for each node its depth
func appendTree(b []byte, s *selected, p *picture, scale float64) ([]byte, error) {
	head := treeHead{
		Nodes: len(p.nodes), Diff: s.shown.Set.HasBase(), Chain: p.chain, Frames: []shownFrame{}, Binaries: []shownBinary{},
		Unit: plain(s.Unit()), Total: s.Total(), BaseTotal: s.BaseTotal(), Scale: scale, Left: p.left,
	}
	for i := range p.nodes {
		n := &p.nodes[i]
		head.Signed = head.Signed || n.size != [2]int64{n.value, n.baseValue}
	}
	frames := head.addFrames(s.shown, p)
	text, err := marshal(head)
	if err != nil {
		return nil, err
	}
	b = append(b, treeMagic...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
	b = append(b, text...)
	for len(b)%8 != 0 {
		b = append(b, ' ')
	}
	widths := func(of func(*drawn) float64) {
		for i := range p.nodes {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(of(&p.nodes[i])))
		}
	}
	doubles := func(of func(*drawn) int64) { widths(func(n *drawn) float64 { return float64(of(n)) }) }
	doubles(func(n *drawn) int64 { return n.value })
	doubles(func(n *drawn) int64 { return n.self })
	if head.Diff {
		doubles(func(n *drawn) int64 { return n.baseValue })
		doubles(func(n *drawn) int64 { return n.baseSelf })
	}
	if head.Signed {
		widths(func(n *drawn) float64 { return float64(n.size[0]) + scale*float64(n.size[1]) })
		widths(func(n *drawn) float64 { return float64(n.selfSize[0]) + scale*float64(n.selfSize[1]) })
	}
	for _, f := range frames {
		b = binary.LittleEndian.AppendUint32(b, f)
	}
	for i := range p.nodes {
		b = binary.LittleEndian.AppendUint32(b, uint32(p.nodes[i].depth))
	}
	return b, nil
}

// addFrames adds the frames and binaries that the nodes have, and returns for each node which
// frame it has.
func (h *treeHead) addFrames(shown *Profile, p *picture) []uint32 {
	type key struct {
		frame   int32
		inlined bool
	}
	known, binaries := map[key]uint32{}, map[int]int{}
	frames := make([]uint32, len(p.nodes))
	for i := range p.nodes {
		n := &p.nodes[i]
		k := key{n.frame, n.inlined}
		at, ok := known[k]
		if !ok {
			at = uint32(len(h.Frames))
			known[k] = at
			h.Frames = append(h.Frames, h.frame(shown, p, n, binaries))
		}
		frames[i] = at
		if n.folded > 0 {
			h.Folded = append(h.Folded, [2]int{i, int(n.folded)})
		}
		if n.endValue > 0 {
			h.Ends = append(h.Ends, nodeEnds{i, n.endValue, n.ends})
		}
	}
	return frames
}

func (h *treeHead) frame(shown *Profile, p *picture, n *drawn, binaries map[int]int) shownFrame {
	if n.frame < 0 {
		if f, ok := p.names[n.frame]; ok {
			return f
		}
		return shownFrame{ID: n.frame, Name: "all", Kind: "label", Binary: -1}
	}
	f := shown.Set.Frames()[n.frame]
	made := shownFrame{
		ID: n.frame, Name: plain(f.Name), Kind: string(f.Kind), Binary: -1, Inlined: n.inlined, Unnamed: f.Unnamed, Why: plain(f.Reason),
	}
	all := shown.Set.Binaries()
	if f.Binary < 0 || f.Binary >= len(all) {
		return made
	}
	at, ok := binaries[f.Binary]
	if !ok {
		at = len(h.Binaries)
		binaries[f.Binary] = at
		b := all[f.Binary]
		h.Binaries = append(h.Binaries, shownBinary{f.Binary, plain(b.Name), plain(b.BuildID)})
	}
	made.Binary = at
	return made
}
