package unwind

import (
	"cmp"
	"slices"
)

// A gap is code, by offsets of the file, that no layer covers.
type gap struct{ start, end off }

// compare puts gaps into the order of the file.
func (g gap) compare(other gap) int { return cmp.Compare(g.start, other.start) }

// gaps returns the code that no layer so far covers, in the order of the file: of sections
// of code, or of executable segments if there are no section headers. They are where a
// table may have rows, and not larger than maxLooked together.
func (b *builder) gaps() []gap {
	var covered []gap
	for _, l := range b.layers {
		for _, p := range l.parts {
			for _, s := range p.spans {
				covered = append(covered, gap{l.base + off(s.start), l.base + off(s.end)})
			}
		}
	}
	slices.SortFunc(covered, gap.compare)
	code := b.code()
	slices.SortFunc(code, gap.compare)
	var gaps []gap
	at := off(0)
	for _, c := range code {
		at = max(at, c.start)
		for len(covered) > 0 && covered[0].start < c.end {
			if covered[0].start > at {
				gaps = append(gaps, gap{at, covered[0].start})
			}
			at = max(at, covered[0].end)
			if at > c.end {
				break // it may cover what follows too
			}
			covered = covered[1:]
		}
		if at < c.end {
			gaps = append(gaps, gap{at, c.end})
			at = c.end
		}
	}
	return b.bounded(gaps)
}

// bounded returns the part of gaps that is looked at: what lies far behind has no rows
// anyway, and of very much the first.
func (b *builder) bounded(gaps []gap) []gap {
	left, end := off(maxLooked), b.base+maxSpread
	for i := range gaps {
		g := &gaps[i]
		g.end = min(g.end, end, g.start+left)
		if g.start >= g.end {
			return gaps[:i]
		}
		left -= g.end - g.start
	}
	return gaps
}

// code returns where the file has code.
func (b *builder) code() (code []gap) {
	for s := range b.file.filled() {
		if !s.IsText() {
			continue
		}
		if start, end, ok := b.file.code(s.Addr, s.Addr+s.Size); ok && uint64(start) == s.Offset {
			code = append(code, gap{start, end})
		}
	}
	if code != nil {
		return code
	}
	for _, s := range b.file.text {
		code = append(code, gap{off(s.off), off(s.off + s.size)})
	}
	return code
}

// gapWindow is how much is read at once where gaps are small, as those between functions.
const gapWindow = 64 << 10

// eachGap calls each with the code of every gap of at least some bytes, in pieces of at
// most 1 MiB. Pieces of a gap overlap by as much as is reported. It ends when maxLooked bytes are
// read, which gaps that lie far apart need more of than they have.
func (b *builder) eachGap(gaps []gap, least, overlap off, each func(at off, code []byte)) error {
	var buf []byte
	var from, to off             // what buf holds
	left := maxLooked + goWindow // for overlaps
	for _, g := range gaps {
		if g.end-g.start < least {
			continue
		}
		for at := g.start; at < g.end; {
			n := min(g.end-at, goWindow)
			if at < from || at+n > to {
				if buf == nil {
					buf = make([]byte, goWindow)
				}
				if left <= 0 {
					return nil
				}
				got, _ := b.file.Reader.ReadAt(buf[:max(n, gapWindow)], int64(at)) // more than the gap, if there is more
				if off(got) < n {
					return b.damaged(b.file.ReadAt(buf[:n], uint64(at)))
				}
				from, to = at, at+off(got)
				left -= got
			}
			each(at, buf[at-from:][:n])
			if at += n; at < g.end {
				at -= overlap
			}
		}
	}
	return nil
}
