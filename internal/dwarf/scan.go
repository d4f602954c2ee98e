package dwarf

import (
	"bytes"
	"cmp"
	"slices"
)

// A Scope is a function, or a call inlined into one, as it is in the code.
type Scope struct {
	Parent int32 // index of the scope it was inlined into, -1 for a function
	Func   int32 // index of the Func that it is an instance of

	// Where it was called, in the Parent.
	CallFile   uint32 // number in the unit's files
	CallLine   uint32
	CallColumn uint32
}

// A Func is what scopes are instances of.
type Func struct {
	Name String // linkage name, else its name
	Line uint32 // where it starts, 0 when not known
}

// span is addresses that a scope claims.
type span struct {
	low, high uint64
	scope     int32
}

// open is a scope whose children are being read.
type open struct {
	scope int32
	depth int // of its children
}

// maxDepth is how deep inlined calls may be nested. Templates reach some fifty.
const maxDepth = 256

// scan reads all entries of a unit.
type scan struct {
	*Reader
	*state
	cLike bool    // types hold no functions
	open  []open  // innermost last
	depth int     // of the entry being read: 1 for children of the unit
	parts []int32 // spans of the parts of functions, in DWARF 2
}

// run walks over the entries of the unit, and collects the scopes that it has and
// their addresses.
func (s *scan) run() error {
	b := s.data.Info[:s.end]
	start := int(s.die)
	p, err := s.next(b, start)
	if err != nil || s.depth == 0 {
		return err // the unit's own entry has no children
	}
	quick := s.table.quick
	deeper := 0 // than s.depth: within entries that were passed over
	for p < len(b) {
		start = p
		code := int(b[p])
		if code == 0 {
			p++
			if deeper > 0 {
				deeper--
			} else if s.leave(); s.depth <= 0 {
				return nil // what follows the unit's own entry is padding
			}
			continue
		}
		if code < 0x80 && code < len(quick) {
			q := quick[code]
			switch {
			case q.kind == quickPass:
				p += 1 + int(q.size)
				deeper += int(q.depth)
				continue
			case q.kind == quickSibling || q.kind == quickInC && s.cLike:
				if p = s.sibling(b, p+1+int(q.size)); p == overrun {
					return s.fail(uint64(start), "entry does not end")
				}
				continue
			}
		}
		s.depth, deeper = s.depth+deeper, 0
		if p, err = s.next(b, start); err != nil || s.depth <= 0 {
			return err
		}
	}
	if p > len(b) {
		return s.fail(uint64(start), "entry does not end")
	}
	return nil
}

// leave ends the list of children that is being read.
func (s *scan) leave() {
	s.depth--
	if n := len(s.open); n > 0 && s.open[n-1].depth > s.depth {
		s.open = s.open[:n-1]
	}
}

// next reads or passes over the entry at start, and returns where to go on: at its
// first child or behind all of them.
func (s *scan) next(b []byte, start int) (int, error) {
	code, p := uleb(b, start)
	if p == overrun {
		return 0, s.fail(uint64(start), "entry does not end")
	}
	a := s.table.lookup(code)
	switch {
	case code == 0:
		s.leave()
		return p, nil
	case a == nil:
		return 0, s.fail(uint64(start), "abbreviation %d is unknown", code)
	}
	p, err := s.visit(b, start, p, a)
	if err == nil && (p == overrun || p > len(b)) {
		err = s.fail(uint64(start), "entry does not end")
	}
	return p, err
}

// visit reads or passes over the entry at start, whose attributes are at p.
func (s *scan) visit(b []byte, start, p int, a *abbrev) (int, error) {
	scope := int32(-1)
	next := p + a.fixed
	switch {
	case a.isScope():
		var err error
		if next, scope, err = s.scope(b, start, p, a); err != nil || next == overrun {
			return next, err
		}
	case a.sibling >= 0 && a.children && a.isBarren(s.cLike):
		return s.sibling(b, p+int(a.sibling)), nil
	case a.fixed < 0:
		if next = s.skip(b, p, a.skip); next == overrun {
			return next, nil
		}
	}
	if a.children {
		s.depth++
		if scope >= 0 {
			if len(s.open) >= maxDepth {
				return 0, s.fail(uint64(start), "inlined calls are nested deeper than %d", maxDepth)
			}
			s.open = append(s.open, open{scope, s.depth})
		}
	}
	return next, nil
}

// sibling returns where the next sibling of an entry is, whose DW_AT_sibling is at,
// or overrun where it points backwards.
func (s *scan) sibling(b []byte, at int) int {
	if at+4 > len(b) {
		return overrun
	}
	next := s.start + s.fixed(b[at:], 4)
	if next <= uint64(at) || next > s.end {
		return overrun
	}
	return int(next)
}

// scope reads an entry that has code, and returns where its children are and its
// scope.
func (s *scan) scope(b []byte, start, p int, a *abbrev) (next int, scope int32, err error) {
	v := &s.values
	if next = s.read(b, p, a.read, v); next == overrun {
		return next, -1, nil
	}
	scope = int32(len(s.Scopes))
	parent := int32(-1)
	if n := len(s.open); n > 0 && a.tag == tagInlinedSubroutine {
		parent = s.open[n-1].scope
	}
	before := len(s.spans)
	err = s.eachRange(v, func(low, high uint64) {
		if low < high && s.root.isText(low) {
			s.spans = append(s.spans, span{low, s.root.clip(high), scope})
		}
	})
	if err == nil {
		err = s.root.spend(spanCost * (len(s.spans) - before))
	}
	if err == nil {
		err = s.hold(scopeCost+2*spanCost*(len(s.spans)-before), ".debug_info", uint64(start))
	}
	if err != nil {
		return next, -1, err
	}
	if s.isSecondPart(v, a) {
		for n := before; n < len(s.spans); n++ {
			s.parts = append(s.parts, int32(n))
		}
	}
	fn, err := s.function(uint64(start), v)
	file := uint32(noFile)
	if v.has(slotCallFile) {
		file = v.number(slotCallFile)
	}
	s.Scopes = append(s.Scopes, Scope{
		Parent: parent, Func: fn,
		CallFile: file, CallLine: v.number(slotCallLine), CallColumn: v.number(slotCallColumn),
	})
	return next, scope, err
}

// secondPart is how the names begin that GCC invents for the cold parts of functions.
const secondPart = "__second_sect_of_"

// isSecondPart reports whether an entry describes the part of a function. In DWARF 2 a
// function has one range of addresses, and GCC describes its other part as a function.
func (s *scan) isSecondPart(v *values, a *abbrev) bool {
	return s.version == 2 && a.tag == tagSubprogram && v.has(slotName) &&
		bytes.HasPrefix(s.str(v, slotName).tail, []byte(secondPart))
}

// joinParts gives the addresses of parts to the functions that they are parts of: those
// with the calls that were inlined there, which the parts would hide. A part without such
// calls stays.
func (s *scan) joinParts() {
	if len(s.parts) == 0 {
		return
	}
	slices.SortFunc(s.parts, func(a, b int32) int { return cmp.Compare(s.spans[a].low, s.spans[b].low) })
	owners := make([]int32, len(s.parts))
	for i := range s.spans {
		at, found := slices.BinarySearchFunc(s.parts, s.spans[i].low, func(n int32, v uint64) int { return cmp.Compare(s.spans[n].low, v) })
		if !found {
			at--
		}
		scope := s.spans[i].scope
		if at < 0 || s.spans[i].high > s.spans[s.parts[at]].high || s.Scopes[scope].Parent < 0 {
			continue
		}
		for s.Scopes[scope].Parent >= 0 {
			scope = s.Scopes[scope].Parent
		}
		owners[at] = scope + 1
	}
	for i, n := range s.parts {
		if owners[i] > 0 {
			s.spans[n].scope = owners[i] - 1
		}
	}
}
