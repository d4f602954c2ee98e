package procmap

import (
	"cmp"
	"slices"

	"hallmark/addr"
)

// Translation says for each address of a batch in which VMA it lies.
type Translation struct {
	VMAs  []VMA   // those that hold an address of the batch, in no order
	Index []int32 // for each address the place of its VMA in VMAs, or -1: it is not mapped
}

// At returns the VMA of address i of the batch; ok is false when it is not mapped.
func (t *Translation) At(i int) (v VMA, ok bool) {
	if n := t.Index[i]; n >= 0 {
		return t.VMAs[n], true
	}
	return VMA{}, false
}

// The costs that decide between queries and text. A stack's addresses lie in a
// handful of VMAs, so a batch of them is over after as many queries. When it is
// not, each further address costs at most one query, about as much as
// linesPerQuery lines of text; so reading text pays if the process has no more
// lines than that for each address left. How many it has shows when they have
// been read; hence the text is read only as far as it can pay. bench/procmap has
// the measurements.
const (
	maxProbes     = 64
	linesPerQuery = 2
)

// Translate looks up a batch of addresses, in any order, at the cost of about one
// query for each VMA that holds some of them, or less if reading the text is
// cheaper. It allocates per batch and per VMA found, not per address.
func (p *Process) Translate(addrs []addr.Abs) (Translation, error) {
	t := translator{p: p, out: Translation{Index: make([]int32, len(addrs))}}
	if err := t.run(addrs); err != nil {
		return Translation{}, p.wrap(err)
	}
	return t.out, nil
}

// A translator works through one batch.
type translator struct {
	p     *Process
	out   Translation
	left  []asked // what probe did not answer; in order from walk on
	known spans   // what probe learned
}

// asked is an address of the batch with its place there.
type asked struct {
	addr addr.Abs
	i    int
}

func (t *translator) run(addrs []addr.Abs) error {
	if !t.p.query {
		t.left = make([]asked, len(addrs))
		for i, a := range addrs {
			t.left[i] = asked{a, i}
		}
	} else if err := t.probe(addrs); err != nil || len(t.left) == 0 {
		return err
	}
	slices.SortFunc(t.left, func(a, b asked) int { return cmp.Compare(a.addr, b.addr) })
	if err := t.walkText(); err != nil || len(t.left) == 0 {
		return err
	}
	return t.walkQueries()
}

// probe answers the addresses with the first few queries.
func (t *translator) probe(addrs []addr.Abs) error {
	q, err := t.p.querier()
	if err != nil {
		return err
	}
	defer q.release()
	var last span
	for i, a := range addrs {
		if !last.contains(a) {
			s, ok, err := t.lookup(q, a)
			if err != nil {
				return err
			}
			if !ok {
				t.left = append(t.left, asked{a, i})
				continue
			}
			last = s
		}
		t.out.Index[i] = last.vma
	}
	return nil
}

// lookup returns the span that holds a, which may be a hole. ok is false when it
// is not known and there were queries enough.
func (t *translator) lookup(q *querier, a addr.Abs) (s span, ok bool, err error) {
	place, s := t.known.find(a)
	if s.contains(a) {
		return s, true, nil
	}
	if t.known.n == maxProbes {
		return span{}, false, nil
	}
	v, ok, err := q.next(a, 0)
	switch {
	case err != nil:
		return span{}, false, err
	case !ok:
		s = span{start: a, size: ^a, vma: -1}
	case v.Start > a:
		s = span{start: a, size: v.Start - a, vma: -1}
	default:
		s = span{start: v.Start, size: v.End - v.Start, vma: t.add(v)}
	}
	t.known.insert(place, s)
	return s, true, nil
}

// add returns the place of v among the VMAs found.
func (t *translator) add(v VMA) int32 {
	t.out.VMAs = append(t.out.VMAs, v)
	return int32(len(t.out.VMAs) - 1)
}

// walkText answers from the text what is left, as far as the text can pay.
func (t *translator) walkText() error {
	limit := int64(len(t.left)) * linesPerQuery
	if t.p.method == Query || t.p.query && t.p.atLeast.Load() > limit {
		return nil
	}
	var lines int64
	err := t.p.scan(func(line []byte) error {
		if lines++; len(t.left) == 0 || t.p.query && lines > limit {
			return errStop
		}
		start, end, err := parseRange(line)
		if err != nil {
			return err
		}
		t.skip(start)
		if n := t.below(end); n > 0 {
			v, err := ParseLine(line)
			if err != nil {
				return err
			}
			t.answer(n, t.add(v))
		}
		return nil
	})
	t.p.atLeast.Store(max(lines, t.p.atLeast.Load()))
	if err == nil && (!t.p.query || lines <= limit) {
		t.answer(len(t.left), -1)
	}
	return err
}

// walkQueries answers what is left, one query for a VMA.
func (t *translator) walkQueries() error {
	q, err := t.p.querier()
	if err != nil {
		return err
	}
	defer q.release()
	for len(t.left) > 0 {
		v, ok, err := q.next(t.left[0].addr, 0)
		if err != nil {
			return err
		}
		if !ok {
			t.answer(len(t.left), -1)
			break
		}
		t.skip(v.Start)
		if n := t.below(v.End); n > 0 {
			t.answer(n, t.add(v))
		}
	}
	return nil
}

// skip answers the addresses below start: they are not mapped.
func (t *translator) skip(start addr.Abs) { t.answer(t.below(start), -1) }

// below counts the addresses left below end.
func (t *translator) below(end addr.Abs) int {
	n := 0
	for n < len(t.left) && t.left[n].addr < end {
		n++
	}
	return n
}

// answer gives the first n addresses left their VMA.
func (t *translator) answer(n int, vma int32) {
	for _, a := range t.left[:n] {
		t.out.Index[a.i] = vma
	}
	t.left = t.left[n:]
}

// A span is a range of addresses that lie in the same VMA, or in the hole between
// two.
type span struct {
	start, size addr.Abs
	vma         int32 // -1 for a hole
}

func (s span) contains(a addr.Abs) bool { return a-s.start < s.size }

// spans are the answers to a few queries, in order.
type spans struct {
	n      int
	starts [maxProbes]addr.Abs // apart, because searching touches nothing else
	spans  [maxProbes]span
}

// find returns the last span that starts at or below a, and the place behind it.
func (t *spans) find(a addr.Abs) (place int, s span) {
	lo := 0
	for n := t.n; n > 0; {
		half := (n + 1) / 2
		if t.starts[lo+half-1] <= a {
			lo += half
		}
		n -= half
	}
	if lo == 0 {
		return 0, span{}
	}
	return lo, t.spans[lo-1]
}

func (t *spans) insert(place int, s span) {
	copy(t.starts[place+1:t.n+1], t.starts[place:t.n])
	copy(t.spans[place+1:t.n+1], t.spans[place:t.n])
	t.starts[place], t.spans[place] = s.start, s
	t.n++
}
