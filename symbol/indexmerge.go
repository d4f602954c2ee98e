package symbol

import (
	"cmp"
	"errors"
	"math"
	"slices"
)

// merger puts what all sources say of the code of one file together, so that every
// address has the best answer: that of the debug information, with the line, and
// the symbol's name where it is silent.
type merger struct {
	base    uint64
	parts   []*indexPart
	runs    ranges // values are indices in runList
	runList []codeRun
	symbols symbolCursor
	bare    *indexPart // of the functions that only a symbol names
	bySite  map[bareSite]int32
	tables  *tables

	lastNamed namedBy // what otherName was asked last
	lastName  uint32
}

// codeRun is pieces of a part that are about functions, or only about lines.
type codeRun struct {
	part        *indexPart
	first, last int // pieces; the run ends where the last one starts
}

// bareSite is a function that only a symbol names, in a file.
type bareSite struct {
	layer, index int
	file         string
}

// findRuns finds the runs of all parts, and settles which has an address that
// several claim: one that knows the function, and among these the first in the file.
func (m *merger) findRuns() {
	var spans []span
	m.runList = nil
	for _, part := range m.parts {
		for i := 0; i < len(part.pieces); {
			kind := part.pieces[i].kind()
			first := i
			for i++; i < len(part.pieces) && part.pieces[i].kind() == kind; i++ {
			}
			if kind == kindHole || i == len(part.pieces) {
				continue
			}
			spans = append(spans, span{
				start: uint64(part.pieces[first].start), end: uint64(part.pieces[i].start),
				value: uint32(len(m.runList)), rank: kind,
			})
			m.runList = append(m.runList, codeRun{part, first, i})
		}
	}
	slices.SortFunc(spans, byStart)
	m.runs = flatten(spans, func(a, b *span) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.value, b.value))
	})
}

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

// sweep calls emit with all pieces of the code, in the order of addresses, up to
// end.
func (m *merger) sweep(end uint64, emit func(codePiece)) {
	m.symbols.rewind()
	pos := uint64(0)
	for i, start := range m.runs.starts {
		m.sweepSymbols(pos, start, emit)
		pos = start + uint64(m.runs.sizes[i])
		m.sweepRun(&m.runList[m.runs.values[i]], start, pos, emit)
	}
	m.sweepSymbols(pos, end, emit)
}

// sweepSymbols emits the pieces from pos to end that the debug information does not
// know.
func (m *merger) sweepSymbols(pos, end uint64, emit func(codePiece)) {
	for pos < end {
		sym, until := m.symbols.at(m.base + pos)
		until = min(until-m.base, end)
		m.emitBare(uint32(pos), sym, "", 0, 0, emit)
		pos = until
	}
}

// emitBare emits a piece that only a symbol names, or nothing.
func (m *merger) emitBare(start uint32, sym symbolRef, file string, line, column uint32, emit func(codePiece)) {
	piece := codePiece{start: start, site: -1}
	if sym.index >= 0 {
		piece = codePiece{start: start, part: m.bare, site: m.bareSite(sym, file), line: line, column: column}
	}
	emit(piece)
}

// bareSite returns the site of a function that only a symbol names.
func (m *merger) bareSite(sym symbolRef, file string) int32 {
	key := bareSite{sym.layer, sym.index, file}
	if n, ok := m.bySite[key]; ok {
		return n
	}
	source := m.symbols.layers[sym.layer].source
	if file != "" {
		source = SourceDWARF
	}
	n := int32(len(m.bare.sites))
	m.bare.functions = append(m.bare.functions, partFunction{name: m.bare.names.number([]byte(m.symbols.name(sym))), index: -1})
	m.bare.files = append(m.bare.files, file)
	m.bare.sites = append(m.bare.sites, partSite{parent: -1, function: n, file: uint32(n), source: source})
	m.bySite[key] = n
	return n
}

// sweepRun emits the pieces of a run from start to end.
func (m *merger) sweepRun(r *codeRun, start, end uint64, emit func(codePiece)) {
	pieces := r.part.pieces
	i, exact := slices.BinarySearchFunc(pieces[r.first:r.last], uint32(start), func(p partPiece, start uint32) int {
		return cmp.Compare(p.start, start)
	})
	if i += r.first; !exact {
		i--
	}
	for ; i < r.last && uint64(pieces[i].start) < end; i++ {
		stop := min(uint64(pieces[i+1].start), end)
		for pos := max(uint64(pieces[i].start), start); pos < stop; {
			sym, until := m.symbols.at(m.base + pos)
			m.emitPiece(r.part, &pieces[i], uint32(pos), sym, emit)
			pos = min(until-m.base, stop)
		}
	}
}

func (m *merger) emitPiece(part *indexPart, p *partPiece, start uint32, sym symbolRef, emit func(codePiece)) {
	if p.site < 0 {
		m.emitBare(start, sym, part.files[siteNone-1-p.site], p.line, p.column, emit)
		return
	}
	piece := codePiece{start: start, part: part, site: p.site, line: p.line, column: p.column}
	if sym.index >= 0 {
		piece.symbol = m.otherName(part, p.site, sym)
	}
	emit(piece)
}

// otherName returns the number of a symbol's name, 0 if it is that of the function.
func (m *merger) otherName(part *indexPart, site int32, sym symbolRef) uint32 {
	for part.sites[site].parent >= 0 {
		site = part.sites[site].parent
	}
	key := namedBy{part, part.sites[site].function, sym}
	if key != m.lastNamed {
		m.lastNamed, m.lastName = key, 0
		if name := m.symbols.name(sym); name != string(part.names.bytes(part.functionOf(site).name)) {
			m.lastName = m.tables.strings.number([]byte(name))
		}
	}
	return m.lastName
}

// namedBy is a function and the symbol at its address.
type namedBy struct {
	part     *indexPart
	function int32
	symbol   symbolRef
}

// use gives numbers to a site and its callers, that is to their functions and files.
func (m *merger) use(p codePiece) {
	for number := p.site; number >= 0; {
		s := &p.part.sites[number]
		if s.used {
			return
		}
		s.used = true
		s.file = m.tables.fileOf(p.part, s.file)
		fn := &p.part.functions[s.function]
		if fn.index < 0 {
			fn.index = m.tables.function(functionKey{m.tables.name(p.part.names, fn.name), fn.line, p.part.lang}, s.file)
		}
		m.tables.functions[fn.index].uses++
		number = s.parent
	}
}

// reserve makes room for the names of all parts, which mostly are the index's.
func (m *merger) reserve() {
	seen := map[*partNameTable]bool{}
	size := 0
	for _, part := range m.parts {
		if !seen[part.names] {
			seen[part.names] = true
			size += len(part.names.text)
		}
	}
	m.tables.strings.text = make([]byte, 0, size)
}

// streamSize guesses the size of the stream, so that it need not grow often.
func (m *merger) streamSize() int {
	size := 0
	for _, part := range m.parts {
		size += 3*len(part.pieces) + 6*len(part.sites)
	}
	return size
}

// number gives the functions of parts the numbers that they have in the index.
func (m *merger) number() {
	for _, part := range append(m.parts, m.bare) {
		for i := range part.functions {
			if fn := &part.functions[i]; fn.index >= 0 {
				fn.number, fn.file = m.tables.functions[fn.index].number, m.tables.functions[fn.index].file
			}
		}
	}
}

// symbolCursor goes through the symbols of a file in the order of addresses. What
// an earlier layer does not name is looked for in the next.
type symbolCursor struct {
	layers []symbolLayer
	next   []int // of each layer, the first range that ends behind the last address
}

type symbolLayer struct {
	*symtab
	source Source
}

// symbolRef is a symbol. index is -1 for none.
type symbolRef struct{ layer, index int }

func (c *symbolCursor) rewind() { c.next = make([]int, len(c.layers)) }

// name returns the name of a symbol.
func (c *symbolCursor) name(sym symbolRef) string {
	l := &c.layers[sym.layer]
	return l.name(sym.index)
}

// at returns the symbol at v and up to where it is the answer. Addresses must not
// go backwards.
func (c *symbolCursor) at(v uint64) (sym symbolRef, until uint64) {
	until = math.MaxUint64
	for i := range c.layers {
		r := &c.layers[i].ranges
		n := c.next[i]
		for n < len(r.starts) && r.starts[n]+uint64(r.sizes[n]) <= v {
			n++
		}
		c.next[i] = n
		switch {
		case n == len(r.starts):
		case r.starts[n] <= v:
			return symbolRef{i, n}, min(until, r.starts[n]+uint64(r.sizes[n]))
		default:
			until = min(until, r.starts[n])
		}
	}
	return symbolRef{index: -1}, until
}

// Index makes an index of all that the file's tables and debug information say.
func (f *File) Index(opt IndexOptions) (*Index, error) {
	text := f.image.text()
	m := &merger{bare: &indexPart{names: newPartNames()}, bySite: map[bareSite]int32{}, tables: newTables()}
	end := uint64(0)
	if len(text) > 0 {
		m.base, end = text[0].Low, text[len(text)-1].High-text[0].Low
	}
	if end > math.MaxUint32 {
		return nil, &FormatError{f.Name(), errTooFar}
	}
	header := indexHeader{base: m.base}
	if d := f.debugImage(); d != nil {
		c := companions{image: d, open: opt.Open}
		defer c.close() // names are in it until the index is made
		var err error
		if m.parts, err = c.readUnits(m.base, opt); err != nil {
			return nil, err
		}
		header.sources |= 1 << SourceDWARF
	}
	m.findRuns()
	if err := f.addTables(m, &header); err != nil {
		return nil, err
	}
	return f.writeIndex(m, header, end, opt)
}

// addTables adds what the file's symbol tables say, for addresses that the debug
// information does not know.
func (f *File) addTables(m *merger, header *indexHeader) error {
	for _, s := range f.sources {
		table, err := s.load()
		if err != nil {
			return err
		}
		header.sources |= 1 << s.kind
		switch table := table.(type) {
		case *symtab:
			m.symbols.layers = append(m.symbols.layers, symbolLayer{table, s.kind})
		case *pclntab:
			part, ok := table.indexPart(m.base, func(pc uint64) bool { return !m.isFunction(pc) })
			if !ok {
				return &FormatError{f.Name(), errShared}
			}
			if len(part.pieces) > 0 {
				m.parts = append(m.parts, part)
				m.findRuns()
			}
		}
	}
	return nil
}

// isFunction reports whether the debug information has a function at v.
func (m *merger) isFunction(v uint64) bool {
	i, ok := m.runs.find(v - m.base)
	if !ok {
		return false
	}
	r := &m.runList[m.runs.values[i]]
	return r.part.pieces[r.first].kind() == kindFunction
}

var errShared = errors.New("tables of its pclntab are shared far too often")

// debugImage returns the image that has DWARF, or nil.
func (f *File) debugImage() *image {
	for _, m := range f.images {
		if m.hasDWARF() {
			return m
		}
	}
	return nil
}

func (f *File) writeIndex(m *merger, header indexHeader, end uint64, opt IndexOptions) (*Index, error) {
	m.reserve()
	m.sweep(end, m.use)
	var contents [parts][]byte
	contents[partFunctions] = m.tables.rank()
	m.number()
	w := indexWriter{columns: !opt.NoColumns, stream: make([]byte, 0, m.streamSize())}
	m.sweep(end, w.add)
	contents[partBlocks], contents[partBuckets], header.shift = w.finish(uint32(end))
	contents[partStream] = w.stream
	contents[partFiles] = m.tables.encodeFiles()
	contents[partStrings], contents[partText] = m.tables.strings.encode(), m.tables.strings.text
	contents[partIdentity] = []byte(opt.Identity)
	contents[partSegments] = encodeSegments(f.image.segments)
	if !opt.NoColumns {
		header.flags |= indexHasColumns
	}
	if f.image.hasCode() {
		header.flags |= indexHasCode
	}
	return NewIndex(assembleIndex(header, contents), f.Name())
}
