package symbol

import (
	"cmp"
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"hallmark/internal/dwarf"
	"hallmark/internal/elffile"
	"hallmark/internal/ranges"
)

// IndexOptions say how an index is made.
type IndexOptions struct {
	// Identity is kept in the index, for whoever opens it: the text of the identity
	// of the file.
	Identity string

	// Origin is kept beside it: what the maker of the index writes of that file. It has
	// one line of text.
	Origin string

	// NoColumns leaves columns out, which makes the index smaller.
	NoColumns bool

	// Open opens another file that holds a part of the debug information, for the
	// Index to close, and returns nil where it is not found. It is called by one
	// goroutine at a time. Names come from the file and prove nothing. Without Open
	// there are no such files.
	Open func(Companion) *File

	// Threads is how many units are read at once; 0 means one for each processor.
	Threads int
}

// errTooFar says that an index cannot hold the code of a file.
var errTooFar = errors.New("its code spans more than 4 GiB")

// errTooMuch says that an index would be larger than its offsets can count.
var errTooMuch = errors.New("its index would have more than 4 GiB")

// errLongNames says that functions and files have far longer names than there are bytes
// of: each is the end of another, or they share an absurd directory.
var errLongNames = errors.New("its names and paths share their bytes far too often")

// indexPart is what one source says of the code: a unit of the debug information,
// or a symbol table.
type indexPart struct {
	pieces []partPiece
	runs   []partRun
	claims []partClaim
	sites  []partSite
	from   *partTables // what functions and files of sites are numbers in, at first

	// functions are those of the index. Sites that are used have their numbers in it
	// once the index has them.
	functions []partFunction
}

// partPiece is a piece of the code. It reaches to the next one.
type partPiece struct {
	start  uint32 // from the base
	site   int32  // siteNone where nothing is known; others below -1 stand for a file
	line   uint32
	column uint32
}

// siteNone is the site of a hole. A piece whose file and line is known, and whose
// function is not, has siteNone-1-file.
const siteNone = -1

// Kinds of pieces, the best first.
const (
	kindFunction = iota
	kindLine
	kindHole
)

func (p *partPiece) kind() uint8 {
	switch {
	case p.site >= 0:
		return kindFunction
	case p.site < siteNone:
		return kindLine
	default:
		return kindHole
	}
}

// partRun is pieces that are all about functions, or all only about lines.
type partRun struct {
	first, last int32 // pieces; the run ends where the last one starts
}

// partClaim is a part of a run about lines that is in the addresses which the unit's
// own entry names.
type partClaim struct {
	run        int32
	start, end uint32 // from the base
}

// findRuns finds the runs of the part.
func (p *indexPart) findRuns() {
	var runs []partRun
	first, kind := 0, uint8(kindHole)
	for i := range p.pieces {
		next := p.pieces[i].kind()
		if next == kind {
			continue
		}
		if kind != kindHole {
			runs = append(runs, partRun{int32(first), int32(i)})
		}
		first, kind = i, next
	}
	p.runs = slices.Clip(runs)
}

// claim finds which parts of runs about lines are in what is claimed, from the base.
func (p *indexPart) claim(claimed []ranges.Span) {
	next := 0
	for i, r := range p.runs {
		if p.pieces[r.first].kind() != kindLine {
			continue
		}
		start, end := p.pieces[r.first].start, p.pieces[r.last].start
		for next < len(claimed) && claimed[next].End <= uint64(start) {
			next++
		}
		for _, c := range claimed[next:] {
			if c.Start >= uint64(end) {
				break
			}
			p.claims = append(p.claims, partClaim{int32(i), uint32(max(c.Start, uint64(start))), uint32(min(c.End, uint64(end)))})
		}
	}
}

// partSite is a function in the code, or a call inlined into another site.
type partSite struct {
	parent     int32 // site of the caller, -1 if not inlined; before this one
	function   int32
	file       uint32
	callLine   uint32
	callColumn uint32
	at         uint32 // in the stream
	symbol     uint32 // with which it was written there
	source     Source
	used       bool
	written    bool
}

// functionOf returns what is known of the function of a site.
func (p *indexPart) functionOf(site int32) *partFunction { return &p.functions[p.sites[site].function] }

// callLine returns the line of a call, from the start of the caller.
func (p *indexPart) callLine(site int32) uint32 {
	s := &p.sites[site]
	return s.callLine - p.functionOf(s.parent).startLine()
}

// partTables are the functions and the files of parts that were made one after
// another.
type partTables struct {
	functions functionList
	byPlace   hashTable // of functions
	names     stringArena
	files     []string
	byPath    map[string]uint32
	room      *atomic.Int64 // for names and paths of all parts; nil for any
	noName    int32         // number of the function without a name, plus 1; 0 as long as there is none

	// Numbers in the index, plus 1; 0 for what nothing uses.
	functionNumbers, fileNumbers []uint32
}

// namedFunction is a function that sites are instances of.
type namedFunction struct {
	name  string
	place uintptr // of the name, where it was found
	hash  uint32  // of the name
	line  uint32
	lang  Lang
}

// functionList is functions by number, in chunks that never move.
type functionList struct {
	chunks [][]namedFunction
	n      int
}

const functionChunk = 1 << 10

func (l *functionList) at(n uint32) *namedFunction {
	return &l.chunks[n/functionChunk][n%functionChunk]
}

// add returns the number of a new function.
func (l *functionList) add(f namedFunction) int32 {
	if l.n%functionChunk == 0 {
		l.chunks = append(l.chunks, make([]namedFunction, 0, functionChunk))
	}
	last := &l.chunks[len(l.chunks)-1]
	*last = append(*last, f)
	l.n++
	return int32(l.n - 1)
}

// newPartTables returns tables whose file 0 is none.
func newPartTables() *partTables {
	return &partTables{files: []string{""}, byPath: map[string]uint32{"": 0}}
}

// function returns the number of a function, -1 for one without a name.
func (t *partTables) function(f *dwarf.Func, lang Lang) int32 {
	place := uintptr(unsafe.Pointer(f.Name.Pointer())) // which outlives t
	t.byPlace.room()
	hash := hashNumbers(uint64(place), uint64(f.Line)<<8|uint64(lang))
	at := t.byPlace.find(hash, func(number uint32) bool {
		g := t.functions.at(number)
		return g.place == place && g.line == f.Line && g.lang == lang
	})
	if at.number == 0 {
		name := f.Name.Bytes()
		if len(name) == 0 {
			return -1
		}
		if !t.take(len(name)) {
			return -1
		}
		n := t.add(t.names.copy(name), f.Line, lang)
		t.functions.at(uint32(n)).place = place
		t.byPlace.fill(at, hash, uint32(n))
	}
	return int32(at.number) - 1
}

// nameless returns the number of the function that has no name. Only a symbol can name
// it, and not everywhere the same one.
func (t *partTables) nameless() int32 {
	if t.noName == 0 {
		t.noName = t.add("", 0, LangUnknown) + 1
	}
	return t.noName - 1
}

// take reports whether there is room for so many bytes of a name or path.
func (t *partTables) take(n int) bool { return t.room == nil || t.room.Add(-int64(n)) >= 0 }

// add returns the number of a new function.
func (t *partTables) add(name string, line uint32, lang Lang) int32 {
	return t.functions.add(namedFunction{name: name, hash: hashString(name), line: line, lang: lang})
}

// file returns the number of a file.
func (t *partTables) file(path []byte) uint32 {
	n, ok := t.byPath[string(path)]
	if !ok {
		if !t.take(len(path)) {
			return 0
		}
		n = uint32(len(t.files))
		t.files = append(t.files, t.names.copy(path))
		t.byPath[t.files[n]] = n
	}
	return n
}

// partBuilder makes parts of units.
type partBuilder struct {
	reader *dwarf.Reader
	base   uint64
	tables *partTables

	// Of the unit at hand.
	part      *indexPart
	lang      Lang
	place     piecePlace // of the piece before
	at        int32      // its site
	sites     []builtSite
	first     []int32 // site of each scope that was asked for last, -1 for none
	functions []int32 // number of each Func, unasked before it has one
	files     []int32 // number of each file, unasked before it has one
	path      []byte
}

// builtSite is a site with the next one of the same scope, -1 for none.
type builtSite struct {
	partSite
	next int32
}

// unasked is the number of what has none yet.
const unasked = -2

// unit returns the part of a unit.
func (b *partBuilder) unit(u *dwarf.Unit) (*indexPart, error) {
	r := b.reader
	if err := r.Read(u); err != nil {
		return nil, err
	}
	if len(r.Pieces) == 0 {
		return nil, nil
	}
	if err := r.Keep(len(r.Pieces)*int(unsafe.Sizeof(partPiece{})), u); err != nil {
		return nil, err
	}
	b.part = &indexPart{from: b.tables, pieces: make([]partPiece, 0, len(r.Pieces))}
	b.lang, b.sites, b.place = langOf(r.Lang), b.sites[:0], piecePlace{scope: unasked}
	b.first = refill(b.first, len(r.Scopes), -1)
	b.functions = refill(b.functions, len(r.Funcs), unasked)
	b.files = refill(b.files, r.Files.Len(), unasked)
	for i := range r.Pieces {
		b.piece(&r.Pieces[i])
	}
	if err := r.Keep(len(b.sites)*int(unsafe.Sizeof(partSite{})+unsafe.Sizeof(namedFunction{})), u); err != nil {
		return nil, err
	}
	b.part.sites = make([]partSite, len(b.sites))
	for i := range b.sites {
		b.part.sites[i] = b.sites[i].partSite
	}
	if b.tables.room.Load() < 0 {
		return nil, errLongNames
	}
	b.part.findRuns()
	return b.part, b.claim(u)
}

// claim finds which lines without functions the entry of the unit claims.
func (b *partBuilder) claim(u *dwarf.Unit) error {
	if b.reader.Partial || !slices.ContainsFunc(b.part.runs, func(r partRun) bool { return b.part.pieces[r.first].kind() == kindLine }) {
		return nil
	}
	addresses, err := b.reader.Addresses(u, nil)
	if err != nil {
		return err
	}
	var claims []ranges.Span
	for _, r := range addresses {
		if r.High > b.base {
			claims = append(claims, ranges.Span{Start: max(r.Low, b.base) - b.base, End: r.High - b.base})
		}
	}
	b.part.claim(ranges.Union(claims))
	return nil
}

// refill returns s with n times v in it.
func refill(s []int32, n int, v int32) []int32 {
	s = slices.Grow(s[:0], n)[:n]
	for i := range s {
		s[i] = v
	}
	return s
}

func (b *partBuilder) piece(p *dwarf.Piece) {
	start := p.Start - b.base
	if start > math.MaxUint32 {
		return // behind the last code
	}
	if place := (piecePlace{p.Scope, p.File, p.Known}); place != b.place {
		b.place = place
		b.at = b.siteOf(p)
	}
	b.part.pieces = append(b.part.pieces, partPiece{uint32(start), b.at, p.Line, p.Column})
}

// piecePlace is what decides on the site of a piece.
type piecePlace struct {
	scope int32
	file  uint32
	known bool
}

// siteOf returns the site that a piece belongs to.
func (b *partBuilder) siteOf(p *dwarf.Piece) int32 {
	switch {
	case p.Scope >= 0 && (b.isNamed(p.Scope) || b.reader.Scopes[p.Scope].Parent >= 0):
		return b.site(p.Scope, p.File)
	case p.Known:
		return siteNone - 1 - int32(b.file(p.File))
	default:
		return siteNone
	}
}

func (b *partBuilder) isNamed(scope int32) bool { return b.function(b.reader.Scopes[scope].Func) >= 0 }

// function returns the number of a Func of the unit, -1 for one without a name.
func (b *partBuilder) function(number int32) int32 {
	n := &b.functions[number]
	if *n == unasked {
		*n = b.tables.function(&b.reader.Funcs[number], b.lang)
	}
	return *n
}

// site returns the site of a scope whose code comes from a file. Most scopes have
// code of one file, and few have code of more than two.
func (b *partBuilder) site(scope int32, file uint32) int32 {
	number := b.file(file)
	for n := b.first[scope]; n >= 0; n = b.sites[n].next {
		if b.sites[n].file == number {
			return n
		}
	}
	s := &b.reader.Scopes[scope]
	site := partSite{parent: -1, function: b.function(s.Func), file: number, source: SourceDWARF}
	if site.function < 0 {
		site.function = b.tables.nameless()
	}
	if s.Parent >= 0 {
		site.parent = b.site(s.Parent, s.CallFile)
		site.callLine, site.callColumn = s.CallLine, s.CallColumn
	}
	n := int32(len(b.sites))
	b.sites = append(b.sites, builtSite{site, b.first[scope]})
	b.first[scope] = n
	return n
}

// file returns the number of a file of the unit.
func (b *partBuilder) file(number uint32) uint32 {
	if uint64(number) >= uint64(len(b.files)) {
		return 0
	}
	n := &b.files[number]
	if *n == unasked {
		b.path = b.reader.Files.AppendPath(b.path[:0], number)
		*n = int32(b.tables.file(b.path))
	}
	return uint32(*n)
}

// readUnits reads the debug information of a file, and what it refers to.
func (c *companions) readUnits(base uint64, opt IndexOptions) ([]*indexPart, error) {
	d, err := c.debug(c.image, "")
	if err != nil {
		return nil, err
	}
	if d.Sup, err = c.supplementary(); err != nil {
		return nil, err
	}
	d.Split = c.split
	parts, err := readUnits(d, base, opt)
	return parts, c.image.Damage(err)
}

// forgetAfter is how many bytes of units are read before their memory, and that of
// what they refer to, is given back to the system.
const forgetAfter = 64 << 20

// forget gives memory back to the system once many units were read. It is the file's,
// and comes again when another unit refers to it.
func (d *debugData) forget(u *dwarf.Unit) {
	size := int64(u.Size())
	if done := d.done.Add(size); done/forgetAfter != (done-size)/forgetAfter {
		d.Views.Forget()
	}
}

// Names and paths may take so many bytes in an index in the making, and some for each
// byte of debug information. Every goroutine has copies of its own.
const (
	minNames    = 32 << 20
	namesFactor = 4
)

func roomForNames(d *dwarf.Data) int64 {
	n := len(d.Info) + len(d.Str) + len(d.LineStr) + len(d.Line)
	if d.Sup != nil {
		n += len(d.Sup.Info) + len(d.Sup.Str)
	}
	return minNames + namesFactor*int64(n)
}

// readUnits reads all units of d, several at once. The parts are in the order of
// the units.
func readUnits(d *debugData, base uint64, opt IndexOptions) ([]*indexPart, error) {
	var units []*dwarf.Unit
	err := elffile.WhileMapped(func() (err error) {
		units, err = d.Units()
		return err
	})
	if err != nil {
		return nil, err
	}
	d.Views.Forget() // headers are all over .debug_info
	order := make([]int, len(units))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(units[b].Size(), units[a].Size()) })
	threads := opt.Threads
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	parts, errs := make([]*indexPart, len(units)), make([]error, len(units))
	var next, room atomic.Int64
	room.Store(roomForNames(d.Data))
	if split := d.Split; split != nil {
		d.Split = func(id uint64, dir, name string) *dwarf.Data {
			part := split(id, dir, name)
			if part != nil {
				room.Add(namesFactor * int64(len(part.Info)))
			}
			return part
		}
	}
	var failed atomic.Bool
	var workers sync.WaitGroup
	for range min(threads, len(units)) {
		workers.Go(func() {
			b := partBuilder{reader: d.NewReader(), base: base, tables: newPartTables()}
			b.tables.room = &room
			b.reader.Columns = !opt.NoColumns
			for !failed.Load() {
				i := int(next.Add(1)) - 1
				if i >= len(order) {
					return
				}
				at := order[i]
				errs[at] = elffile.WhileMapped(func() (err error) {
					parts[at], err = b.unit(units[at])
					return err
				})
				if errs[at] != nil {
					failed.Store(true)
				}
				d.forget(units[at])
			}
		})
	}
	workers.Wait()
	d.Views.Forget()
	return slices.DeleteFunc(parts, func(p *indexPart) bool { return p == nil }), errors.Join(errs...)
}
