package fromtext

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	pprof "github.com/google/pprof/profile"

	"hallmark/profile"
)

var noLabels profile.Labels

// sampleHeader is the first line of a sample:
//
//	Web Content 123/456 [001] 22977.565696:   10101010 cycles:u:  ffffffff81775b9a elf_load+0x28a ([kernel.kallsyms])
type sampleHeader struct {
	comm     string
	pid, tid int   // pid is 0 where there is one number, which is the thread's
	time     int64 // nanoseconds; -1 for none
	period   int64 // 0 for none
	event    string
	rest     string // behind the event: the only frame, or what a tracepoint says
}

// parseHeader takes the first line of a sample apart.
func parseHeader(line string) (h sampleHeader, ok bool) {
	if line == "" || line[0] == '\t' {
		return h, false
	}
	words, rest, ok := aroundTime(line, &h)
	if !ok {
		return h, false
	}
	rest = strings.TrimLeft(rest, " ")
	if period, more, ok := strings.Cut(rest, " "); ok {
		if n, err := strconv.ParseInt(period, 10, 64); err == nil && n >= 0 {
			h.period, rest = n, strings.TrimLeft(more, " ")
		}
	}
	event, more, _ := strings.Cut(rest, " ")
	if h.event, ok = strings.CutSuffix(event, ":"); !ok || h.event == "" {
		return h, false
	}
	h.rest = strings.TrimSpace(more)
	// The text before the time is the command, which may have blanks, the process and the thread or
	// one of them, perhaps the processor and flags.
	for range 3 {
		command, last := cutLastWord(words)
		if command == "" && last == "" {
			return h, false
		}
		first, thread, both := strings.Cut(last, "/")
		n, err := strconv.ParseUint(first, 10, 31)
		if err != nil && first != "-1" {
			words = command // "[001]", "d..1."
			continue
		}
		h.comm, h.tid = command, int(n)
		if both {
			t, err := strconv.ParseUint(thread, 10, 31)
			if err != nil && thread != "-1" {
				return h, false
			}
			h.pid, h.tid = int(n), int(t)
		}
		return h, h.comm != ""
	}
	return h, false
}

// aroundTime returns what is before the time of a sample and what is behind it.
func aroundTime(line string, h *sampleHeader) (before, behind string, ok bool) {
	for from := 0; ; {
		colon := strings.Index(line[from:], ": ")
		if colon < 0 {
			return "", "", false
		}
		end := from + colon
		from = end + 1
		word := line[:end]
		at := strings.LastIndexByte(word, ' ') + 1
		whole, part, dot := strings.Cut(word[at:], ".")
		if !dot || !isNumber(whole) || !isNumber(part) || len(part) > 9 || at == 0 {
			continue
		}
		seconds, err := strconv.ParseInt(whole, 10, 64)
		if err != nil || seconds > math.MaxInt64/1_000_000_000-1 {
			continue
		}
		nanos, _ := strconv.ParseInt((part + "000000000")[:9], 10, 64)
		h.time = seconds*1_000_000_000 + nanos
		return word[:at], line[end+1:], true
	}
}

// cutLastWord takes the last word off a line of words.
func cutLastWord(s string) (before, word string) {
	s = strings.TrimRight(s, " ")
	at := strings.LastIndexByte(s, ' ') + 1
	return strings.TrimSpace(s[:at]), s[at:]
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// parseFrame takes a frame apart: the address, the function with or without an offset, and the
// file, which perf prints in parentheses.
func parseFrame(line string) (f frame, ok bool) {
	line = strings.TrimSpace(line)
	number, rest, ok := strings.Cut(line, " ")
	if !ok {
		return f, false
	}
	address, err := strconv.ParseUint(number, 16, 64)
	if err != nil {
		return f, false
	}
	f.address = address
	rest = strings.TrimSpace(rest)
	if name, ok := strings.CutSuffix(rest, " (inlined)"); ok {
		f.name, f.inlined = name, true
		return f, true
	}
	f.name = rest
	if strings.HasSuffix(rest, ")") {
		if open := openingBefore(rest); open >= 0 {
			f.name, f.file = strings.TrimSpace(rest[:open]), fileOf(rest[open+1:len(rest)-1])
		}
	}
	if plus := strings.LastIndex(f.name, "+0x"); plus > 0 {
		if _, err := strconv.ParseUint(f.name[plus+3:], 16, 64); err == nil {
			f.name = f.name[:plus]
		}
	}
	if f.name == "[unknown]" {
		f.name = ""
	}
	return f, true
}

// openingBefore returns where the last parenthesis opens that is not within others.
func openingBefore(s string) int {
	depth := 0
	for i := len(s) - 1; i >= 0; i-- {
		switch s[i] {
		case ')':
			depth++
		case '(':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// fileOf returns the Mapping.File of what perf calls a file.
func fileOf(dso string) string {
	if plus := strings.LastIndex(dso, "+0x"); plus > 0 { // -F +dsoff
		if _, err := strconv.ParseUint(dso[plus+3:], 16, 64); err == nil {
			dso = dso[:plus]
		}
	}
	base := dso[strings.LastIndexByte(dso, '/')+1:]
	switch {
	case dso == "[unknown]":
		return ""
	case strings.HasPrefix(dso, "[kernel.kallsyms]"), dso == "[guest.kernel.kallsyms]":
		return "[kernel]"
	case dso == "//anon", dso == "[anon]", dso == "[JIT]", strings.HasPrefix(base, "perf-") && strings.HasSuffix(base, ".map"),
		strings.HasPrefix(base, "jitted-") && strings.HasSuffix(base, ".so"):
		return generated
	}
	return dso
}

// script reads what perf script prints.
type script struct {
	*text
	*maker
	event  string
	counts map[string]int64
	order  []string
	names  map[int]string // of processes, by number
	frames []frame
}

func readScript(t *text, m *maker, o Options) (*pprof.Profile, []Event, error) {
	s := &script{text: t, maker: m, event: o.Event, counts: map[string]int64{}, names: map[int]string{}}
	if err := s.read(); err != nil {
		return nil, nil, err
	}
	var events []Event
	for _, name := range s.order {
		events = append(events, Event{name, s.counts[name]})
	}
	if s.counts[s.event] == 0 {
		return nil, events, fmt.Errorf("%w %s: there are %s", ErrNoEvent, s.event, cmp.Or(strings.Join(s.order, ", "), "none"))
	}
	for sample, times := range m.times {
		profile.AddTimes(sample, times)
	}
	s.setTypes()
	return m.p, events, nil
}

// setTypes says what the values are.
func (s *script) setTypes() {
	t := &pprof.ValueType{Type: s.event, Unit: "count"}
	if name, _, _ := strings.Cut(s.event, ":"); name == "cpu-clock" || name == "task-clock" {
		t = &pprof.ValueType{Type: "cpu", Unit: "nanoseconds"}
	}
	periods := false
	for _, sample := range s.p.Sample {
		periods = periods || sample.Value[1] != 0
	}
	if !periods { // -F without period
		for _, sample := range s.p.Sample {
			sample.Value = sample.Value[:1]
		}
		return
	}
	s.p.SampleType = append(s.p.SampleType, t)
	s.p.PeriodType, s.p.DefaultSampleType = t, t.Type
}

// maxFrames is the deepest stack.
const maxFrames = 1 << 16

func (s *script) read() error {
	var h sampleHeader
	open, begun := false, false
	end := func() error {
		if !open {
			return nil
		}
		open = false
		return s.sample(&h)
	}
	for {
		line, err := s.next()
		if err == io.EOF {
			return end()
		}
		if err != nil {
			return err
		}
		next, isHeader := parseHeader(line)
		f, isFrame := frame{}, false
		if !isHeader && line != "" && (line[0] == '\t' || line[0] == ' ') {
			f, isFrame = parseFrame(line)
		}
		switch {
		case strings.TrimSpace(line) == "":
			err = end()
		case line[0] == '#':
		case isHeader:
			begun = true
			if err = end(); err != nil {
				return err
			}
			if strings.HasPrefix(next.event, "PERF_RECORD_") {
				s.note(&next)
				continue
			}
			h, open, s.frames = next, true, s.frames[:0]
			if f, ok := parseFrame(h.rest); ok && strings.HasSuffix(h.rest, ")") {
				s.frames = append(s.frames, f)
			}
		case isFrame && open:
			if len(s.frames) == maxFrames {
				return s.failed("the stack has more than %d frames", maxFrames)
			}
			s.frames = append(s.frames, f)
		case line[0] == '\t' || line[0] == ' ' || strings.Contains(line, "PERF_RECORD_"):
			// A line of source, or another thing that -F adds.
		case !begun || strings.HasPrefix(line, "Warning:"):
		default:
			return s.failed("this is neither the first line of a sample nor a frame: %.80q", line)
		}
		if err != nil {
			return err
		}
	}
}

// maxNames is how many processes, and events, are distinguished.
const maxNames = 1 << 20

// note remembers the name of a process.
func (s *script) note(h *sampleHeader) {
	if h.pid != 0 && h.pid == h.tid && len(s.names) < maxNames {
		s.names[h.pid] = h.comm
	}
}

// sample counts a sample.
func (s *script) sample(h *sampleHeader) error {
	s.note(h)
	if s.counts[h.event]++; s.counts[h.event] == 1 {
		s.order = append(s.order, h.event)
		if err := s.take(100 + len(h.event)); err != nil {
			return err
		}
	}
	if s.event == "" {
		s.event = h.event
	}
	if h.event != s.event {
		return nil
	}
	for i := range s.frames { // perf prints no file for what is inlined
		if s.frames[i].inlined && i+1 == len(s.frames) {
			s.frames[i].inlined = false
		}
	}
	stack, err := s.stack(s.frames)
	if err != nil {
		return err
	}
	labels := profile.Labels{PID: h.pid, TID: h.tid, Thread: h.comm, Process: cmp.Or(s.names[h.pid], h.comm)}
	sample, err := s.count(stack, []int64{1, h.period}, labels)
	if err == nil && s.options.Times {
		s.times[sample] = append(s.times[sample], h.time)
		err = s.take(16)
	}
	return err
}
