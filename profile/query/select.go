package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	pprof "github.com/google/pprof/profile"

	"hallmark/profile/compact"
)

// Filter chooses stacks. The zero value chooses all.
type Filter struct {
	SampleType string        // what is counted; "" is the profile's own choice
	Labels     []LabelFilter // all of them must hold
	// Focus are stacks that have a frame which matches, Ignore are those that are left out.
	// Names of functions, source files and binaries are matched.
	Focus, Ignore *regexp.Regexp
	// Hide takes matching frames out of stacks, Show leaves only these.
	Hide, Show *regexp.Regexp
	// With are frames that all stacks have, and Without those that are taken out of them, by number.
	With, Without []int
	Binaries      []int // innermost frames are in one of these; empty for all
	// From and To are nanoseconds since the first sample, each profile's own, and To is behind the last one; both 0 for
	// all, and for stacks without times.
	From, To int64
	Unknown  Unknown
}

// Pattern returns the expression that looks for a text: a regular expression, and the text itself as well. Names have signs
// of regular expressions, as (*Loader).load and gzip+0x4290, and are copied from reports.
func Pattern(text string) (*regexp.Regexp, error) {
	itself := regexp.QuoteMeta(text)
	if _, err := regexp.Compile(text); err != nil {
		return regexp.MustCompile(itself), nil
	}
	re, err := regexp.Compile("(?:" + text + ")|" + itself)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	return re, nil
}

// LabelFilter chooses samples by a label. A sample without the label has the value "".
type LabelFilter struct {
	Key    string
	Values []string // any of them; numbers in decimal
	Not    bool     // none of them
}

// Selection is the stacks that a Filter chose.
type Selection struct {
	set    *Set
	filter Filter
	found  *found
	with   int // frame that all stacks have, -1 for none
	scale  float64
	sides  []*weights
	unit   string
	kind   string

	ends struct {
		once  sync.Once
		byTop map[int32][]End
	}
}

// weights are what the nodes of one profile's stacks count.
type weights struct {
	side   *side
	tree   *compact.Tree
	chains *chains
	kind   int
	in     ratio   // of the unit to that of the selection
	self   []int64 // by node: of stacks that end there
	total  []int64 // and below

	// The same without signs, and the same lists where nothing is negative: a difference may add up to nothing.
	selfSize, size []int64

	sets []int64 // by set of labels
	abs  int64   // sum of the absolute values
	rows func(yield func(row int, part share) bool)

	counts struct {
		once  sync.Once
		total []int64 // by node: samples
		sets  []int64
		all   int64
	}
}

// Select chooses stacks. The error is that the profile, or its base, has not the type of sample, counts it in units that
// are of something else, or ErrSum.
func (s *Set) Select(f Filter) (*Selection, error) { return s.SelectContext(context.Background(), f) }

// SelectContext is Select until ctx is done: an expression of a few bytes can take minutes of many names.
func (s *Set) SelectContext(ctx context.Context, f Filter) (*Selection, error) {
	found, err := s.find(ctx, &f)
	if err != nil {
		return nil, err
	}
	return s.selectWith(f, found, -1)
}

// found are the frames that match the expressions of a filter, nil for an expression that is not there.
type found struct{ focus, ignore, hide, show *matched }

func (s *Set) find(ctx context.Context, f *Filter) (*found, error) {
	out := &found{}
	for re, to := range map[*regexp.Regexp]**matched{f.Focus: &out.focus, f.Ignore: &out.ignore, f.Hide: &out.hide, f.Show: &out.show} {
		if re == nil {
			continue
		}
		m, err := s.matching(ctx, re)
		if err != nil {
			return nil, err
		}
		*to = &m
	}
	if len(f.Without) > 0 && out.hide == nil {
		out.hide = &matched{make([]bool, len(s.frames)), make([]bool, len(s.sources))}
	}
	for _, frame := range f.Without {
		out.hide.frames[frame] = true
	}
	return out, nil
}

// Of returns the stacks of the selection that have a frame.
func (s *Selection) Of(frame int) *Selection {
	with, _ := s.set.selectWith(s.filter, s.found, frame)
	return with
}

func (s *Set) selectWith(f Filter, found *found, with int) (*Selection, error) {
	out := &Selection{set: s, filter: f, found: found, with: with, scale: 1}
	whole := make([]float64, len(s.sides))
	for i, side := range s.sides {
		kind, err := side.p.SampleType(f.SampleType)
		if err != nil && i > 0 {
			err = fmt.Errorf("base: %w", err)
		}
		if err != nil {
			return nil, err
		}
		t := side.p.SampleTypes()[kind]
		in := ratio{1, 1}
		if i == 0 {
			out.kind, out.unit = t.Type, t.Unit
			f.SampleType = t.Type // the base may choose another one by itself
		} else if in, err = inUnit(t.Unit, out.unit); err != nil {
			return nil, fmt.Errorf("base: %s: %w", t.Type, err)
		}
		if whole[i], err = side.whole(kind, in); err != nil {
			return nil, err
		}
		out.sides = append(out.sides, s.weigh(side, kind, in, &f, found, with))
	}
	if s.HasBase() && whole[0] != 0 && whole[1] != 0 {
		out.scale = whole[0] / whole[1]
	}
	return out, nil
}

// SampleType returns what is counted, and Unit in which unit.
func (s *Selection) SampleType() string { return s.kind }

// Unit returns the unit of all values.
func (s *Selection) Unit() string { return s.unit }

// Set returns the set that the selection is of.
func (s *Selection) Set() *Set { return s.set }

// Total returns the sum of all values, each as it is without its sign.
func (s *Selection) Total() int64 { return s.sides[0].abs }

// BaseTotal returns Total of the base, 0 where there is none.
func (s *Selection) BaseTotal() int64 {
	if len(s.sides) < 2 {
		return 0
	}
	return s.sides[1].abs
}

// Scale is what a value of the base is multiplied by to be comparable with the profile's, which
// may have been taken for another time: the ratio of the totals of the whole profiles, whatever is selected. It is 1
// where either is 0.
func (s *Selection) Scale() float64 { return s.scale }

// Samples returns how many samples count something of what is chosen: the sum of the type "samples", or the number
// of rows of a profile without it.
func (s *Selection) Samples() int64 {
	w := s.sides[0]
	w.count()
	return w.counts.all
}

// Only leaves in p the samples that are chosen, each with the part of its values that is of the chosen time. The set's
// profile is made of p by [compact.FromPprof].
func (s *Selection) Only(p *pprof.Profile) {
	kept := make([]*pprof.Sample, 0, len(p.Sample))
	for row, part := range s.sides[0].rows {
		sample := *p.Sample[row]
		if part.n != part.all {
			sample.Value = slices.Clone(sample.Value)
			for i := range sample.Value {
				sample.Value[i] = part.of(sample.Value[i])
			}
		}
		kept = append(kept, &sample)
	}
	p.Sample = kept
	if f := &s.filter; f.To != 0 && p.DurationNanos > 0 {
		p.DurationNanos = max(0, min(f.To, p.DurationNanos)-f.From)
	}
}

// weigh adds up what each node counts.
func (s *Set) weigh(side *side, kind int, in ratio, f *Filter, found *found, with int) *weights {
	p := side.p
	w := &weights{side: side, tree: p.Stacks(), kind: kind, in: in}
	w.chains = s.shown(side, f.Unknown, found)
	ok := s.matchingNodes(w, f, found, with)
	sets := matchingSets(p, f.Labels)
	first := int64(0)
	if f.From != 0 || f.To != 0 {
		first = side.begins()
	}
	w.rows = func(yield func(int, share) bool) {
		var times []int64
		for row := range p.Samples() {
			if sets != nil && !sets[p.Labels(row)] || ok != nil && !ok[p.Node(row)] {
				continue
			}
			part := share{n: 1, all: 1}
			if f.From != 0 || f.To != 0 {
				times = p.Times(times[:0], row)
				part = shareIn(times, first+f.From, first+f.To)
			}
			if part.n != 0 && !yield(row, part) {
				return
			}
		}
	}
	w.self, w.sets = make([]int64, w.tree.Nodes()), make([]int64, p.LabelSets())
	isSigned := false
	for row, part := range w.rows {
		v := part.of(w.value(row))
		w.self[p.Node(row)] += v
		w.sets[p.Labels(row)] += v
		w.abs += max(v, -v)
		isSigned = isSigned || v < 0
	}
	w.total = sums(w.tree, w.self)
	w.selfSize, w.size = w.self, w.total
	if isSigned {
		w.addSizes()
	}
	return w
}

// addSizes adds up what each node counts without signs.
func (w *weights) addSizes() {
	w.selfSize = make([]int64, w.tree.Nodes())
	for row, part := range w.rows {
		v := part.of(w.value(row))
		w.selfSize[w.side.p.Node(row)] += max(v, -v)
	}
	w.size = sums(w.tree, w.selfSize)
}

// value returns what a row counts, in the selection's unit.
func (w *weights) value(row int) int64 { return w.in.of(w.side.p.Value(row, w.kind)) }

// share is the part of a row that is chosen: so many of all of its times, those from from on and before to.
type share struct {
	n, all   int64
	times    []int64
	from, to int64
}

// of returns the part of a value, as eachTime has it: the parts of ranges beside each other add up to the whole.
func (s share) of(v int64) int64 {
	if s.n == s.all {
		return v
	}
	sum, rest := v/s.all*s.n, v%s.all
	if rest == 0 {
		return sum
	}
	for i, t := range s.times {
		if t >= s.from && t < s.to {
			sum += part(rest, int64(i)+1, s.all) - part(rest, int64(i), s.all)
		}
	}
	return sum
}

// shareIn returns the share of a row with these times.
func shareIn(times []int64, from, to int64) share {
	s := share{all: int64(len(times)), times: times, from: from, to: to}
	for _, t := range times {
		if t >= from && t < to {
			s.n++
		}
	}
	return s
}

// sums returns what nodes count together with those below.
func sums(tree *compact.Tree, self []int64) []int64 {
	total := slices.Clone(self)
	for n := len(total) - 1; n > 0; n-- {
		total[tree.Parent(uint32(n))] += total[n]
	}
	return total
}

// matchingSets returns which sets of labels match, nil for all.
func matchingSets(p *compact.Profile, filters []LabelFilter) []bool {
	if len(filters) == 0 {
		return nil
	}
	match := make([]bool, p.LabelSets())
	for set := range match {
		match[set] = matches(p.LabelSet(uint32(set)), filters)
	}
	return match
}

func matches(labels []compact.Label, filters []LabelFilter) bool {
	for _, f := range filters {
		has, any := false, false
		for i := range labels {
			if labels[i].Key == f.Key {
				has = true
				any = any || slices.Contains(f.Values, labels[i].Value())
			}
		}
		if !has {
			any = slices.Contains(f.Values, "")
		}
		if any == f.Not {
			return false
		}
	}
	return true
}

// maxMatched is how many bytes of a name are matched.
const maxMatched = 1 << 16

// finder looks for an expression in names, until a context is done.
type finder struct {
	ctx context.Context
	re  *regexp.Regexp
	err error
}

func (f *finder) in(name string) bool {
	if f.err == nil && f.ctx.Err() != nil {
		f.err = context.Cause(f.ctx)
	}
	return f.err == nil && f.re.MatchString(name[:min(len(name), maxMatched)])
}

// matched are the frames that match an expression.
type matched struct {
	frames  []bool // by their names or their binaries
	sources []bool // by the source files that lines of them are in
}

func (s *Set) matching(ctx context.Context, re *regexp.Regexp) (matched, error) {
	find := &finder{ctx: ctx, re: re}
	binaries := make([]bool, len(s.binaries))
	for i := range binaries {
		binaries[i] = find.in(s.binaries[i].File)
	}
	m := matched{make([]bool, len(s.frames)), make([]bool, len(s.sources))}
	for i := range s.frames {
		f := &s.frames[i]
		m.frames[i] = binaries[f.Binary] || find.in(f.Name)
	}
	for i, name := range s.sources {
		m.sources[i] = name != "" && find.in(name)
	}
	return m, find.err
}

// in reports whether a frame of a chain matches.
func (m matched) in(c *chains, at uint32) bool {
	return m.frames[c.frames[at]] || m.sources[c.sources[at]]
}

// shown returns the frames of locations that the filter shows.
func (s *Set) shown(side *side, unknown Unknown, found *found) *chains {
	all := side.chains[unknown]
	if found.hide == nil && found.show == nil {
		return all
	}
	c := &chains{start: make([]uint32, 1, len(all.start))}
	for i := range len(all.start) - 1 {
		for j := all.start[i]; j < all.start[i+1]; j++ {
			if (found.hide == nil || !found.hide.in(all, j)) && (found.show == nil || found.show.in(all, j)) {
				c.add(all.frames[j], all.sources[j], all.lines[j])
			}
		}
		c.start = append(c.start, uint32(len(c.frames)))
	}
	return c
}

// matchingNodes returns at which nodes stacks end that match, nil for all.
func (s *Set) matchingNodes(w *weights, f *Filter, found *found, with int) []bool {
	if f.Focus == nil && f.Ignore == nil && len(f.With) == 0 && len(f.Binaries) == 0 && with < 0 && found.hide == nil && found.show == nil {
		return nil
	}
	ok := slices.Repeat([]bool{true}, w.tree.Nodes())
	all := w.side.chains[f.Unknown]
	only := func(c *chains, match func(c *chains, at uint32) bool, want bool) {
		for n, have := range w.having(c, match) {
			ok[n] = ok[n] && have == want
		}
	}
	if f.Focus != nil {
		only(all, found.focus.in, true)
	}
	if f.Ignore != nil {
		only(all, found.ignore.in, false)
	}
	for _, frame := range f.With {
		only(all, func(c *chains, at uint32) bool { return c.frames[at] == int32(frame) }, true)
	}
	if with >= 0 {
		only(w.chains, func(c *chains, at uint32) bool { return c.frames[at] == int32(with) }, true)
	}
	if found.hide != nil || found.show != nil { // a stack of which nothing is left
		only(w.chains, func(*chains, uint32) bool { return true }, true)
	}
	if len(f.Binaries) > 0 {
		for n := range ok {
			frames := w.tree.Frames(uint32(n))
			ok[n] = ok[n] && len(frames) > 0 && slices.Contains(f.Binaries, w.side.binaryOf(frames[len(frames)-1]))
		}
	}
	return ok
}

// having returns at which nodes the stack has a frame that matches.
func (w *weights) having(c *chains, match func(c *chains, at uint32) bool) []bool {
	have := make([]bool, w.tree.Nodes())
	locations := make([]bool, w.side.p.Locations())
	for l := range locations {
		for at := c.start[l]; at < c.start[l+1] && !locations[l]; at++ {
			locations[l] = match(c, at)
		}
	}
	for n := range have {
		have[n] = n > 0 && have[w.tree.Parent(uint32(n))] ||
			slices.ContainsFunc(w.tree.Frames(uint32(n)), func(l uint32) bool { return locations[l] })
	}
	return have
}

// count counts samples, once: those that count something of what is chosen.
func (w *weights) count() {
	w.counts.once.Do(func() {
		p := w.side.p
		kind, err := p.SampleType("samples")
		self := make([]int64, w.tree.Nodes())
		w.counts.sets = make([]int64, p.LabelSets())
		for row, part := range w.rows {
			if w.value(row) == 0 {
				continue
			}
			n := int64(1)
			if err == nil {
				n = part.of(p.Value(row, kind))
				n = max(n, -n)
			}
			self[p.Node(row)] += n
			w.counts.sets[p.Labels(row)] += n
			w.counts.all += n
		}
		w.counts.total = sums(w.tree, self)
	})
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
