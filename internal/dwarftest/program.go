// Package dwarftest makes programs for tests of DWARF readers: small valid ELF files
// with debug information in every form that the standard allows, and the answers that
// a reader has to give.
//
// Compilers write few of the forms that the standard has, and mutations of what they
// write seldom make another one that is valid. A Program is a model first: functions
// with addresses, calls inlined into them, lines. Its answers are those of the model.
// Then it is encoded, and everything that the standard leaves open is left to chance.
package dwarftest

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
)

// A Program is an ELF file with others that it refers to, and what is true of it.
type Program struct {
	Seed    uint64
	Files   map[string][]byte // by name, all of one directory
	Main    string            // name of the file that has the code
	Answers []Answer          // in ascending order
	Traits  []string          // what its encoding has, in ascending order
}

// Has reports whether the encoding has a trait.
func (p *Program) Has(trait string) bool {
	_, ok := slices.BinarySearch(p.Traits, trait)
	return ok
}

// An Answer is what is true of an address. Without Frames it belongs to no function.
type Answer struct {
	Addr   uint64
	Frames []Frame // innermost first
}

// A Frame is a function at an address.
type Frame struct {
	Function string // linkage name, else its name
	Symbol   string // of the outermost frame, if it differs from Function
	File     string // path; "" where it is not known
	Line     int
	Column   int
	Start    int // line where the function starts; 0 where it is not known
}

// span is addresses from low up to high.
type span struct{ low, high uint64 }

func (s span) has(v uint64) bool { return s.low <= v && v < s.high }

// function is a function of the source. Instances of it are scopes.
type function struct {
	name, linkage string
	line          int // where it is defined
	declared      int // where it is declared, if it is
}

// scope is an instance of a function in the code.
type scope struct {
	*function
	spans    []span
	children []*scope // calls inlined into it, disjoint
	start    int      // line of the function that debug information gives

	callFile *source // nil where it is not known
	callLine int
	callCol  int

	symbols []string // of each span, "" for none
	bare    bool     // known only by its symbol and its lines
}

// source is a source file.
type source struct {
	path  string // joined with its directories
	dir   int    // number of the directory, 0 for the unit's own
	name  string
	where int // number in the line table
}

// row is a row of a line table.
type row struct {
	addr      uint64
	file      *source
	line, col int
}

// sequence is rows of code without a gap.
type sequence struct {
	span
	rows []row
}

// compilation is a unit of the model.
type compilation struct {
	scopes    []*scope
	spans     []span // of the scopes, in ascending order
	dir       string // of the compilation; "" where it is not said
	dirs      []string
	sources   []*source
	sequences []*sequence
}

// generator makes one Program.
type generator struct {
	*rand.Rand
	*Program
	traits map[string]bool

	is64, big bool
	word      int  // bytes of an address
	signed    bool // numbers can have DW_FORM_sdata
	align     uint64
	text      []span // sections of code
	units     []*compilation
	names     int

	fixups []fixup
	layout layout
}

// Generate returns the Program of a seed.
func Generate(seed uint64) *Program {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)), traits: map[string]bool{}}
	g.Program = &Program{Seed: seed, Files: map[string][]byte{}, Main: fmt.Sprintf("p%x", seed)}
	g.invent()
	g.encode()
	for _, u := range g.units {
		for _, s := range u.scopes {
			g.answers(u, s)
		}
	}
	g.holes()
	slices.SortFunc(g.Answers, func(a, b Answer) int { return cmp.Compare(a.Addr, b.Addr) })
	g.Answers = slices.CompactFunc(g.Answers, func(a, b Answer) bool { return a.Addr == b.Addr })
	g.Traits = slices.Sorted(maps.Keys(g.traits))
	return g.Program
}

// oneIn is true once in n times.
func (g *generator) oneIn(n int) bool { return g.IntN(n) == 0 }

// trait notes that the encoding has something.
func (g *generator) trait(name string) { g.traits[name] = true }

// pick returns one of several.
func pick[T any](g *generator, of ...T) T { return of[g.IntN(len(of))] }

func shuffle[T any](g *generator, s []T) {
	g.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
}

// answers adds what is true of addresses at the edges and within every scope.
func (g *generator) answers(u *compilation, top *scope) {
	for v := range g.asked(top) {
		for i, s := range top.spans {
			if s.has(v) {
				g.Answers = append(g.Answers, Answer{v, top.frames(u, v, i)})
			}
		}
	}
}

// asked returns the addresses of a scope that are asked for.
func (g *generator) asked(s *scope) map[uint64]bool {
	at := map[uint64]bool{}
	for _, p := range s.spans {
		for _, v := range []uint64{p.low, p.high - 1, p.low + g.Uint64N(p.high-p.low), p.low - 1, p.high} {
			at[v] = true
		}
	}
	for _, c := range s.children {
		maps.Copy(at, g.asked(c))
	}
	return at
}

// frames returns what is true of an address in a span of the function s.
func (s *scope) frames(u *compilation, v uint64, number int) []Frame {
	place := u.rowAt(v)
	var frames []Frame
	if s.bare {
		frames = append(frames, Frame{Function: s.symbols[number]})
	}
	for inner := s; inner != nil && !s.bare; inner = inner.childAt(v) {
		f := Frame{Function: cmp.Or(inner.linkage, inner.name), Start: inner.start}
		if inner != s {
			outer := &frames[0]
			outer.Line, outer.Column = inner.callLine, inner.callCol
			if inner.callFile != nil {
				outer.File = inner.callFile.path
			}
		}
		frames = slices.Insert(frames, 0, f)
	}
	if place != nil {
		frames[0].File, frames[0].Line, frames[0].Column = place.file.path, place.line, place.col
	}
	if outer := &frames[len(frames)-1]; s.symbols[number] != outer.Function {
		outer.Symbol = s.symbols[number]
	}
	return frames
}

func (s *scope) childAt(v uint64) *scope {
	for _, c := range s.children {
		if slices.ContainsFunc(c.spans, func(p span) bool { return p.has(v) }) {
			return c
		}
	}
	return nil
}

// rowAt returns the row that an address belongs to, or nil.
func (u *compilation) rowAt(v uint64) (found *row) {
	for _, q := range u.sequences {
		if !q.has(v) {
			continue
		}
		for i := range q.rows {
			if q.rows[i].addr <= v {
				found = &q.rows[i]
			}
		}
	}
	return found
}

// holes adds addresses of code that belong to no function.
func (g *generator) holes() {
	var taken []span
	for _, u := range g.units {
		taken = append(taken, u.spans...)
	}
	for _, t := range g.text {
		for range 4 {
			v := t.low + g.Uint64N(t.high-t.low)
			if !slices.ContainsFunc(taken, func(s span) bool { return s.has(v) }) {
				g.Answers = append(g.Answers, Answer{Addr: v})
			}
		}
		g.Answers = append(g.Answers, Answer{Addr: t.low - 1})
	}
}
