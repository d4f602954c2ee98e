// Package fromtext reads profiles that other programs wrote as text: folded stacks, and what
// 'perf script' prints.
//
// Neither has identities of files, so that no frame has one, and neither has file offsets that
// can be relied on. All that is known are names, and of perf's text the files that they are from.
package fromtext

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	pprof "github.com/google/pprof/profile"

	"hallmark/profile"
	"hallmark/reason"
)

// Format is a kind of text.
type Format int

// Kinds of text.
const (
	None   Format = iota
	Folded        // "main;walk;step 42": a stack a line, the outermost frame first, and its count
	Script        // what 'perf script' prints: a line for each sample, and below it one for each frame
)

// String returns the name of the format.
func (f Format) String() string {
	return [...]string{"no profile as text", "folded stacks", "text of perf script"}[f]
}

// HeadSize is how many bytes Detect looks at.
const HeadSize = 8192

// Detect returns the format of what begins with some bytes.
func Detect(head []byte) Format {
	if len(head) > HeadSize {
		head = head[:HeadSize]
	}
	text := strings.TrimPrefix(string(head), byteOrderMark)
	// The last line may be cut.
	if end := strings.LastIndexByte(text, '\n'); end >= 0 && len(head) == HeadSize {
		text = text[:end]
	}
	if strings.IndexByte(text, 0) >= 0 {
		return None
	}
	folded, deep, broken := 0, 0, 0
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" || line[0] == '#' {
			continue
		}
		if _, ok := parseHeader(line); ok && deep == 0 {
			return Script // warnings and records of other kinds may come first
		}
		stack, _, err := parseFolded(line)
		switch {
		case stack == "" || line[0] == '\t' || line[0] == ' ':
			broken++
		case strings.Contains(stack, ";"):
			deep++
		case err != nil:
			broken++
		default:
			folded++
		}
	}
	if deep > broken || folded > 0 && broken == 0 {
		return Folded
	}
	return None
}

// byteOrderMark is what some programs put before text in UTF-8.
const byteOrderMark = "\uFEFF"

// LacksSamples reports whether what begins with some bytes is perf's text whose samples do not say
// enough: it has frames, and no line before them that Read takes for a sample.
func LacksSamples(head []byte) bool {
	if Detect(head) != None {
		return false
	}
	for line := range strings.Lines(string(head[:min(len(head), HeadSize)])) {
		// perf prints an address after a tab in 16 columns.
		number, _, ok := strings.Cut(strings.TrimLeft(line, "\t "), " ")
		if ok && line[0] == '\t' && strings.Index(line, number+" ")+len(number) == 17 {
			_, err := strconv.ParseUint(number, 16, 64)
			return err == nil
		}
	}
	return false
}

// Options say what is read.
type Options struct {
	// Event is the event of perf's text that is counted; "" is the first one that is there.
	Event string
	// Times keeps when perf's samples were taken (profile.Times), of a clock of its own.
	Times bool
	// MaxSize is the most bytes that are read, 0 for profile.DefaultMaxSize. Memory is the most
	// that the profile may take, 0 for any.
	MaxSize, Memory int64
	// Base takes what folded stacks with two counts in each line are compared with, which is what the first counts
	// are of; it stays nil for others. Without it such text is refused.
	Base **pprof.Profile
}

// Event is an event of perf's text, and how many samples it has.
type Event struct {
	Name    string
	Samples int64
}

// ErrNoEvent is the error for text of perf that has no samples of the event. It arrives wrapped.
var ErrNoEvent = errors.New("no samples of the event")

// ErrFormat is the error for text with a line that is neither. It arrives wrapped.
var ErrFormat = errors.New("damaged")

// Read reads a profile, and returns the events of perf's text. Errors name the line and its
// offset.
func Read(r io.Reader, f Format, o Options) (*pprof.Profile, []Event, error) {
	t := &text{lines: bufio.NewReaderSize(r, 1<<16), most: cmp.Or(o.MaxSize, profile.DefaultMaxSize)}
	m := newMaker(o)
	switch f {
	case Folded:
		p, err := readFolded(t, m)
		return p, nil, err
	case Script:
		return readScript(t, m, o)
	}
	return nil, nil, fmt.Errorf("%w: %v", ErrFormat, f)
}

// text is lines, and where they are.
type text struct {
	lines  *bufio.Reader
	most   int64
	read   int64 // behind the line at hand
	at     int64 // of the line at hand
	number int
	line   []byte
}

// maxLine is the longest line: a stack of 64 Ki frames has room in it.
const maxLine = 8 << 20

// next returns the next line without its end, and io.EOF after the last one.
func (t *text) next() (string, error) {
	t.line = t.line[:0]
	t.at = t.read
	t.number++
	for {
		part, err := t.lines.ReadSlice('\n')
		t.line = append(t.line, part...)
		t.read += int64(len(part))
		switch {
		case t.read > t.most:
			return "", fmt.Errorf("%w: more than %d bytes", profile.ErrTooLarge, t.most)
		case len(t.line) > maxLine:
			return "", t.failed("the line has more than %d bytes", maxLine)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == io.EOF && len(t.line) > 0:
		case err == io.EOF:
			return "", io.EOF
		case err != nil:
			return "", fmt.Errorf("line %d, offset %d: %w", t.number, t.at, err)
		}
		line := string(bytes.TrimRight(t.line, "\r\n"))
		if t.at == 0 {
			line = strings.TrimPrefix(line, byteOrderMark)
		}
		return line, nil
	}
}

// failed returns the error of what is wrong with the line at hand.
func (t *text) failed(format string, args ...any) error {
	return fmt.Errorf("%w: line %d, offset %d: %s", ErrFormat, t.number, t.at, fmt.Sprintf(format, args...))
}

// frame is what text says of a frame.
type frame struct {
	file    string // Mapping.File, "" for none
	name    string // of the function, "" for none
	address uint64
	unnamed bool // name is not that of a function: others have no name either
	inlined bool // into the frame that follows, which is outside it
}

// maker puts stacks together.
type maker struct {
	p         *pprof.Profile
	options   Options
	mappings  map[string]*pprof.Mapping
	functions map[string]*pprof.Function
	locations map[string]*pprof.Location
	samples   map[string]*pprof.Sample
	times     map[*pprof.Sample][]int64
	key       []byte
	frames    []frame // of the stack at hand
	cost      *int64  // of it and of others that are made at the same time
}

func newMaker(o Options) *maker {
	o.Memory = cmp.Or(o.Memory, math.MaxInt64)
	return &maker{
		p: &pprof.Profile{
			SampleType: []*pprof.ValueType{{Type: "samples", Unit: "count"}},
			PeriodType: &pprof.ValueType{},
		},
		options: o, cost: new(int64), mappings: map[string]*pprof.Mapping{}, functions: map[string]*pprof.Function{},
		locations: map[string]*pprof.Location{}, samples: map[string]*pprof.Sample{}, times: map[*pprof.Sample][]int64{},
	}
}

// Bytes of memory, about, of what there are many of.
const (
	locationCost = 400
	mappingCost  = 250
	sampleCost   = 500
	labelsCost   = 450 // of text or of numbers: each kind has a map
	frameCost    = 16
)

// take counts memory.
func (m *maker) take(bytes int) error {
	if *m.cost += int64(bytes); *m.cost > m.options.Memory {
		return fmt.Errorf("%w: it takes more than %d MiB of memory", profile.ErrTooLarge, m.options.Memory>>20)
	}
	return nil
}

// stack returns the locations of frames, the innermost first.
func (m *maker) stack(frames []frame) ([]*pprof.Location, error) {
	var stack []*pprof.Location
	for from := 0; from < len(frames); {
		to := from
		for to+1 < len(frames) && frames[to].inlined {
			to++
		}
		l, err := m.location(frames[from : to+1])
		if err != nil {
			return nil, err
		}
		stack = append(stack, l)
		from = to + 1
	}
	return stack, nil
}

// location returns the location of a frame, and of those before it that are inlined into it.
func (m *maker) location(frames []frame) (*pprof.Location, error) {
	outer := frames[len(frames)-1]
	m.key = append(append(strconv.AppendUint(m.key[:0], outer.address, 16), 0), outer.file...)
	for _, f := range frames {
		m.key = append(append(m.key, 0), f.name...)
	}
	if l := m.locations[string(m.key)]; l != nil {
		return l, nil
	}
	if err := m.take(locationCost + 2*len(m.key)); err != nil {
		return nil, err
	}
	mapping, err := m.mapping(outer.file)
	if err != nil {
		return nil, err
	}
	l := &pprof.Location{ID: uint64(len(m.p.Location) + 1), Address: outer.address, Mapping: mapping}
	for _, f := range frames {
		if f.name != "" {
			l.Line = append(l.Line, pprof.Line{Function: m.function(&f)})
		}
	}
	if l.Mapping != nil && len(l.Line) > 0 && !outer.unnamed {
		l.Mapping.HasFunctions = true
	}
	m.p.Location = append(m.p.Location, l)
	m.locations[string(m.key)] = l
	return l, nil
}

func (m *maker) mapping(file string) (*pprof.Mapping, error) {
	if file == "" {
		return nil, nil
	}
	at := m.mappings[file]
	if at == nil {
		if err := m.take(mappingCost + len(file)); err != nil {
			return nil, err
		}
		at = &pprof.Mapping{ID: uint64(len(m.p.Mapping) + 1), Limit: math.MaxUint64, File: file}
		m.mappings[file] = at
		m.p.Mapping = append(m.p.Mapping, at)
	}
	return at, nil
}

func (m *maker) function(of *frame) *pprof.Function {
	f := m.functions[of.name]
	if f == nil {
		f = &pprof.Function{ID: uint64(len(m.p.Function) + 1), Name: of.name, SystemName: of.name}
		if of.unnamed {
			f.SystemName = profile.UnnamedCode
		}
		m.functions[of.name] = f
		m.p.Function = append(m.p.Function, f)
	}
	return f
}

// count counts a stack, the innermost frame first, with labels.
func (m *maker) count(stack []*pprof.Location, values []int64, labels profile.Labels) (*pprof.Sample, error) {
	m.key = append(strconv.AppendInt(m.key[:0], int64(labels.PID), 10), 0)
	m.key = append(strconv.AppendInt(m.key, int64(labels.TID), 10), 0)
	m.key = append(append(m.key, labels.Process...), 0)
	m.key = append(append(m.key, labels.Thread...), 0)
	for _, l := range stack {
		m.key = append(strconv.AppendUint(m.key, l.ID, 16), ' ')
	}
	s := m.samples[string(m.key)]
	if s == nil {
		cost := sampleCost + frameCost*len(stack) + len(m.key)
		if labels.Process != "" || labels.Thread != "" {
			cost += labelsCost
		}
		if labels.PID != 0 || labels.TID != 0 {
			cost += labelsCost
		}
		if err := m.take(cost); err != nil {
			return nil, err
		}
		s = &pprof.Sample{Location: stack, Value: make([]int64, len(values))}
		for key, text := range map[string]string{"process": labels.Process, "thread": labels.Thread} {
			if text != "" {
				if s.Label == nil {
					s.Label = map[string][]string{}
				}
				s.Label[key] = []string{text}
			}
		}
		for key, n := range map[string]int{"pid": labels.PID, "tid": labels.TID} {
			if n != 0 {
				if s.NumLabel == nil {
					s.NumLabel = map[string][]int64{}
				}
				s.NumLabel[key] = []int64{int64(n)}
			}
		}
		m.samples[string(m.key)] = s
		m.p.Sample = append(m.p.Sample, s)
	}
	for i, v := range values {
		s.Value[i] += v
	}
	return s, nil
}

// generated is the mapping of code that a process made.
var generated = profile.PseudoFile(reason.Anonymous, "")
