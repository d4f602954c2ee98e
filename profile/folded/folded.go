// Package folded writes profiles as folded stacks, one stack and its count a
// line, as stackcollapse-perf.pl does and flamegraph.pl, inferno and others read
// (https://github.com/brendangregg/FlameGraph):
//
//	process;outermost function;…;leaf function 42
//
// Inlined functions have frames of their own. Frames of the kernel end with
// "_[k]". Frames without a symbol are "[binary+0xoffset]", unless
// profile.NameUnknown made them one function of each binary. Lines are sorted, so
// that the same profile gives the same bytes.
package folded

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/plaintext"
	"hallmark/profile"
)

// Options select what is counted.
type Options struct {
	// SampleType is the sample type to count. Empty means "samples", and for
	// profiles without it their default.
	SampleType string
}

// Write writes the stacks of p. Stacks that count zero are left out, and so is
// the process where the profile does not have it. A difference of two profiles
// gives profile.ErrNegative.
func Write(w io.Writer, p *pprof.Profile, o Options) error {
	f, err := fold(p, o)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	for i := 0; i < len(f.stacks); {
		first, count := f.stacks[i], int64(0)
		for ; i < len(f.stacks) && f.compare(first, f.stacks[i]) == 0; i++ {
			count += f.stacks[i].count
		}
		if err := f.write(out, first, count); err != nil {
			return err
		}
	}
	return out.Flush()
}

// folding is a profile on its way into lines. No line is ever in memory: a few bytes of a
// profile can stand for a name in each of a million frames.
type folding struct {
	texts  []string       // of frames and processes
	rank   [][2]int       // of a text that ends a line, and of one in a line: as these sort
	known  map[string]int // index of a text, by the name that it was made of
	frames *profile.PerLocation[[]int]
	stacks []stack // in the order of their lines
}

// stack is a line: what counts for it, and the process, -1 for none.
type stack struct {
	locations []*pprof.Location // innermost first
	process   int
	count     int64
}

// fold returns the stacks that count.
func fold(p *pprof.Profile, o Options) (*folding, error) {
	types := []string{"samples", ""}
	if o.SampleType != "" {
		types = []string{o.SampleType}
	}
	index, err := profile.SampleIndex(p, types...)
	if err != nil {
		return nil, err
	}
	f := &folding{known: map[string]int{}, frames: profile.NewPerLocation[[]int](p)}
	for _, s := range p.Sample {
		switch value := s.Value[index]; {
		case value < 0:
			return nil, profile.ErrNegative
		case value > 0:
			f.add(s, value)
		}
	}
	f.sort()
	return f, nil
}

func (f *folding) add(s *pprof.Sample, count int64) {
	one := stack{locations: s.Location, process: -1, count: count}
	if process, _ := profile.Process(s); process != "" {
		one.process = f.text(process, false)
	}
	for _, l := range s.Location {
		if at := f.frames.At(l); *at == nil {
			*at = f.framesAt(l)
		}
	}
	f.stacks = append(f.stacks, one)
}

// framesAt returns the texts of the calls at a location, innermost first.
func (f *folding) framesAt(l *pprof.Location) []int {
	var frames []int
	for c := range profile.CallsAt(l) {
		frames = append(frames, f.text(c.Name(), c.Kernel()))
	}
	return frames
}

// text returns the index of what stands in a line for a name.
func (f *folding) text(name string, kernel bool) int {
	text := clean(name)
	if kernel {
		text += "_[k]"
	}
	i, ok := f.known[text]
	if !ok {
		i = len(f.texts)
		f.texts, f.known[text] = append(f.texts, text), i
	}
	return i
}

// sort brings the stacks into the order of their lines. Each text has its place in it twice:
// at the end of a line, and before the separator, which no text has. So stacks compare by
// numbers.
func (f *folding) sort() {
	type key struct {
		text int
		last bool
	}
	keys := make([]key, 0, 2*len(f.texts))
	for i := range f.texts {
		keys = append(keys, key{i, true}, key{i, false})
	}
	slices.SortFunc(keys, func(a, b key) int { return f.compareTexts(a.text, a.last, b.text, b.last) })
	f.rank = make([][2]int, len(f.texts))
	for i, k := range keys {
		at := 0
		if !k.last {
			at = 1
		}
		f.rank[k.text][at] = i
	}
	slices.SortFunc(f.stacks, f.compare)
}

// compareTexts compares as the lines do that have these texts at the same place.
func (f *folding) compareTexts(i int, iLast bool, k int, kLast bool) int {
	a, b := f.texts[i], f.texts[k]
	n := min(len(a), len(b))
	if c := strings.Compare(a[:n], b[:n]); c != 0 {
		return c
	}
	return cmp.Compare(next(a, n, iLast), next(b, n, kLast))
}

// next returns the byte of a line at n in a text, or behind it: -1 at the end.
func next(text string, n int, last bool) int {
	switch {
	case n < len(text):
		return int(text[n])
	case last:
		return -1
	}
	return separator
}

const separator = ';'

// compare compares two stacks by their lines.
func (f *folding) compare(a, b stack) int {
	x, y := f.walk(a), f.walk(b)
	for {
		i, iLast := x.next()
		k, kLast := y.next()
		switch {
		case i < 0 || k < 0:
			return cmp.Compare(i, k) // both ended, or one of them is empty
		case i != k || iLast != kLast:
			return cmp.Compare(f.rankOf(i, iLast), f.rankOf(k, kLast))
		case iLast:
			return 0
		}
	}
}

func (f *folding) rankOf(text int, last bool) int {
	if last {
		return f.rank[text][0]
	}
	return f.rank[text][1]
}

// walker goes through the texts of a stack, the outermost first.
type walker struct {
	folding *folding
	process int
	left    []*pprof.Location
	frames  []int // that are left at the location before
}

func (f *folding) walk(s stack) walker {
	return walker{folding: f, process: s.process, left: s.locations}
}

// next returns the next text, and whether it is the last one; -1 where there is none.
func (w *walker) next() (text int, last bool) {
	if w.process >= 0 {
		text, w.process = w.process, -1
		return text, len(w.left) == 0
	}
	if len(w.frames) == 0 {
		if len(w.left) == 0 {
			return -1, true
		}
		n := len(w.left) - 1
		w.frames, w.left = *w.folding.frames.At(w.left[n]), w.left[:n]
	}
	n := len(w.frames) - 1
	text, w.frames = w.frames[n], w.frames[:n]
	return text, n == 0 && len(w.left) == 0
}

// write writes a line.
func (f *folding) write(out *bufio.Writer, s stack, count int64) error {
	w := f.walk(s)
	text, last := w.next()
	if text < 0 {
		out.WriteString("[no stack]")
	}
	for text >= 0 {
		out.WriteString(f.texts[text])
		if last {
			break
		}
		out.WriteByte(separator)
		text, last = w.next()
	}
	_, err := fmt.Fprintf(out, " %d\n", count)
	return err
}

// clean replaces what separates frames and lines.
func clean(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == separator:
			return ':'
		case plaintext.Rune(r) != r:
			return ' '
		}
		return r
	}, name)
}
