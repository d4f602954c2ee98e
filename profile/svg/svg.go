// Package svg draws a profile as a flame graph that does not move: an image (SVG 1.1) that any
// browser and many other programs show. It has no script and refers to nothing outside.
//
// The outermost frame is at the top, so that a viewer which opens a high image shows it. The width of
// a frame is its share of the whole, its color the kind of code. A title, which browsers show under the mouse, has the whole name, the
// binary with its identity, and why something is not known.
package svg

import (
	"bufio"
	"errors"
	"fmt"
	"html"
	"io"
	"strings"
	"unicode/utf8"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/plaintext"
	"hallmark/profile"
	"hallmark/profile/compact"
	"hallmark/profile/query"
)

// Options say what is drawn.
type Options struct {
	Title      string         // above the graph
	SampleType string         // what is counted; "" is the profile's own choice
	Misses     profile.Misses // from profile.Symbolize, for the reasons
	// Quantity returns a value in its unit as text; nil prints numbers.
	Quantity func(value int64, unit string) string
}

// Sizes in pixels. The least share of the width that is drawn is a third of a pixel.
const (
	width     = 1200
	margin    = 10
	rowHeight = 17
	charWidth = 7.2 // of 12 pixels of a font whose characters are equally wide
	least     = 0.3
	mostNodes = 20_000
)

// colors are of kinds of code, in a light and a dark room. The order is that of the legend.
var colors = []struct {
	kind        query.Kind
	light, dark string
	text        string
}{
	{query.Native, "#f2c879", "#7a5a1e", "native"},
	{query.Kernel, "#f0a08a", "#7c3f2e", "kernel"},
	{query.Go, "#9fd3e0", "#22606f", "Go"},
	{query.Interpreted, "#cdb4e8", "#5b417a", "interpreted"},
	{query.Generated, "#b5dba0", "#41662c", "generated"},
	{query.NoCode, "#d0d0d0", "#4c4c4c", "unknown"},
}

// Write draws a profile. A difference of two profiles gives profile.ErrNegative.
func Write(w io.Writer, p *pprof.Profile, o Options) error {
	for _, s := range p.Sample {
		for _, v := range s.Value {
			if v < 0 {
				return profile.ErrNegative
			}
		}
	}
	c, err := compact.FromPprof(p)
	if err != nil {
		return err
	}
	if c, err = c.WithSymbols(p, o.Misses).Interesting(); err != nil {
		return err
	}
	sel, err := query.New(c, nil).Select(query.Filter{SampleType: o.SampleType})
	if err != nil {
		return err
	}
	if sel.Total() == 0 {
		return ErrEmpty
	}
	tree, err := sel.Tree(query.TreeOptions{MaxNodes: mostNodes, MinShare: least / (width - 2*margin)})
	if err != nil {
		return err
	}
	if o.Quantity == nil {
		o.Quantity = func(v int64, unit string) string { return fmt.Sprint(v, " ", unit) }
	}
	d := drawing{out: bufio.NewWriter(w), sel: sel, tree: tree, options: o}
	d.draw()
	return d.out.Flush()
}

var ErrEmpty = errors.New("the profile is empty: there is nothing to draw")

// drawing is a tree on its way into an image.
type drawing struct {
	out     *bufio.Writer
	sel     *query.Selection
	tree    *query.Tree
	options Options
}

const (
	legendY    = 66 // below the title, the total and the coverage
	headHeight = legendY + 24
)

func (d *drawing) draw() {
	deepest, left := int32(0), int32(0)
	for _, n := range d.tree.Nodes {
		deepest = max(deepest, n.Depth)
		left += n.CutNodes
	}
	bottom := headHeight + int(deepest+1)*rowHeight
	notes := d.notes(left)
	height := bottom + 10 + len(notes)*16 + margin
	fmt.Fprintf(d.out, `<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" version="1.1" width="%d" height="%d" viewBox="0 0 %d %d" role="img">
<title>%s</title>
`, width, height, width, height, escape(d.options.Title))
	d.style()
	fmt.Fprintf(d.out, "<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n", width, height)
	d.text(margin, 22, "head", d.options.Title)
	d.text(margin, 40, "note", d.whole())
	d.text(margin, 56, "note", d.coverage())
	d.legend()
	d.frames()
	for i, note := range notes {
		d.text(margin, bottom+20+16*i, "note", note)
	}
	fmt.Fprintln(d.out, "</svg>")
}

func (d *drawing) style() {
	fmt.Fprint(d.out, "<style>\n.page{fill:#fff}text{font:12px monospace;fill:#111}.head{font-weight:bold;font-size:15px}rect.f{stroke:#fff;stroke-width:.5}.i{opacity:.75}\n")
	for i, c := range colors {
		fmt.Fprintf(d.out, ".k%d{fill:%s}", i, c.light)
	}
	fmt.Fprint(d.out, "\n@media (prefers-color-scheme:dark){.page{fill:#161616}text{fill:#eee}rect.f{stroke:#161616}")
	for i, c := range colors {
		fmt.Fprintf(d.out, ".k%d{fill:%s}", i, c.dark)
	}
	fmt.Fprintln(d.out, "}\n</style>")
}

// legend names the colors that the graph has.
func (d *drawing) legend() {
	used := map[query.Kind]bool{}
	for _, n := range d.tree.Nodes {
		if n.Frame >= 0 {
			used[d.sel.Set().Frames()[n.Frame].Kind] = true
		}
	}
	x := margin
	for i, c := range colors {
		if !used[c.kind] {
			continue
		}
		fmt.Fprintf(d.out, "<rect class=\"k%d\" x=\"%d\" y=\"%d\" width=\"12\" height=\"12\"/>\n", i, x, legendY)
		d.text(x+17, legendY+10, "note", c.text)
		x += 17 + int(charWidth*float64(len(c.text))) + 20
	}
	d.text(x, legendY+10, "note", "paler: inlined")
}

// whole says what the image is of: "16.1s cpu in 8.05s".
func (d *drawing) whole() string {
	text := d.options.Quantity(d.sel.Total(), d.sel.Unit()) + " " + d.sel.SampleType()
	if t := d.sel.Set().Profile().Duration(); t > 0 {
		text += " in " + d.options.Quantity(int64(t), "nanoseconds")
	}
	return text
}

// coverage says how much is known.
func (d *drawing) coverage() string {
	c := d.sel.Coverage()
	text := fmt.Sprintf("Coverage: %s of the frames identified, %s named", share(c.Identified, c.Frames), share(c.Symbolized, c.Frames))
	if c.Stacks != nil {
		text += fmt.Sprintf(", %s of the stacks known to be complete", share(c.Stacks.Complete, c.Stacks.Samples))
	}
	return text
}

func share(part, whole int64) string {
	return fmt.Sprintf("%.1f%%", 100*float64(part)/float64(max(whole, 1)))
}

// notes say why not more is known, and what is left out.
func (d *drawing) notes(left int32) (notes []string) {
	c := d.sel.Coverage()
	const most = 4
	for _, g := range c.Gaps[:min(len(c.Gaps), most)] {
		notes = append(notes, fmt.Sprintf("%s no %s: %s", share(g.Frames, c.Frames), g.Lacks, g.Reason))
	}
	if c.Stacks != nil {
		for _, g := range c.Stacks.Gaps[:min(len(c.Stacks.Gaps), most)] {
			notes = append(notes, fmt.Sprintf("%s of the stacks lack outer frames: %s", share(g.Samples, c.Stacks.Samples), g.Reason))
		}
	}
	if left > 0 {
		notes = append(notes, plaintext.Plural(int64(left), "frame that is too narrow to be seen is left out, with what it calls.", "frames that are too narrow to be seen are left out, with what they call."))
	}
	return notes
}

func (d *drawing) frames() {
	const whole = width - 2*margin
	total := float64(d.tree.Nodes[0].Size)
	at := make([]float64, len(d.tree.Nodes))   // left edges
	next := make([]float64, len(d.tree.Nodes)) // of the next child
	for i, n := range d.tree.Nodes {
		at[i] = margin
		w := whole * float64(n.Size) / total
		if n.Parent >= 0 {
			at[i] = next[n.Parent]
			next[n.Parent] += w
		}
		next[i] = at[i]
		d.frame(&n, at[i], w)
	}
}

func (d *drawing) frame(n *query.Node, x, w float64) {
	name, title, class := "all", "all", "k5"
	if n.Frame >= 0 {
		f := &d.sel.Set().Frames()[n.Frame]
		name = plaintext.Line(f.Name)
		title, class = d.title(f), d.class(n, f)
	}
	unit := d.sel.Unit()
	title += fmt.Sprintf("\n%s, %.2f%%", d.options.Quantity(n.Total, unit), 100*float64(n.Total)/float64(d.sel.Total()))
	if n.Self != 0 {
		title += fmt.Sprintf("; itself %s", d.options.Quantity(n.Self, unit))
	}
	for _, e := range n.Ends {
		title += fmt.Sprintf("\nouter frames are missing (%s): %s", d.options.Quantity(e.Value, unit), e.Reason)
	}
	y := headHeight + int(n.Depth)*rowHeight
	fmt.Fprintf(d.out, "<g><title>%s</title><rect class=\"f %s\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>", escape(title), class, x, y, w, rowHeight-1)
	if room := int((w - 6) / charWidth); room >= 3 {
		fmt.Fprintf(d.out, "<text x=\"%.1f\" y=\"%d\">%s</text>", x+3, y+12, escape(cut(name, room)))
	}
	fmt.Fprintln(d.out, "</g>")
}

func (d *drawing) title(f *query.Frame) string {
	b := &d.sel.Set().Binaries()[f.Binary]
	title := plaintext.Line(f.Name)
	if b.File != "" {
		title += "\n" + plaintext.Line(profile.Cut(b.File))
	}
	if b.BuildID != "" {
		title += "\n" + plaintext.Line(b.BuildID)
	}
	if f.Reason != "" {
		title += "\n" + f.Reason
	}
	return title
}

func (d *drawing) class(n *query.Node, f *query.Frame) string {
	class := "k0"
	for i, c := range colors {
		if c.kind == f.Kind {
			class = fmt.Sprintf("k%d", i)
		}
	}
	if n.Inlined {
		class += " i"
	}
	return class
}

func (d *drawing) text(x, y int, class, text string) {
	fmt.Fprintf(d.out, "<text class=\"%s\" x=\"%d\" y=\"%d\">%s</text>\n", class, x, y, escape(text))
}

func cut(s string, room int) string {
	if utf8.RuneCountInString(s) <= room {
		return s
	}
	return string([]rune(s)[:room-1]) + "…"
}

// escape returns text as it stands in XML, of which control characters are no part.
func escape(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = html.EscapeString(plaintext.Line(lines[i]))
	}
	return strings.Join(lines, "\n")
}
