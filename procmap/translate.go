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

// Translate looks up a batch of addresses, in any order, with about one query for
// each VMA that holds some of them, or else by reading the text once. It allocates
// per batch and per VMA found, not per address.
//
// Where there are queries the text is never read. It would only be faster for
// batches that hit nearly every VMA of the process, and then by a quarter at most;
// stacks hit a dozen. bench/README.md has the curve.
func (p *Process) Translate(addrs []addr.Abs) (Translation, error) {
	t := translator{p: p, out: Translation{
		VMAs:  make([]VMA, 0, 8), // enough for most stacks
		Index: make([]int32, len(addrs)),
	}}
	var err error
	if p.query {
		err = t.byQueries(addrs)
	} else {
		err = t.byText(addrs)
	}
	if err != nil {
		return Translation{}, p.wrap(err)
	}
	return t.out, nil
}

// A translator works through one batch.
type translator struct {
	p     *Process
	out   Translation
	known spans   // what the first queries found
	left  []asked // addresses without an answer, in order
}

// asked is an address of the batch with its place there.
type asked struct {
	addr addr.Abs
	i    int
}

// byQueries answers in the order of the batch as long as few VMAs are hit, and the
// rest in the order of the addresses.
func (t *translator) byQueries(addrs []addr.Abs) error {
	q, err := t.p.querier()
	if err != nil {
		return err
	}
	defer q.release()
	t.known.grow(16)
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
	t.sort()
	return t.walk(q)
}

// lookup returns the span that holds a, which may be a hole. ok is false when it
// is not known and there is no room for more spans.
func (t *translator) lookup(q *querier, a addr.Abs) (s span, ok bool, err error) {
	place, s := t.known.find(a)
	if s.contains(a) {
		return s, true, nil
	}
	if len(t.known.found) == maxSpans {
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

// walk answers what is left, one query for each VMA and each hole.
func (t *translator) walk(q *querier) error {
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

// byText answers from the text, of which only the lines that hold an address are
// parsed.
func (t *translator) byText(addrs []addr.Abs) error {
	t.left = make([]asked, len(addrs))
	for i, a := range addrs {
		t.left[i] = asked{a, i}
	}
	t.sort()
	err := t.p.scan(t.line)
	t.answer(len(t.left), -1)
	return err
}

// line answers the addresses in the VMA that line describes, and those below.
func (t *translator) line(line []byte) error {
	if len(t.left) == 0 {
		return errStop
	}
	start, end, err := parseRange(line)
	if err != nil {
		return err
	}
	t.skip(start)
	n := t.below(end)
	if n == 0 {
		return nil
	}
	v, err := ParseLine(line)
	if err != nil {
		return err
	}
	t.answer(n, t.add(v))
	return nil
}

func (t *translator) sort() {
	slices.SortFunc(t.left, func(a, b asked) int { return cmp.Compare(a.addr, b.addr) })
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

// maxSpans is how many VMAs and holes a batch may hit in whatever order. Beyond it
// sorting the addresses costs less than keeping the spans in order, and the kernel
// answers faster when it is asked in order.
const maxSpans = 512

// spans are the answers to queries, in the order of their addresses.
type spans struct {
	starts []addr.Abs
	places []int32 // in found, of the span with that start
	found  []span  // in the order of the queries
}

// grow makes room for n more spans.
func (t *spans) grow(n int) {
	t.starts = slices.Grow(t.starts, n)
	t.places = slices.Grow(t.places, n)
	t.found = slices.Grow(t.found, n)
}

// find returns the last span that starts at or below a, and the place behind it.
func (t *spans) find(a addr.Abs) (place int, s span) {
	lo := 0
	for n := len(t.starts); n > 0; {
		half := (n + 1) / 2
		if t.starts[lo+half-1] <= a {
			lo += half
		}
		n -= half
	}
	if lo == 0 {
		return 0, span{}
	}
	return lo, t.found[t.places[lo-1]]
}

func (t *spans) insert(place int, s span) {
	t.starts = slices.Insert(t.starts, place, s.start)
	t.places = slices.Insert(t.places, place, int32(len(t.found)))
	t.found = append(t.found, s)
}
