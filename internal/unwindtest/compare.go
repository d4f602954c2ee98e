package unwindtest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"hallmark/addr"
	"hallmark/unwind"
)

// A Case is one sample and what everybody says of it.
type Case struct {
	*Sample
	Ours     Walked
	Perf     []Site
	Elfutils []addr.Abs
}

// same reports whether a witness's frame is ours. perf takes what a signal interrupted
// for a call; others disagree about the frame of the signal's trampoline.
func same(ours []Frame, i int, address uint64) bool {
	f := &ours[i]
	near := func(a uint64) bool {
		if a == address {
			return true
		}
		signal := f.Method == unwind.BySignal || i+1 < len(ours) && ours[i+1].Method == unwind.BySignal
		return signal && (a == address+1 || a+1 == address)
	}
	return near(uint64(f.At)) || near(uint64(f.Offset)) && f.Map != nil
}

// witnessesAgree reports whether perf and elfutils say the same, up to where either speaks
// of what is no code.
func (c *Case) witnessesAgree() bool {
	n, m := 0, 0
	for n < len(c.Perf) && c.code(&c.Perf[n]) {
		n++
	}
	for m < len(c.Elfutils) && c.Maps.Code(c.Elfutils[m]) {
		m++
	}
	if n != m {
		return false
	}
	for i, a := range c.Elfutils[:m] {
		f := c.Maps.At(a)
		off := a - f.Start + addr.Abs(f.Offset)
		if p := addr.Abs(c.Perf[i].Address); p != a && p+1 != a && p != off && p+1 != off {
			return false
		}
	}
	return true
}

// A Verdict is how two stacks compare.
type Verdict struct {
	Same   int // frames from the innermost one on that are the same
	Frames int // of the longer stack
	Theirs int // of the witness's stack
}

// Equal reports whether the stacks are the same.
func (v Verdict) Equal() bool { return v.Same == v.Frames }

// compare compares our frames with a witness's, which ends where an address is in no
// executable mapping: what a witness says from there on was never code.
func (c *Case) compare(n int, address func(int) uint64, mapped func(int) bool) Verdict {
	for i := range n {
		if !mapped(i) {
			n = i
			break
		}
	}
	v := Verdict{Frames: max(n, len(c.Ours.Frames)), Theirs: n}
	for v.Same < min(n, len(c.Ours.Frames)) && same(c.Ours.Frames, v.Same, address(v.Same)) {
		v.Same++
	}
	return v
}

// WithPerf compares our stack with perf's.
func (c *Case) WithPerf() Verdict {
	return c.compare(len(c.Perf), func(i int) uint64 { return c.Perf[i].Address },
		func(i int) bool { return c.code(&c.Perf[i]) })
}

// code reports whether a frame of perf's can be of code: perf reports offsets of what lies
// in files, and addresses of what does not.
func (c *Case) code(p *Site) bool {
	if c.Maps.Code(addr.Abs(p.Address)) {
		return true
	}
	return slices.ContainsFunc(c.Maps.list, func(m Map) bool {
		return m.Code && m.Name == p.File && p.Address >= uint64(m.Offset) && p.Address-uint64(m.Offset) < uint64(m.End-m.Start)
	})
}

// WithElfutils compares our stack with elfutils'.
func (c *Case) WithElfutils() Verdict {
	return c.compare(len(c.Elfutils), func(i int) uint64 { return uint64(c.Elfutils[i]) },
		func(i int) bool { return c.Maps.Code(c.Elfutils[i]) })
}

// Cases joins samples, walked by us, with what perf says of them.
func Cases(samples []Sample, tables *Tables, told []WitnessStack) []Case {
	byKey := make(map[Key][]Site, len(told))
	for _, t := range told {
		byKey[t.Key] = t.Frames
	}
	var cases []Case
	for i := range samples {
		s := &samples[i]
		if perf, ok := byKey[s.Key]; ok {
			cases = append(cases, Case{Sample: s, Ours: tables.Walk(s), Perf: perf})
		}
	}
	return cases
}

// A Class says where and how our stack leaves a witness's.
type Class struct {
	How  string // "ends NoRule", "goes on", "differs by CFI"
	File string // of the frame whose caller is in dispute
}

// Class returns the class of a comparison that is not Equal.
func (c *Case) Class(v Verdict) Class {
	class := Class{File: "(first frame)"}
	if v.Same > 0 {
		class.File = c.Ours.Frames[v.Same-1].name()
	}
	switch {
	case v.Same == len(c.Ours.Frames):
		class.How = "we end: " + endNames[c.Ours.End]
	case v.Same == v.Theirs:
		class.How = "we go on by " + methodNames[c.Ours.Frames[v.Same].Method]
	default:
		class.How = "we differ by " + methodNames[c.Ours.Frames[v.Same].Method]
	}
	return class
}

var methodNames = map[unwind.Method]string{unwind.NoMethod: "nothing", unwind.ByRegs: "registers", unwind.ByCFI: "CFI", unwind.ByFP: "frame pointer", unwind.BySignal: "signal"}

var endNames = map[unwind.End]string{
	unwind.EndUnknown: "unknown", unwind.Complete: "complete", unwind.NoUserStack: "no user stack", unwind.NoTable: "no table", unwind.NoRule: "no rule",
	unwind.Unsupported: "unsupported", unwind.RegisterLost: "register lost", unwind.Unreadable: "unreadable", unwind.NotMapped: "not mapped",
	unwind.NotCode: "not code", unwind.BadFrame: "bad frame", unwind.TooDeep: "too deep", unwind.NotIdentified: "not identified",
	unwind.Compat: "32-bit", unwind.FramePointers: "frame pointers",
}

func (f *Frame) name() string {
	switch {
	case f.Map == nil:
		return "(not mapped)"
	case f.Map.Generated():
		return "(generated)"
	}
	return filepath.Base(f.Map.Name)
}

// String shows the stacks of a case side by side, marking the frames that are not ours.
func (c *Case) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "pid %d tid %d time %d.%09d, %d bytes of stack at %v, ended %s\n", c.PID, c.TID, c.Time/1e9, c.Time%1e9, len(c.Stack.Bytes), c.Stack.Base, endNames[c.Ours.End])
	n := max(len(c.Ours.Frames), len(c.Perf), len(c.Elfutils))
	for i := range n {
		var ours, perf, dw string
		if i < len(c.Ours.Frames) {
			f := &c.Ours.Frames[i]
			ours = fmt.Sprintf("%v %s+%v %s", f.At, f.name(), f.Offset, methodNames[f.Method])
		}
		if i < len(c.Perf) {
			p := c.Perf[i]
			perf = fmt.Sprintf("%x %s (%s)", p.Address, p.Symbol, filepath.Base(p.File))
		}
		if i < len(c.Elfutils) {
			dw = c.Elfutils[i].String()
		}
		fmt.Fprintf(&b, "  %-2d %-60s | %-50s | %s\n", i, ours, perf, dw)
	}
	return b.String()
}

// A Count is how many cases there are of a class, with one of them.
type Count struct {
	Class
	N       int
	Example *Case
}

// A Summary is what came of a recording.
type Summary struct {
	Samples               int
	Frames                int // of the longer of our stack and perf's
	SamePerf              int // frames that are the same
	EqualPerf             int // stacks
	EqualElfutils         int
	Agree                 int     // stacks of which perf and elfutils say the same
	EqualOne              int     // stacks that are the same as perf's or elfutils'
	FramesOne, SameOne    int     // frames, beside whichever of the two has more that are the same
	Complete              int     // stacks whose end we know to be the program's or thread's entry
	Ends                  []Count // of stacks that are not complete, by the file of the last frame
	Alone                 []Count // differences with both witnesses, by class, most first
	WithPerf              []Count
	WithElfutils          []Count
	WithoutElfutils       bool
	PerfFrames, OurFrames int
}

// Summarize counts.
func Summarize(cases []Case, elfutils bool) Summary {
	s := Summary{WithoutElfutils: !elfutils}
	ends, dw, alone, perf := map[Class]*Count{}, map[Class]*Count{}, map[Class]*Count{}, map[Class]*Count{}
	for i := range cases {
		c := &cases[i]
		v := c.WithPerf()
		best := v
		s.Samples++
		s.Frames += v.Frames
		s.SamePerf += v.Same
		s.PerfFrames += len(c.Perf)
		s.OurFrames += len(c.Ours.Frames)
		if c.Ours.End == unwind.Complete {
			s.Complete++
		} else {
			count(ends, c, Class{endNames[c.Ours.End], c.lastFile()})
		}
		if v.Equal() {
			s.EqualPerf++
		} else {
			count(perf, c, c.Class(v))
		}
		if elfutils {
			if c.witnessesAgree() {
				s.Agree++
			}
			w := c.WithElfutils()
			if w.Equal() {
				s.EqualElfutils++
			} else {
				count(dw, c, c.Class(w))
			}
			if w.Frames-w.Same < best.Frames-best.Same {
				best = w
			}
		}
		s.FramesOne += best.Frames
		s.SameOne += best.Same
		if best.Equal() {
			s.EqualOne++
		} else {
			count(alone, c, c.Class(best))
		}
	}
	s.Ends, s.Alone, s.WithPerf, s.WithElfutils = sorted(ends), sorted(alone), sorted(perf), sorted(dw)
	return s
}

func (c *Case) lastFile() string {
	if n := len(c.Ours.Frames); n > 0 {
		return c.Ours.Frames[n-1].name()
	}
	return "(no frame)"
}

func count(m map[Class]*Count, c *Case, class Class) {
	if m[class] == nil {
		m[class] = &Count{Class: class, Example: c}
	}
	m[class].N++
}

func sorted(m map[Class]*Count) []Count {
	var list []Count
	for _, c := range m {
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b Count) int {
		if a.N != b.N {
			return b.N - a.N
		}
		return strings.Compare(a.How+a.File, b.How+b.File)
	})
	return list
}
