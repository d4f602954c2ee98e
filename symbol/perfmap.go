package symbol

import (
	"errors"
	"fmt"
	"io"

	"hallmark/addr"
	"hallmark/internal/elffile"
	"hallmark/internal/ranges"
	"hallmark/internal/symtab"
	"hallmark/reason"
)

// PerfMap answers for the generated code of one process, from the map that its
// runtime wrote to /tmp/perf-PID.map.
type PerfMap struct {
	ranges  ranges.List // values are offsets in names
	names   string
	lines   int
	damaged int
}

// Limits on a map: anybody can write one, and whoever asks about a process reads it. Maps of
// large programs that ran for days have some 10 MB.
const (
	MaxPerfMap      = 64 << 20 // bytes
	maxPerfMapLines = 2 << 20
)

// ErrPerfMapTooLarge says that a perf map is beyond what is read. It arrives wrapped.
var ErrPerfMapTooLarge = errors.New("perf map is too large")

// ReadPerfMap reads a perf map (the kernel's tools/perf/Documentation/jit-interface.txt):
// lines of START SIZE NAME, numbers in hexadecimal, the name up to the end of the
// line. Where lines overlap the later one counts, because runtimes reuse memory.
// Damaged lines are counted and skipped: the last one may be in the writing. Of more than
// 64 MiB or 2 million lines it reads nothing, and returns ErrPerfMapTooLarge.
func ReadPerfMap(r io.Reader) (m *PerfMap, err error) {
	defer containPanic("perf map", &err)
	m = new(PerfMap)
	var names symtab.Names
	var spans []ranges.Span
	in := &io.LimitedReader{R: r, N: MaxPerfMap + 1}
	err = eachLine(in, func(line []byte) {
		if m.lines++; m.lines > maxPerfMapLines {
			in.N = 0 // it is too large
			return
		}
		s, name, ok := parsePerfMapLine(line)
		if !ok {
			m.damaged++
			return
		}
		s.Value = names.Add(name)
		spans = append(spans, s)
	})
	if err != nil {
		return nil, err
	}
	if in.N <= 0 {
		return nil, fmt.Errorf("%w: more than %d MiB or %d lines", ErrPerfMapTooLarge, MaxPerfMap>>20, maxPerfMapLines)
	}
	m.names = names.String()
	m.ranges = ranges.Paint(spans)
	return m, nil
}

func parsePerfMapLine(line []byte) (s ranges.Span, name []byte, ok bool) {
	start, rest, ok1 := cutHex(line)
	size, name, ok2 := cutHex(rest)
	if !ok1 || !ok2 || !isName(name) || start+size < start {
		return ranges.Span{}, nil, false
	}
	return ranges.Span{Start: start, End: start + size}, name, true
}

// Lines returns how many lines the map has.
func (m *PerfMap) Lines() int { return m.lines }

// Memory returns how many bytes of memory the map takes.
func (m *PerfMap) Memory() int64 { return int64(len(m.names)) + 16*int64(cap(m.ranges.Starts)) }

// Len returns the number of code ranges.
func (m *PerfMap) Len() int { return len(m.ranges.Starts) }

// Damaged returns the number of lines that were skipped.
func (m *PerfMap) Damaged() int { return m.damaged }

// Lookup answers for the instruction at an absolute address of the process.
func (m *PerfMap) Lookup(a addr.Abs) (r Result) {
	defer containMiss(&r)
	i, ok := m.ranges.Find(uint64(a))
	if !ok {
		return Miss(reason.NoSymbol)
	}
	linkage := elffile.StringAt(m.names, m.ranges.Values[i])
	return Result{Frames: []Frame{{Func: Demangle(linkage), Linkage: linkage}}, Source: SourcePerfMap}
}
