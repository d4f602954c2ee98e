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
func readFolded(t *text, m *maker) (*pprof.Profile, error) {
	var frames []frame
	stacks := 0
	var two error // the first line, if all have two counts
	for {
		line, err := t.next()
		if err == io.EOF {
			return m.p, two
		}
		if err != nil {
			return nil, err
		}
		if line == "" || line[0] == '#' {
			continue
		}
		stack, count, err := parseFolded(line)
		if err != nil {
			return nil, t.failed("%v", err)
		}
		_, _, notTwo := parseFolded(stack)
		switch stacks++; {
		case notTwo != nil:
			two = nil
		case stacks == 1:
			two = t.failed("two counts, as difffolded.pl and inferno-diff-folded write them for a comparison: give --diff the two files that they were made of")
		}
		frames = frames[:0]
		for rest := stack; rest != ""; {
			var name string
			if last := strings.LastIndexByte(rest, ';'); last >= 0 {
				rest, name = rest[:last], rest[last+1:]
			} else {
				rest, name = "", rest
			}
			if name != "" && name != noStack {
				frames = append(frames, foldedFrame(name))
			}
		}
		for i := range frames { // of what is inlined: in the file of what it is inlined into
			if frames[i].inlined && i+1 == len(frames) {
				frames[i].inlined = false
			}
		}
		locations, err := m.stack(frames)
		if err == nil {
			_, err = m.count(locations, []int64{count}, noLabels)
		}
		if err != nil {
			return nil, err
		}
	}
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
