package symbol

import (
	"cmp"
	"io"
	"slices"

	"hallmark/addr"
	"hallmark/reason"
)

// PerfMap answers for the generated code of one process, from the map that its
// runtime wrote to /tmp/perf-PID.map.
type PerfMap struct {
	ranges  ranges // values are offsets in names
	names   string
	damaged int
}

// ReadPerfMap reads a perf map (the kernel's tools/perf/Documentation/jit-interface.txt):
// lines of START SIZE NAME, numbers in hexadecimal, the name up to the end of the
// line. Where lines overlap the later one counts, because runtimes reuse memory.
// Damaged lines are counted and skipped: the last one may be in the writing.
func ReadPerfMap(r io.Reader) (m *PerfMap, err error) {
	defer containPanic("perf map", &err)
	m = new(PerfMap)
	var names nameTable
	var spans []span
	err = eachLine(r, func(line []byte) {
		s, name, ok := parsePerfMapLine(line)
		if !ok {
			m.damaged++
			return
		}
		s.value = names.add(name)
		spans = append(spans, s)
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(spans, byStart)
	m.names = names.String()
	m.ranges = flatten(spans, func(a, b *span) int { return cmp.Compare(b.value, a.value) })
	return m, nil
}

func parsePerfMapLine(line []byte) (s span, name []byte, ok bool) {
	start, rest, ok1 := cutHex(line)
	size, name, ok2 := cutHex(rest)
	if !ok1 || !ok2 || !isName(name) || start+size < start {
		return span{}, nil, false
	}
	return span{start: start, end: start + size}, name, true
}

// Len returns the number of code ranges.
func (m *PerfMap) Len() int { return len(m.ranges.starts) }

// Damaged returns the number of lines that were skipped.
func (m *PerfMap) Damaged() int { return m.damaged }

// Lookup answers for the instruction at an absolute address of the process.
func (m *PerfMap) Lookup(a addr.Abs) (r Result) {
	defer containMiss(&r)
	i, ok := m.ranges.find(uint64(a))
	if !ok {
		return Miss(reason.NoSymbol)
	}
	linkage := stringAt(m.names, m.ranges.values[i])
	return Result{Frames: []Frame{{Func: Demangle(linkage), Linkage: linkage}}, Source: SourcePerfMap}
}
