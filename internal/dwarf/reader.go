package dwarf

import (
	"cmp"
	"slices"
)

// A Reader reads units, one at a time. Several can work on one Data at once.
type Reader struct {
	// Columns makes the Reader return columns. Without them there are fewer and longer
	// pieces.
	Columns bool

	Result

	main      *Data // the file that has the units
	tables    tables
	states    map[*Unit]*state // of other units
	foreign   map[place]Func   // of other units
	funcs     placeTable       // of this unit
	values    values
	described values
	open      []open
	spans     []span
	sorted    []span
	rows      []row
	sequences []sequence
	specials  specials
	files     Files
	scopes    []Piece // which scope an address belongs to
	lines     []Piece // which sequence
	heap      []int32
	held      int // bytes of memory, of the budget
}

// Result is what a unit says of its code. It is valid until the next unit is read.
type Result struct {
	Scopes []Scope
	Funcs  []Func
	Pieces []Piece
	Files  *Files
	Lang   uint64 // DW_LANG_…

	// Partial says that the unit is a part that others have in common, with a line
	// program that they use, too.
	Partial bool
}

// Piece is a part of the code that has one answer. It reaches to the next piece.
type Piece struct {
	Start  uint64
	Scope  int32  // innermost one; -1 where there is none
	File   uint32 // of the instructions; number in Files
	Line   uint32 // 0 when not known
	Column uint32
	Known  bool // false where the unit says nothing
}

// NewReader returns a Reader for the units of d.
func (d *Data) NewReader() *Reader {
	return &Reader{main: d, states: map[*Unit]*state{}, foreign: map[place]Func{}}
}

// Read reads a unit of the Reader's Data.
func (r *Reader) Read(u *Unit) error {
	r.reset()
	s, err := r.ownState(u)
	if err != nil {
		return err
	}
	line := s
	if split := r.split(s); split != nil {
		if s, err = r.splitState(split, s); err != nil {
			return err
		}
	}
	r.Lang, r.Partial = s.lang, s.partial
	walk := scan{Reader: r, state: s, cLike: isC(s.lang), open: r.open[:0]}
	err = walk.run()
	r.open = walk.open
	if err != nil {
		return err
	}
	walk.joinParts()
	if err := r.readLines(line); err != nil {
		return err
	}
	return r.join()
}

// hold takes memory from the budget until the next unit is read.
func (r *Reader) hold(n int, section string, offset uint64) error {
	r.held += n
	return r.main.hold(n, section, offset)
}

// Keep takes so many bytes of memory from the budget of the Data, for what the caller makes
// of a unit and keeps.
func (r *Reader) Keep(n int, u *Unit) error { return r.main.hold(n, ".debug_info", u.start) }

func (r *Reader) reset() {
	if r.held != 0 {
		r.main.budget.memory.Add(int64(r.held))
		r.held = 0
	}
	r.Scopes, r.Funcs, r.Pieces = r.Scopes[:0], r.Funcs[:0], r.Pieces[:0]
	r.spans, r.rows, r.sequences = r.spans[:0], r.rows[:0], r.sequences[:0]
	r.funcs.reset()
	r.files = Files{dirs: r.files.dirs[:0], files: r.files.files[:0]}
	r.Result.Files = &r.files
}

// split returns the Data that has the split-off part of a unit, or nil.
func (r *Reader) split(s *state) *Data {
	if s.dwoName == nil || r.main.Split == nil {
		return nil
	}
	return r.main.Split(s.dwoID, string(s.dir), string(s.dwoName))
}

// splitState returns the state of the unit in d that was split off from skeleton,
// and skeleton itself if it is not there.
func (r *Reader) splitState(d *Data, skeleton *state) (*state, error) {
	d.budget = r.main.budget
	if err := d.readHeaders(); err != nil {
		return nil, err
	}
	for i := range d.units {
		u := &d.units[i]
		if u.kind != UnitCompile && u.kind != UnitSplitCompile {
			continue
		}
		s, err := r.state(u, skeleton)
		if err != nil || s.dwoID == skeleton.dwoID {
			return s, err
		}
	}
	return skeleton, nil
}

// isC reports whether types of this language hold no functions.
func isC(lang uint64) bool {
	switch lang {
	case languageC89, languageC, languageC99, languageC11, languageC17:
		return true
	default:
		return false
	}
}

// readLines runs the line program of a unit. A unit without code has the program
// of others.
func (r *Reader) readLines(s *state) error {
	if !s.hasLines || s.partial && len(r.Scopes) == 0 {
		return nil
	}
	p, err := r.openProgram(s)
	if err != nil {
		return err
	}
	return p.run(r)
}

// join makes the pieces from the spans of scopes and the rows.
func (r *Reader) join() error {
	slices.SortFunc(r.sequences, func(a, b sequence) int {
		return cmp.Or(cmp.Compare(a.Low, b.Low), cmp.Compare(b.High, a.High))
	})
	r.scopes = r.paint(slices.Grow(r.scopes[:0], 2*len(r.spans)), r.spans)
	r.spans = r.spans[:0]
	for i, s := range r.sequences {
		r.spans = append(r.spans, span{s.Low, s.High, int32(i)})
	}
	r.lines = r.paint(r.lines[:0], r.spans)
	if err := r.hold(pieceCost*(len(r.rows)+len(r.scopes)), ".debug_line", 0); err != nil {
		return err
	}
	r.Pieces = slices.Grow(r.Pieces, len(r.rows)+len(r.scopes))
	m := merger{Reader: r}
	m.run()
	return r.main.spend(pieceCost * len(r.Pieces))
}
