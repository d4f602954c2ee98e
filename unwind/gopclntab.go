package unwind

import (
	"bytes"
	"slices"
	"sort"
	"strings"

	"hallmark/addr"
	"hallmark/internal/cursor"
	"hallmark/internal/elffile"
	"hallmark/internal/pclntab"
)

// pclntab makes rows of the table that Go programs carry for their own tracebacks. It
// says for each instruction how far the stack pointer is from where it was at the entry,
// as .debug_frame does, which is made from the same lists and is not there in stripped
// programs. Neither says where the caller's frame pointer is, which C code needs
// that called Go, and how to get over a switch of stacks: instructions show that.
//
// A program can have one table that is all it runs, so that damage to it is no reason to
// have no rows of other sources.
func (b *builder) pclntab() error {
	t, err := b.file.pclntab()
	if err != nil || t == nil {
		return b.damaged(err)
	}
	g := goRows{
		table:   t,
		file:    b.file,
		part:    b.layer(Pclntab).part(),
		budget:  1<<20 + maxGoSteps*len(t.Data),
		flagged: goFlagged(t),
	}
	for i := range t.NFunc {
		if err := g.function(i); err != nil {
			return err
		}
		if i%1024 == 0 && b.bounds.err() != nil {
			return b.bounds.err()
		}
		if g.budget < 0 {
			b.warn(errGoShared)
			b.layers = b.layers[:len(b.layers)-1]
			return nil
		}
	}
	return nil
}

// maxGoSteps bounds the steps through all lists of a table by its size. Functions may
// share lists, and a hostile table has nothing but functions that do.
const maxGoSteps = 16

var errGoShared = &cursor.Error{Msg: "pclntab: its lists are shared far too often"}

// goRows makes rows of a pclntab.
type goRows struct {
	table   *pclntab.Table
	file    *elfFile
	part    *part
	budget  int  // steps that may still be taken
	flagged bool // functions have flags, which came with Go 1.17

	window  []byte // code from windowAt on
	from    uint64
	deltas  []goDelta
	cuts    []uint64
	current goFunction
	system  []byte // the code of runtime.systemstack, once it was met
}

// goDelta says how far the stack pointer is from where it was at a function's entry, up
// to an address.
type goDelta struct {
	end   uint64
	bytes int32
}

// goFunction is what is known of a function before its rows are made.
type goFunction struct {
	pclntab.Frame
	name       string
	entry, end uint64 // end is that of the instructions that the list is about
	code       []byte // from entry on
	deltas     []goDelta
	above      uint64 // where the stack pointer first is above where it was at the entry, or 0
	assembly   bool   // it may be: what compilers do not do is possible
	stranded   bool   // it switches to a stack from which only goroutine leads back
	goroutine  goroutineRule
}

// goFlagged reports whether functions have flags: if there are any at all, one begins a
// stack.
func goFlagged(t *pclntab.Table) bool {
	if t.Magic != pclntab.Go116 {
		return t.IsRelative()
	}
	for i := range t.NFunc {
		if t.Frame(i).Flags != 0 {
			return true
		}
	}
	return false
}

// function makes the rows of function i.
func (g *goRows) function(i uint64) error {
	f := &g.current
	record := g.table.Function(i)
	*f = goFunction{Frame: g.table.Frame(i), entry: record.Entry}
	g.list(f, record.End)
	if len(f.deltas) == 0 {
		return nil // code of others, such as the race detector's
	}
	start, end, ok := g.file.code(f.entry, f.end)
	if !ok || uint64(end-start) != f.end-f.entry {
		return nil
	}
	if !g.flagged || g.table.Magic != pclntab.Go120 {
		f.assembly = true
	} else {
		f.assembly = f.Flags&pclntab.Asm != 0
	}
	if f.assembly || f.Flags != 0 || f.ID != 0 {
		f.name = g.table.Name(record.Name)
	}
	if err := g.readCode(f, uint64(start), end-start); err != nil {
		return err
	}
	if f.isRestorer() && g.file.machine == X86_64 {
		// Signal handlers return to it as if it had called them, from the byte before.
		g.part.add(start-1, end, signalRule(X86_64))
		return nil
	}
	if !g.part.begin(start, end) {
		return nil
	}
	g.findGoroutine(f)
	m := goMachines[g.file.machine]
	shape := m.shape(f, g.flagged)
	g.cuts = shape.cuts(g.cuts[:0])
	at, cut := f.entry, 0
	for _, d := range f.deltas {
		for at < d.end {
			for cut < len(g.cuts) && g.cuts[cut] <= at {
				cut++
			}
			g.part.row(start+off(at-f.entry), m.rule(f, &shape, at, d.bytes))
			g.budget--
			next := d.end
			if cut < len(g.cuts) {
				next = min(next, g.cuts[cut])
			}
			at = next
		}
	}
	return nil
}

// findGoroutine finds where struct g and struct m have what runtime.morestack needs. The
// other function that shows it comes before, in the same file of assembly.
func (g *goRows) findGoroutine(f *goFunction) {
	switch {
	case g.file.machine != X86_64:
	case f.name == "runtime.systemstack":
		g.system = bytes.Clone(f.code)
	case f.growsStack():
		f.goroutine, f.stranded = goroutineX86(f.code, g.system)
	}
}

// list takes the list of stack depths of a function that ends at end at the latest.
func (g *goRows) list(f *goFunction, end uint64) {
	f.end, g.deltas = f.entry, g.deltas[:0]
	g.table.EachValue(f.PCSP, func(value int32, advance uint32) bool {
		if value < 0 && f.above == 0 {
			f.above = f.end
		}
		f.end = min(f.end+uint64(advance)*g.table.Quantum, end)
		g.deltas = append(g.deltas, goDelta{f.end, value})
		g.budget--
		return f.end < end && g.budget >= 0
	})
	f.deltas = g.deltas
	if f.end == f.entry {
		f.deltas = nil
	}
}

// How much code is read at once, and of one function.
const (
	goWindow  = 1 << 20
	goMaxCode = 64 << 10
)

// readCode sets the code of a function, whose beginning is at an offset of the file: all
// of it if it is of reasonable size.
func (g *goRows) readCode(f *goFunction, at uint64, size off) error {
	n := min(uint64(size), goMaxCode)
	if at < g.from || at+n > g.from+uint64(len(g.window)) {
		if g.window == nil {
			g.window = make([]byte, goWindow)
		}
		g.window = g.window[:goWindow]
		got, err := g.file.Reader.ReadAt(g.window, int64(at))
		if uint64(got) < n {
			return err
		}
		g.window, g.from = g.window[:got], at
	}
	f.code = g.window[at-g.from:][:n]
	return nil
}

// deltaAt returns how far the stack pointer is from where it was at the entry.
func (f *goFunction) deltaAt(pc uint64) int32 {
	i := sort.Search(len(f.deltas), func(i int) bool { return pc < f.deltas[i].end })
	if i == len(f.deltas) {
		return 0
	}
	return f.deltas[i].bytes
}

// begun returns where the function first has a frame, or 0.
func (f *goFunction) begun() uint64 {
	at := f.entry
	for _, d := range f.deltas {
		if d.bytes > 0 {
			return at
		}
		at = d.end
	}
	return 0
}

// beginsStack reports whether no function calls this one.
func (f *goFunction) beginsStack() bool {
	if f.Flags&pclntab.TopFrame != 0 {
		return f.name != "runtime.sigtramp" // it returns to what the signal interrupted
	}
	switch f.name {
	case "runtime.goexit", "runtime.mstart", "runtime.rt0_go":
		return true
	}
	return false
}

// growsStack reports whether a goroutine has called this function for a larger stack.
func (f *goFunction) growsStack() bool { return f.name == "runtime.morestack" }

// isRestorer reports whether the kernel lets signal handlers return to this function: it
// does nothing but ask for what was interrupted.
func (f *goFunction) isRestorer() bool {
	const name = "runtime.sigreturn" // and since Go 1.21 "runtime.sigreturn__sigaction"
	return strings.HasPrefix(f.name, name) && bytes.HasPrefix(f.code, []byte(x86Restorer))
}

// isInjected reports whether a signal handler makes code call this function wherever it
// is (runtime/traceback.go, isInjectedCall).
func (f *goFunction) isInjected() bool {
	switch f.name {
	case "runtime.asyncPreempt", "runtime.sigpanic", "runtime.sigpanic0":
		return true
	}
	return strings.HasPrefix(f.name, "runtime.debugCallV")
}

type off = addr.Offset

// pclntab returns the file's pclntab, nil if it has none. Not to understand it is an error.
func (f *elfFile) pclntab() (*pclntab.Table, error) {
	sections, mixed := f.PclntabSections()
	for _, s := range sections {
		if t, err := f.pclntabIn(s, mixed); t != nil || err != nil {
			return t, err
		}
	}
	if len(sections) == 0 {
		return nil, nil
	}
	return nil, &cursor.Error{Offset: int64(sections[0].Offset), Msg: "no pclntab that describes the code of its file"}
}

// pclntabIn returns the pclntab in a section, nil if it has none.
func (f *elfFile) pclntabIn(s *elffile.Section, mixed bool) (*pclntab.Table, error) {
	if s.Size > maxSection {
		return nil, &cursor.Error{Offset: int64(s.Offset), Msg: "table of implausible size"}
	}
	data, err := f.ReadString(s.Offset, s.Size)
	if err != nil {
		return nil, err
	}
	places := []uint64{0}
	if mixed {
		places = pclntab.Headers(data, false)
	}
	for _, at := range places {
		t, ok := pclntab.Parse(data[at:], false)
		if !ok || t.Ptr != 8 {
			continue
		}
		if t.IsRelative() {
			md, err := t.Locate(s.Addr+at, elffile.Loaded{Image: f.Image})
			if err != nil {
				return nil, err
			}
			if md == nil {
				continue
			}
		}
		if t.IsSound(f.isCode) {
			return &t, nil
		}
	}
	return nil, nil
}

// isCode reports whether all addresses from start up to end are in one executable
// segment.
func (f *elfFile) isCode(start, end uint64) bool {
	from, to, ok := f.code(start, end)
	return ok && uint64(to-from) == end-start
}

// goShape is what the instructions of a function say that no list does. Addresses are
// those from which on something holds; never where nothing does.
type goShape struct {
	saved    [6]goSaved // by place in Rule.Saved
	frame    uint64     // the frame pointer is the function's own
	switched uint64     // the stack pointer may be on another stack
	lost     uint64     // the frame pointer may be anything, after it was the function's own
	begins   uint64     // the stack pointer is on another stack, which nothing leads away from
	clobber  uint64     // a register may be overwritten that was not saved
	foreign  bool       // it preserves what C functions preserve
}

const never = ^uint64(0)

// goSaved says from where on a register is saved, relative to the CFA, in units of 8 bytes.
type goSaved struct {
	from uint64
	at   int8
}

func newGoShape() goShape {
	s := goShape{frame: never, switched: never, lost: never, begins: never, clobber: never}
	for i := range s.saved {
		s.saved[i].from = never
	}
	return s
}

// cuts appends the addresses at which what holds may change, in order.
func (s *goShape) cuts(to []uint64) []uint64 {
	for _, at := range []uint64{s.frame, s.switched, s.lost, s.begins, s.clobber} {
		if at != never {
			to = append(to, at)
		}
	}
	for _, r := range s.saved {
		if r.from != never {
			to = append(to, r.from)
		}
	}
	slices.Sort(to)
	return to
}

// goMachine knows the functions of Go for a machine.
type goMachine struct {
	shape func(f *goFunction, flagged bool) goShape
	rule  func(f *goFunction, s *goShape, at uint64, delta int32) Rule
}

var goMachines = map[Machine]goMachine{
	X86_64: {goShapeX86, goRuleX86},
	ARM64:  {goShapeARM64, goRuleARM64},
}

// unusual is the rule of code that does what no rule can say.
func unusual() Rule { return Rule{Kind: None, Register: Register(Unusual)} }
