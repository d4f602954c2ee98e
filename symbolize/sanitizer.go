package symbolize

import (
	"strconv"
	"strings"

	"hallmark/symbol"
)

// sanitizer knows the stacks of compiler-rt and libsanitizer, whose printers are
// sanitizer_stacktrace_printer.cpp and tsan_report.cpp, and those of LLVM's own tools
// (Signals.inc):
//
//	#1 0x55653b3381e2  (/bin/prog+0x11e2) (BuildId: ec9b…)
//	#1 0x55653b3381e2 in main (/bin/prog+0x11e2) (BuildId: ec9b…)
//	#1 <null> <null> (prog+0x122e) (BuildId: 2959…)
//	#1 0x000055653b3381e2 main (/bin/prog+0x11e2)
//
// Offsets are virtual addresses: they count from where the dynamic linker put address
// 0 of the file. The sanitizers print the last byte of a call, LLVM's tools the return
// address. An answer is written as they do it themselves, where inlined functions are
// frames with numbers of their own and those behind them count on.
type sanitizer struct {
	*resolver
	replace     bool
	last        int  // number of the frame in the line before, as in the text; -1 if there was none
	more        int  // frames that were added to the stack
	interrupted bool // the next frame did not call anything
}

func (s *sanitizer) rewrite(line string) ([]string, bool) {
	if strings.HasPrefix(line, "SUMMARY: ") {
		return s.rewriteSummary(line)
	}
	head, number, rest, ok := cutFrameNumber(line)
	var f *sanitized
	if ok {
		f, ok = parseSanitized(rest)
	}
	if !ok {
		s.last, s.interrupted = -1, false
		return nil, false
	}
	if number == 0 || number != s.last+1 {
		s.more, s.interrupted = 0, false
	}
	s.last = number
	f.head, f.number = head, number+s.more
	f.place.caller = f.raw && !s.interrupted
	frames := s.answer(f)
	s.interrupted = isSignalReturn(f.name, frames)
	if len(frames) > 0 {
		s.more += len(frames) - 1
		return f.lines(frames), true
	}
	if s.more == 0 {
		return []string{line}, true
	}
	return []string{head + "#" + strconv.Itoa(f.number) + rest}, true
}

// answer returns the functions at a frame, or nil if it stays as it is.
func (s *sanitizer) answer(f *sanitized) []symbol.Frame {
	switch {
	case f.module == "":
		return nil
	case f.name == "":
		return s.lookup(f.place).Frames
	}
	r, keep := s.check(f.place, f.name, s.replace)
	if keep {
		return nil
	}
	return r.Frames
}

// sanitized is the line of a frame.
type sanitized struct {
	head    string // what is before the number
	number  int
	address string // "0x55653b3381e2" and the like, or "" where it is left out
	in      string // the word between address and function
	reference
	place place
	name  string // of the function, "" if not known
	raw   bool   // the address is the one on the stack
}

// parseSanitized takes apart what follows the number of a frame. One that has its
// source line has no module any more.
func parseSanitized(rest string) (*sanitized, bool) {
	f := new(sanitized)
	ref, found := cutReference(rest)
	if digits, ok := strings.CutPrefix(rest, " 0x"); ok {
		_, after, ok := cutHex(digits)
		if !ok || !strings.HasPrefix(after, " ") {
			return nil, false
		}
		f.address = rest[1 : len(rest)-len(after)]
		f.in = "in "
	}
	if !found {
		return f, f.address != ""
	}
	f.reference = ref
	f.place = place{module: ref.module, id: ref.id, at: ref.offset}
	between, ok := strings.CutPrefix(ref.before, " "+f.address)
	if !ok {
		return f, false
	}
	return f, f.parseName(between)
}

// rawAddress is the length of an address with all its zeros: LLVM's tools print it.
const rawAddress = len("0x000055653b3381e2")

// parseName reads what is between address and module.
func (f *sanitized) parseName(between string) bool {
	name := strings.TrimSpace(between)
	switch {
	case f.address == "":
		name, noSource := strings.CutSuffix(name, "<null>")
		if !noSource {
			f.module = "" // it has its source line
		}
		f.name = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(name), "<null>"))
	case len(f.address) == rawAddress:
		f.in, f.name, f.raw = "", name, true
	default:
		f.name = strings.TrimPrefix(name, "in ")
		return name == "" || f.name != name
	}
	return true
}

// lines writes the functions at the frame.
func (f *sanitized) lines(frames []symbol.Frame) []string {
	var lines []string
	for i := range frames {
		fn := &frames[i]
		line := f.head + "#" + strconv.Itoa(f.number+i) + " "
		at := sourceLine(fn)
		switch {
		case f.address == "" && at == "":
			line += clean(fn.Func) + " <null> " + f.text
		case f.address == "":
			line += clean(fn.Func) + " " + at + " " + f.text
		case at == "":
			line += f.address + " " + f.in + clean(fn.Func) + " " + f.text
		default:
			line += f.address + " " + f.in + clean(fn.Func) + " " + at
		}
		lines = append(lines, line+f.after)
	}
	return lines
}

// rewriteSummary rewrites the last line of a report:
//
//	SUMMARY: AddressSanitizer: heap-buffer-overflow (/bin/prog+0x11cf)
//	SUMMARY: AddressSanitizer: heap-buffer-overflow prog.c:4:9 in inner
func (s *sanitizer) rewriteSummary(line string) ([]string, bool) {
	ref, ok := cutReference(line)
	if !ok || !strings.Contains(ref.before, "Sanitizer: ") {
		return nil, false
	}
	r := s.lookup(place{module: ref.module, id: ref.id, at: ref.offset})
	if len(r.Frames) == 0 {
		return []string{line}, true
	}
	at := sourceLine(&r.Frames[0])
	if at == "" {
		at = ref.text
	}
	return []string{ref.before + at + " in " + clean(r.Frames[0].Func) + ref.after}, true
}
