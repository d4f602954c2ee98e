package symbol

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"hallmark/addr"
	"hallmark/internal/defect"
	"hallmark/internal/symtab"
	"hallmark/reason"
)

// evidence is what the sources of a file say of single addresses. Func of frames is
// empty.
type evidence interface {
	// function returns the frames of an address in a function that the debug
	// information has, or nil.
	function(addr.Virt) ([]Frame, error)

	// place returns the frames of another address: one without a name, where the debug
	// information knows the line, or nil.
	place(addr.Virt) ([]Frame, error)

	// table returns a source other than the debug information, as far as it answers for
	// an address.
	table(*source, addr.Virt) (finder, error)
}

// answer puts together what the sources say of an address. It is what merger does for
// all addresses at once: a function of the debug information, else one of pclntab, else
// a symbol with the line, if there is one, else the line alone.
func (f *File) answer(v addr.Virt, e evidence) Result {
	a := answer{evidence: e, file: f, at: v}
	frames, source := a.function()
	if frames != nil && f.NoDWARF {
		return Result{Frames: frames, Source: source}
	}
	name, table := a.symbol()
	if frames != nil {
		frames[len(frames)-1].join(name)
		frames = named(frames)
	}
	switch {
	case len(frames) > 0:
	case name != "":
		frames, source = a.bare(name, table)
	default:
		if frames, source = a.line(); len(frames) == 0 {
			return a.miss()
		}
	}
	return Result{Frames: frames, Source: source}
}

// join gives the outermost frame the symbol at the address: as another name of it, or as the one
// that the linker saw, where the debug information has none or only that of the source.
func (f *Frame) join(symbol string) {
	switch {
	case symbol == f.Linkage:
	case f.Linkage == "" || f.Lang == LangCPlusPlus && mangles(symbol, f.Linkage):
		f.Local = f.Linkage != ""
		f.Linkage, f.Symbol = symbol, ""
	default:
		f.Symbol = symbol
	}
}

// mangles reports whether a symbol is a mangled name whose last part can be a name in the source:
// compilers of C++ leave out the linkage name of what is local to a file, which leaves "get" of
// Cache<int>::get, and "operator()" of each lambda. Another symbol can be an alias.
func mangles(symbol, name string) bool {
	if symtab.IsMangled(name) || !strings.HasPrefix(symbol, "_Z") {
		return false
	}
	if strings.HasPrefix(name, "operator") {
		return true // two letters of its own
	}
	if i := strings.IndexByte(name, '<'); i > 0 {
		name = name[:i]
	}
	name = strings.TrimPrefix(name, "~")
	for at := 0; name != ""; at++ {
		i := strings.Index(symbol[at:], name)
		if i < 0 {
			return false
		}
		at += i
		if hasLength(symbol[:at], len(name)) { // <source-name> ::= <length> <identifier>
			return true
		}
	}
	return false
}

// hasLength reports whether s ends in a number, which can have other digits before it.
func hasLength(s string, number int) bool {
	n, scale := 0, 1
	for i := len(s) - 1; i >= 0 && s[i] >= '0' && s[i] <= '9' && scale <= maxMangled; i-- {
		n += scale * int(s[i]-'0')
		scale *= 10
		if n == number {
			return true
		}
	}
	return false
}

// named returns frames without the outermost ones that have neither name nor line: what they
// call is the outermost that is known.
func named(frames []Frame) []Frame {
	for n := len(frames); n > 0 && frames[n-1].Linkage == "" && frames[n-1].File == ""; n-- {
		if n > 1 {
			frames[n-2].Inlined = false
		}
		frames = frames[:n-1]
	}
	return frames
}

// answer is an answer in the making.
type answer struct {
	evidence
	file    *File
	at      addr.Virt
	damaged bool
	failed  bool // a reader panicked
	excess  bool // there is more to read than the file holds
	ended   bool // nobody wants to know any more
}

// errNoTable says that a source gave something else than it should.
var errNoTable = errors.New("no table")

// note remembers what went wrong.
func (a *answer) note(err error) {
	if err == nil {
		return
	}
	if a.file.damage.Load() == nil {
		first := err
		a.file.damage.CompareAndSwap(nil, &first)
	}
	a.damaged = true
	a.failed = a.failed || defect.Is(err)
	a.excess = a.excess || errors.Is(err, ErrTooMuch)
	a.ended = a.ended || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// function returns the frames of the function at the address.
func (a *answer) function() ([]Frame, Source) {
	if frames := a.debugFunction(a.at); frames != nil {
		return frames, SourceDWARF
	}
	for _, s := range a.file.sources {
		if s.kind != SourcePclntab {
			continue
		}
		found, err := a.table(s, a.at)
		table, ok := found.(*goTable)
		if err != nil || !ok {
			a.note(cmp.Or(err, errNoTable))
			continue
		}
		frames := table.find(a.at)
		if frames == nil {
			continue
		}
		// Code of which the debug information knows a part is its own.
		if i, _ := table.Search(uint64(a.at)); a.debugFunction(addr.Virt(table.Entry(i))) == nil {
			return frames, SourcePclntab
		}
	}
	return nil, SourceUnknown
}

func (a *answer) debugFunction(v addr.Virt) []Frame {
	frames, err := a.evidence.function(v)
	a.note(err)
	return frames
}

// symbol returns the name of the symbol at the address, "" without one.
func (a *answer) symbol() (string, Source) {
	for _, s := range a.file.sources {
		if s.kind == SourcePclntab {
			continue
		}
		found, err := a.table(s, a.at)
		table, ok := found.(*symtab.Table)
		if err != nil || !ok {
			a.note(cmp.Or(err, errNoTable))
			continue
		}
		if name := table.NameAt(a.at); name != "" {
			return name, s.kind
		}
	}
	return "", SourceUnknown
}

// bare returns the frames at an address that only a symbol names.
func (a *answer) bare(name string, table Source) ([]Frame, Source) {
	frames, err := a.place(a.at)
	a.note(err)
	if frames == nil {
		return []Frame{{Linkage: name}}, table
	}
	if last := &frames[len(frames)-1]; last.Linkage == "" {
		last.Linkage = name
	}
	if frames[0].File != "" {
		table = SourceDWARF
	}
	return frames, table
}

// line returns what the debug information says of an address without any name: as a
// rule one frame with the line alone, or nil.
func (a *answer) line() ([]Frame, Source) {
	frames, err := a.place(a.at)
	a.note(err)
	if frames = named(frames); len(frames) == 0 {
		return nil, SourceUnknown
	}
	return frames, SourceDWARF
}

// miss returns why nothing is known of the address.
func (a *answer) miss() Result {
	switch {
	case a.ended:
		return Miss(reason.NotLookedUp)
	case a.failed:
		return Miss(reason.Defect)
	case a.excess:
		return Miss(reason.Excess)
	case a.damaged:
		return Miss(reason.BadSymbols)
	}
	return Miss(a.file.missReason(a.at))
}

// direct is the evidence for one address at a time. Loaded sections stay.
type direct struct{ *File }

func (d direct) function(v addr.Virt) ([]Frame, error) {
	if !d.hasDebug() {
		return nil, nil
	}
	debug, err := d.debug()
	if err != nil {
		return nil, err
	}
	return debug.function(uint64(v))
}

func (d direct) place(v addr.Virt) ([]Frame, error) {
	if !d.hasDebug() {
		return nil, nil
	}
	debug, err := d.debug()
	if err != nil {
		return nil, err
	}
	return debug.place(uint64(v))
}

func (d direct) table(s *source, v addr.Virt) (finder, error) { return s.at(v) }

// ahead is the evidence for the first address that a file is asked for. The table that
// most likely has the symbol is read beside the search through the debug information.
type ahead struct {
	direct
	first *source
	load  func() (finder, error)
}

// askAhead returns the evidence for v, and begins to read the table.
func (f *File) askAhead(v addr.Virt) evidence {
	i := slices.IndexFunc(f.sources, func(s *source) bool { return s.kind != SourcePclntab })
	if i < 0 {
		return direct{f}
	}
	a := &ahead{direct{f}, f.sources[i], nil}
	a.load = sync.OnceValues(func() (finder, error) { return a.first.at(v) })
	go a.load()
	return a
}

func (a *ahead) table(s *source, v addr.Virt) (finder, error) {
	if s == a.first {
		return a.load()
	}
	return s.at(v)
}
