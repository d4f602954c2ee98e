package fromtext

import (
	"errors"
	"io"
	"strconv"
	"strings"

	pprof "github.com/google/pprof/profile"

	"hallmark/reason"
)

// readFolded reads folded stacks, as stackcollapse-perf.pl and many others write them
// (https://github.com/brendangregg/FlameGraph). Of the marks behind names it knows those of the
// kernel, of code that was inlined, and of generated code: "_[k]", "_[i]" and "_[j]". Frames that
// package folded writes for code without a symbol, "[binary+0xoffset]", are such code.
//
// Whether a stack begins with the name of a process is nowhere said: it stays a frame.
//
// Two counts in each line are a comparison, as difffolded.pl and inferno-diff-folded write it. Before the last
// line nobody knows that: the first count can be the end of a name.
func readFolded(t *text, m *maker) (*pprof.Profile, error) {
	pair := newMaker(m.options) // of two counts, as long as all lines have them
	pair.cost = m.cost
	pair.p.SampleType = append(pair.p.SampleType, pair.p.SampleType[0])
	var two error // the first line, if it has two counts
	for {
		line, err := t.next()
		switch {
		case err == io.EOF && two == nil:
			return m.p, nil
		case err == io.EOF && m.options.Base == nil:
			return nil, two
		case err == io.EOF:
			*m.options.Base = pair.only(0)
			return pair.only(1), nil
		case err != nil:
			return nil, err
		}
		if line == "" || line[0] == '#' {
			continue
		}
		stack, count, err := parseFolded(line)
		if err != nil {
			return nil, t.failed("%v", err)
		}
		if pair != nil {
			before, base, err := parseFolded(stack)
			if err != nil {
				pair, two = nil, nil
			} else if err := pair.folded(before, base, count); err != nil {
				return nil, err
			} else if two == nil {
				two = t.failed("two counts, as difffolded.pl and inferno-diff-folded write them for a comparison: 'hallmark report' and 'hallmark view' show it")
			}
		}
		if err := m.folded(stack, count); err != nil {
			return nil, err
		}
	}
}

// folded counts a stack.
func (m *maker) folded(stack string, counts ...int64) error {
	m.frames = m.frames[:0]
	for rest := stack; rest != ""; {
		var name string
		if last := strings.LastIndexByte(rest, ';'); last >= 0 {
			rest, name = rest[:last], rest[last+1:]
		} else {
			rest, name = "", rest
		}
		if name != "" && name != noStack {
			m.frames = append(m.frames, foldedFrame(name))
		}
	}
	for i := range m.frames { // of what is inlined: in the file of what it is inlined into
		if m.frames[i].inlined && i+1 == len(m.frames) {
			m.frames[i].inlined = false
		}
	}
	locations, err := m.stack(m.frames)
	if err == nil {
		_, err = m.count(locations, counts, noLabels)
	}
	return err
}

// only returns a copy of the profile with one of its values, and the samples that have some of it.
func (m *maker) only(kind int) *pprof.Profile {
	one := &pprof.Profile{
		SampleType: m.p.SampleType[kind : kind+1], PeriodType: m.p.PeriodType,
		Mapping: m.p.Mapping, Location: m.p.Location, Function: m.p.Function,
	}
	for _, s := range m.p.Sample {
		if s.Value[kind] != 0 {
			one.Sample = append(one.Sample, &pprof.Sample{Location: s.Location, Value: s.Value[kind : kind+1]})
		}
	}
	return one.Copy()
}

// noStack is the frame that package folded writes where there is none.
const noStack = "[no stack]"

// parseFolded takes a line apart.
func parseFolded(line string) (stack string, count int64, err error) {
	line = strings.TrimRight(line, " \t")
	at := strings.LastIndexAny(line, " \t")
	if at < 0 {
		return "", 0, errors.New("there is no count behind the stack")
	}
	stack, number := strings.TrimRight(line[:at], " \t"), line[at+1:]
	count, err = strconv.ParseInt(number, 10, 64)
	if err != nil {
		// Some count in floating point.
		if whole, ok := strings.CutSuffix(strings.TrimRight(number, "0"), "."); ok {
			count, err = strconv.ParseInt(whole, 10, 64)
		}
	}
	if err != nil && strings.Trim(number, "0123456789.") == "" {
		return stack, 0, errors.New("the count " + strconv.Quote(number) + " is no whole number of 64 bits")
	}
	if err != nil {
		return "", 0, errors.New("there is no count behind the stack: " + strconv.Quote(number) + " is no number")
	}
	return stack, count, nil
}

func foldedFrame(name string) frame {
	if text, ok := strings.CutSuffix(name, "_[k]"); ok {
		f := foldedFrame(text)
		if f.file == "" {
			f.file = "[kernel]"
		} else if !strings.HasPrefix(f.file, "[") {
			f.file = "[" + f.file + "]"
		}
		return f
	}
	if text, ok := strings.CutSuffix(name, "_[i]"); ok {
		return frame{name: text, inlined: true}
	}
	if text, ok := strings.CutSuffix(name, "_[j]"); ok {
		return frame{name: text, file: generated}
	}
	if name == "[unknown]" {
		return frame{name: name, unnamed: true}
	}
	if file, ok := strings.CutSuffix(name, " [unknown]"); ok {
		return frame{name: name, file: file, unnamed: true}
	}
	inside, ok := strings.CutPrefix(name, "[")
	if code, _, closed := strings.Cut(inside, "]"); ok && closed { // "[file-gone] /bin/x"
		if why, known := reason.Parse(code); known && why != reason.None {
			return frame{file: name}
		}
	}
	if !ok || !strings.HasSuffix(inside, "]") {
		return frame{name: name}
	}
	inside = strings.TrimSuffix(inside, "]")
	if plus := strings.LastIndex(inside, "+0x"); plus > 0 {
		if offset, err := strconv.ParseUint(inside[plus+3:], 16, 64); err == nil {
			return frame{file: inside[:plus], address: offset}
		}
	}
	if text, ok := strings.CutPrefix(inside, "0x"); ok {
		if address, err := strconv.ParseUint(text, 16, 64); err == nil {
			return frame{address: address}
		}
	}
	return frame{name: name}
}
