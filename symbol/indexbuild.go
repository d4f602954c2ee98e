package symbol

import (
	"cmp"
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"hallmark/internal/dwarf"
)

// IndexOptions say how an index is made.
type IndexOptions struct {
	// Identity is kept in the index, for whoever opens it: the text of the identity
	// of the file.
	Identity string

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

// indexPart is what one source says of the code: a unit of the debug information,
// or a symbol table.
type indexPart struct {
	pieces    []partPiece
	sites     []partSite
	functions []partFunction
	files     []string // of sites, until they are numbered
	inIndex   []uint32 // number in the index of each file, plus 1; 0 before it has one
	names     *partNameTable
	lang      Lang
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

// partSite is a function in the code, or a call inlined into another site.
type partSite struct {
	parent     int32 // site of the caller, -1 if not inlined
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

// partFunction is a function that sites are instances of.
type partFunction struct {
	name  uint32 // number in the part's names; 0 for none
	line  uint32
	index int32 // in tables, -1 while nothing uses it

	// Of the function in the index.
	number uint32
	file   uint32
}

// partNameTable are names of functions of parts, which were made one after another.
type partNameTable struct {
	stringTable
	inIndex []uint32 // number in the index of each, plus 1; 0 before it has one
}

func newPartNames() *partNameTable {
	t := new(partNameTable)
	t.number(nil)
	return t
}

// functionOf returns what is known of the function of a site.
func (p *indexPart) functionOf(site int32) *partFunction { return &p.functions[p.sites[site].function] }

// callLine returns the line of a call, from the start of the caller.
func (p *indexPart) callLine(site int32) int32 {
	s := &p.sites[site]
	return int32(s.callLine - p.functionOf(s.parent).line)
}

// partBuilder makes parts of units.
type partBuilder struct {
	reader *dwarf.Reader
	base   uint64
	paths  map[string]string // one copy of each

	names   *partNameTable
	byPlace map[*byte]uint32

	// Of the unit at hand.
	part    *indexPart
	first   []int32 // first site of each scope, -1 for none
	more    map[scopeFile]int32
	numbers []int32 // of files in part, by number in the unit; -1 before
	path    []byte
}

type scopeFile struct {
	scope int32
	file  uint32
}

// unit returns the part of a unit.
func (b *partBuilder) unit(u *dwarf.Unit) (*indexPart, error) {
	r := b.reader
	if err := r.Read(u); err != nil {
		return nil, err
	}
	if len(r.Pieces) == 0 {
		return nil, nil
	}
	b.part = &indexPart{lang: langOf(r.Lang), names: b.names, pieces: make([]partPiece, 0, len(r.Pieces))}
	b.part.functions = make([]partFunction, len(r.Funcs))
	for i, f := range r.Funcs {
		b.part.functions[i] = partFunction{name: b.name(f.Name), line: f.Line, index: -1}
	}
	b.first = slices.Grow(b.first[:0], len(r.Scopes))[:len(r.Scopes)]
	for i := range b.first {
		b.first[i] = -1
	}
	b.numbers = slices.Grow(b.numbers[:0], r.Files.Len())[:r.Files.Len()]
	for i := range b.numbers {
		b.numbers[i] = -1
	}
	clear(b.more)
	b.fileNumber(math.MaxUint32) // number 0 is no file
	for i := range r.Pieces {
		b.piece(&r.Pieces[i])
	}
	b.part.sites = slices.Clip(b.part.sites)
	return b.part, nil
}

// name returns the number of a name.
func (b *partBuilder) name(s dwarf.String) uint32 {
	place := s.Place()
	n, ok := b.byPlace[place]
	if !ok {
		n = b.names.number(s.Bytes())
		b.byPlace[place] = n
	}
	return n
}

func (b *partBuilder) piece(p *dwarf.Piece) {
	start := p.Start - b.base
	if start > math.MaxUint32 {
		return // behind the last code
	}
	site := int32(siteNone)
	switch scope := b.named(p.Scope); {
	case scope >= 0:
		site = b.site(scope, p.File)
	case p.Known:
		site = siteNone - 1 - int32(b.fileNumber(p.File))
	}
	b.part.pieces = append(b.part.pieces, partPiece{uint32(start), site, p.Line, p.Column})
}

// named returns the innermost scope from this one on whose function has a name.
func (b *partBuilder) named(scope int32) int32 {
	for scope >= 0 && b.part.functions[b.reader.Scopes[scope].Func].name == 0 {
		scope = b.reader.Scopes[scope].Parent
	}
	return scope
}

// site returns the site of a scope whose code comes from a file.
func (b *partBuilder) site(scope int32, file uint32) int32 {
	number := b.fileNumber(file)
	if n := b.first[scope]; n >= 0 && b.part.sites[n].file == number {
		return n
	}
	key := scopeFile{scope, number}
	if n, ok := b.more[key]; ok {
		return n
	}
	s := &b.reader.Scopes[scope]
	site := partSite{parent: -1, function: s.Func, file: number, source: SourceDWARF}
	if parent := b.named(s.Parent); parent >= 0 {
		site.parent = b.site(parent, s.CallFile)
		site.callLine, site.callColumn = s.CallLine, s.CallColumn
	}
	n := int32(len(b.part.sites))
	b.part.sites = append(b.part.sites, site)
	if b.first[scope] < 0 {
		b.first[scope] = n
	} else {
		b.more[key] = n
	}
	return n
}

// fileNumber returns the number in the part of a file of the unit.
func (b *partBuilder) fileNumber(file uint32) uint32 {
	known := uint64(file) < uint64(len(b.numbers))
	if known && b.numbers[file] >= 0 {
		return uint32(b.numbers[file])
	}
	b.path = b.reader.Files.AppendPath(b.path[:0], file)
	if len(b.path) == 0 && len(b.part.files) > 0 {
		return 0
	}
	path, ok := b.paths[string(b.path)]
	if !ok {
		path = string(b.path)
		b.paths[path] = path
	}
	n := len(b.part.files)
	b.part.files = append(b.part.files, path)
	if known {
		b.numbers[file] = int32(n)
	}
	return uint32(n)
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
	return parts, c.image.damage(err)
}

// forgetAfter is how many bytes of units are read before the strings that they refer
// to are given back to the system.
const forgetAfter = 128 << 20

// forget gives the memory of a unit back to the system. It is the file's, and comes
// again when another unit refers to it.
func (d *debugData) forget(u *dwarf.Unit) {
	d.advise(d.Info[u.Offset():][:u.Size()], syscall.MADV_DONTNEED)
	size := int64(u.Size())
	if done := d.done.Add(size); done/forgetAfter != (done-size)/forgetAfter {
		d.advise(d.Str, syscall.MADV_DONTNEED)
	}
}

// readUnits reads all units of d, several at once. The parts are in the order of
// the units.
func readUnits(d *debugData, base uint64, opt IndexOptions) ([]*indexPart, error) {
	var units []*dwarf.Unit
	err := whileMapped(func() (err error) {
		units, err = d.Units()
		return err
	})
	if err != nil {
		return nil, err
	}
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
	var next atomic.Int64
	var failed atomic.Bool
	var workers sync.WaitGroup
	for range min(threads, len(units)) {
		workers.Go(func() {
			b := partBuilder{reader: d.NewReader(), base: base, paths: map[string]string{}, names: newPartNames(), byPlace: map[*byte]uint32{}, more: map[scopeFile]int32{}}
			b.reader.Columns = !opt.NoColumns
			for !failed.Load() {
				i := int(next.Add(1)) - 1
				if i >= len(order) {
					return
				}
				at := order[i]
				errs[at] = whileMapped(func() (err error) {
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
	return slices.DeleteFunc(parts, func(p *indexPart) bool { return p == nil }), errors.Join(errs...)
}
