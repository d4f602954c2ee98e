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
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"

	pprof "github.com/google/pprof/profile"

	"hallmark/profile"
)

// Options select what is counted.
type Options struct {
	// SampleType is the sample type to count. Empty means "samples", and for
	// profiles without it their default.
	SampleType string
}

// Write writes the stacks of p. Stacks that count zero are left out, and so is
// the process where the profile does not tell it. A difference of two profiles
// gives profile.ErrNegative.
func Write(w io.Writer, p *pprof.Profile, o Options) error {
	counts, err := fold(p, o)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	for _, stack := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(out, "%s %d\n", stack, counts[stack])
	}
	return out.Flush()
}

// fold returns the count of every stack.
func fold(p *pprof.Profile, o Options) (map[string]int64, error) {
	types := []string{"samples", ""}
	if o.SampleType != "" {
		types = []string{o.SampleType}
	}
	index, err := profile.SampleIndex(p, types...)
	if err != nil {
		return nil, err
	}
	counts := map[string]int64{}
	names := names{}
	for _, s := range p.Sample {
		switch value := s.Value[index]; {
		case value < 0:
			return nil, profile.ErrNegative
		case value > 0:
			counts[names.line(s)] += value
		}
	}
	return counts, nil
}

// names holds the frames of the locations that were met, innermost first.
type names map[*pprof.Location][]string

// line returns the stack of s, outermost first.
func (n names) line(s *pprof.Sample) string {
	var frames []string
	for _, l := range s.Location {
		frames = append(frames, n.at(l)...)
	}
	if process, _ := profile.Process(s); process != "" {
		frames = append(frames, clean(process))
	}
	if len(frames) == 0 {
		return "[no stack]"
	}
	slices.Reverse(frames)
	return strings.Join(frames, ";")
}

func (n names) at(l *pprof.Location) []string {
	frames, ok := n[l]
	if !ok {
		for c := range profile.CallsAt(l) {
			name := clean(c.Name())
			if c.Kernel() {
				name += "_[k]"
			}
			frames = append(frames, name)
		}
		n[l] = frames
	}
	return frames
}

// clean replaces what separates frames and lines.
func clean(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ';':
			return ':'
		case unicode.IsControl(r) || r == '\u2028' || r == '\u2029':
			return ' '
		}
		return r
	}, name)
}
