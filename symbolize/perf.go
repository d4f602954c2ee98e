package symbolize

import (
	"strconv"
	"strings"

	"hallmark/reason"
	"hallmark/symbol"
)

// perf knows the output of perf script, version 4 to 6 and what copies it:
//
//	prog 10949 22977.565696:   10101010 cpu-clock:
//		            1137 spin+0xe (/bin/prog)
//		           2724a [unknown] (/usr/lib/x86_64-linux-gnu/libc.so.6)
//		    7f2c2a4f024a [unknown] (/usr/lib/x86_64-linux-gnu/libc.so.6+0x2724a)
//
// The number before the function is an address of the process; perf since 5.12 prints
// the offset in the file there, of frames of a chain (sample__fprintf_callchain). So
// does -F +dsoff behind the file. Which of them it is follows from the mappings of
// the process, which --show-mmap-events prints with their build IDs; lines of perf
// buildid-list may come first instead.
//
// All frames but the innermost, of the kernel and of user space, are return addresses.
type perf struct {
	*resolver
	replace bool
	sources bool // print source lines
	events  *perfEvents

	process  int  // of the sample, -1 if not known
	exact    bool // the next frame of user space is no return address
	expanded bool // perf itself printed what is inlined in the next frame
}

func newPerf(r *resolver, f *Filter) *perf {
	return &perf{resolver: r, replace: f.Replace, sources: f.Lines, events: newPerfEvents(), process: -1, exact: true}
}

func (p *perf) rewrite(line string) ([]string, bool) {
	if strings.HasPrefix(line, "\t") {
		return p.rewriteFrame(line)
	}
	if strings.Contains(line, "PERF_RECORD_") {
		p.events.read(line)
		return []string{line}, true
	}
	if p.readHeader(line) {
		return p.rewriteSample(line)
	}
	if !strings.HasPrefix(line, "  ") { // as source lines do, of frames in a chain
		p.process, p.exact, p.expanded = -1, true, false
	}
	return nil, false
}

// readHeader reads the first line of a sample: the command, which may have blanks,
// process and thread or only one of them, perhaps the processor, and the time.
func (p *perf) readHeader(line string) bool {
	words, ok := beforeTime(line)
	if !ok {
		p.events.readIdentity(line)
		return false
	}
	command, last := cutLastWord(words)
	if strings.HasPrefix(last, "[") {
		command, last = cutLastWord(command)
	}
	first, thread, both := strings.Cut(last, "/")
	number, err := strconv.ParseUint(first, 10, 31)
	if err != nil || command == "" || both && !isNumber(thread) {
		return false
	}
	p.process = int(number)
	if !both {
		p.process = p.events.processOf(int(number))
	}
	p.exact, p.expanded = true, false
	return true
}

// beforeTime returns what is before "12.345678: " in a line.
func beforeTime(line string) (string, bool) {
	for end := 0; ; {
		colon := strings.Index(line[end:], ": ")
		if colon < 0 {
			return "", false
		}
		end += colon
		before := strings.TrimRight(line[:end], digits)
		whole := strings.TrimRight(strings.TrimSuffix(before, "."), digits)
		if len(before) < end && strings.HasSuffix(before, ".") && len(whole)+1 < len(before) && strings.HasSuffix(whole, " ") {
			return whole, true
		}
		end += len(": ")
	}
}

// cutLastWord takes the last word off a line of words.
func cutLastWord(s string) (before, word string) {
	s = strings.TrimRight(s, " ")
	at := strings.LastIndexByte(s, ' ') + 1
	return strings.TrimSpace(s[:at]), s[at:]
}

const digits = "0123456789"

func isNumber(s string) bool { return s != "" && strings.Trim(s, digits) == "" }

// perfFrame is a frame in a line.
type perfFrame struct {
	head   string // before the function
	ip     uint64
	name   string // "" if perf does not know it
	tail   string // " (/bin/prog)" and what follows
	module string
	offset uint64 // of -F +dsoff
	has    bool   // offset is there
}

// parsePerf takes apart what follows the number of a frame.
func parsePerf(f *perfFrame, rest string) bool {
	if !strings.HasPrefix(rest, " ") || !strings.HasSuffix(rest, ")") {
		return false
	}
	opening := openingBefore(rest)
	if opening < 2 {
		return false
	}
	f.name, f.tail = rest[1:max(opening-1, 1)], rest[opening-1:]
	f.module = rest[opening+1 : len(rest)-1]
	if plus := strings.LastIndex(f.module, "+0x"); plus >= 0 {
		offset, left, ok := cutHex(f.module[plus+3:])
		if ok && left == "" {
			f.module, f.offset, f.has = f.module[:plus], offset, true
		}
	}
	f.module = strings.TrimSuffix(f.module, " (deleted)")
	if f.name == "[unknown]" {
		f.name = ""
	}
	return true
}

func (p *perf) rewriteFrame(line string) ([]string, bool) {
	number := strings.TrimLeft(line, "\t ")
	ip, rest, ok := cutHex(number)
	if !ok {
		return nil, false
	}
	f := &perfFrame{head: line[:len(line)-len(rest)+min(1, len(rest))], ip: ip}
	if !parsePerf(f, rest) {
		return nil, false
	}
	if f.module == "inlined" {
		p.expanded = true
		return []string{line}, true
	}
	expanded := p.expanded
	p.expanded = false
	if ip >= kernelSpace {
		return []string{line}, true
	}
	caller := !p.exact
	p.exact = isSignalReturn(withoutOffset(f.name), nil)
	if expanded && !p.replace || !strings.HasPrefix(f.module, "/") {
		return []string{line}, true
	}
	at, why := p.locate(f)
	at.caller = caller
	frames := p.answer(f, at, why)
	p.exact = p.exact || isSignalReturn("", frames)
	if len(frames) == 0 {
		return []string{line}, true
	}
	return p.lines(f, frames), true
}

// kernelSpace is the lowest address of the kernel.
const kernelSpace = 1 << 63

// rewriteSample rewrites the line of a sample without a chain of calls, which has the
// frame at its end. Its number is an address.
func (p *perf) rewriteSample(line string) ([]string, bool) {
	opening := openingBefore(line)
	colon := strings.LastIndex(line[:max(opening, 0)], ": ")
	if colon < 0 {
		return nil, false
	}
	number := strings.TrimLeft(line[colon+1:], " ")
	ip, rest, ok := cutHex(number)
	if !ok {
		return nil, false
	}
	f := &perfFrame{head: line[:len(line)-len(rest)+min(1, len(rest))], ip: ip}
	if !parsePerf(f, rest) || !strings.HasPrefix(f.module, "/") {
		return nil, false
	}
	at, why := p.events.absolute(p.process, f)
	frames := p.answer(f, at, why)
	if len(frames) == 0 {
		return []string{line}, true
	}
	return p.lines(f, frames[len(frames)-1:]), true // perf has the outermost function there
}

// answer returns the functions at a frame, or nil if its line stays as it is.
func (p *perf) answer(f *perfFrame, at place, why reason.Reason) []symbol.Frame {
	switch {
	case why != reason.None && f.name != "":
		p.tally.named++
		return nil
	case why != reason.None:
		p.tally.add(f.module, why)
		return nil
	case f.name == "":
		return p.lookup(at).Frames
	}
	r, keep := p.check(at, withoutOffset(f.name), p.replace)
	if keep {
		return nil
	}
	return r.Frames
}

// lines writes the functions at a frame, as perf does it: its source lines have no
// columns.
func (p *perf) lines(f *perfFrame, frames []symbol.Frame) []string {
	var lines []string
	for i := range frames {
		fn := &frames[i]
		switch {
		case fn.Inlined:
			lines = append(lines, f.head+clean(fn.Func)+" (inlined)")
		case f.name != "" && agrees(fn, withoutOffset(f.name)):
			lines = append(lines, f.head+f.name+f.tail)
		default:
			lines = append(lines, f.head+clean(fn.Func)+f.tail)
		}
		if at := sourceLine(&symbol.Frame{File: fn.File, Line: fn.Line}); at != "" && p.sources {
			lines = append(lines, "  "+at)
		}
	}
	return lines
}

// withoutOffset returns the function in what -F +symoff prints, "spin+0xe".
func withoutOffset(name string) string {
	if plus := strings.LastIndex(name, "+0x"); plus > 0 {
		return name[:plus]
	}
	return name
}

// mostOffset is more than any offset in a file, and less than the addresses of
// libraries and of programs that do not choose where they are.
const mostOffset = 1 << 40

// locate returns where in its file a frame of a chain is.
func (p *perf) locate(f *perfFrame) (place, reason.Reason) {
	if f.ip >= mostOffset || f.has {
		return p.events.absolute(p.process, f)
	}
	if m, ok := p.events.mappingOf(p.process, f); ok {
		return place{module: f.module, id: m.id, at: f.ip, offset: true}, reason.None
	}
	if p.events.knows(p.process, f.module) {
		return p.events.absolute(p.process, f)
	}
	at := place{module: f.module, id: p.events.identity(f.module), at: f.ip, offset: true}
	if p.fixed(at) {
		return at, reason.NoOffset
	}
	return at, reason.None
}

// fixed reports whether a file chooses its addresses, low ones that could be offsets as
// well.
func (p *perf) fixed(at place) bool {
	start, ok := p.source(at).startOfFile()
	return ok && start != 0
}
