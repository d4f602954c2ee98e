package symbol

import (
	"cmp"
	"errors"
	"math"
	"sort"
	"sync"

	"hallmark/internal/elffile"
	"hallmark/internal/ranges"
	"hallmark/internal/symtab"
)

// merger puts what all sources say of the code of one file together, so that every
// address has the best answer: that of the debug information, with the line, and
// the symbol's name where it has none.
type merger struct {
	base    uint64
	parts   []*indexPart
	runs    ranges.List // values are indices in runList
	runList []codeRun
	symbols symbolCursor
	bare    indexPart          // of the functions that only a symbol names
	byName  []siteNumbers      // by layer, the sites that have no line
	bySite  map[bareSite]int32 // the others
	tables  tables

	lastSite  codeSite
	lastNamed namedBy // what symbolOf was asked last; at first of no symbol
	lastName  uint32

	room       int64     // for names of symbols; below 0 once there were too many bytes
	lastSymbol symbolRef // what symbolName was asked last; at first no symbol
	lastString uint32
}

// codeRun is a run of pieces of one of the parts.
type codeRun struct {
	partRun
	part int32
}

// bareSite is a function that only a symbol names, in a file of the index. Without a
// symbol it is lines of the file.
type bareSite struct {
	layer, index int
	file         uint32
}

// siteNumbers are the sites of bare by number of the symbol that names them, plus 1; 0 for
// none.
type siteNumbers []int32

// findRuns finds the runs of all units, and settles which has an address that several
// speak of: the first in the file that knows the function, or claims the address by its
// own entry. Where a linker kept another copy of a function than a unit's own, and the
// two have the same size, the debug information of the unit's is about the one that was
// kept: then there are functions where the kept one is none, but a thunk.
func (m *merger) findRuns() {
	n := 0
	for _, part := range m.parts {
		n += len(part.runs) + len(part.claims)
	}
	spans := make([]ranges.Span, 0, n)
	m.runList = make([]codeRun, 0, n)
	for number, part := range m.parts {
		for _, c := range part.claims {
			spans = append(spans, ranges.Span{
				Start: uint64(c.start), End: uint64(c.end), Value: uint32(len(m.runList)) + uint32(c.run), Rank: kindFunction,
			})
		}
		spans = m.appendRuns(spans, number, part)
	}
	m.settle(spans)
}

// addPart adds a part that only knows functions: where the runs before have none.
func (m *merger) addPart(part *indexPart) {
	spans := make([]ranges.Span, 0, len(m.runs.Starts)+len(part.runs))
	for i, start := range m.runs.Starts {
		number := m.runs.Values[i]
		spans = append(spans, ranges.Span{
			Start: start, End: start + uint64(m.runs.Sizes[i]), Value: number, Rank: m.kind(number),
		})
	}
	m.parts = append(m.parts, part)
	m.settle(m.appendRuns(spans, len(m.parts)-1, part))
}

// appendRuns appends the runs of a part with a number to spans and to the runList.
func (m *merger) appendRuns(spans []ranges.Span, number int, part *indexPart) []ranges.Span {
	for _, r := range part.runs {
		spans = append(spans, ranges.Span{
			Start: uint64(part.pieces[r.first].start), End: uint64(part.pieces[r.last].start),
			Value: uint32(len(m.runList)), Rank: part.pieces[r.first].kind(),
		})
		m.runList = append(m.runList, codeRun{r, int32(number)})
	}
	return spans
}

// settle makes the runs of spans.
func (m *merger) settle(spans []ranges.Span) {
	m.runs = ranges.Flatten(ranges.SortByStart(spans), func(a, b *ranges.Span) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Value, b.Value))
	})
}

// kind returns the kind of the pieces of a run.
func (m *merger) kind(number uint32) uint8 {
	r := &m.runList[number]
	return m.parts[r.part].pieces[r.first].kind()
}

// pieces returns the pieces of a run from start to end, and the one behind them.
func (m *merger) pieces(r *codeRun, start, end uint64) []partPiece {
	pieces := m.parts[r.part].pieces[r.first : r.last+1]
	if uint64(pieces[0].start) < start {
		pieces = pieces[searchPiece(pieces, start+1)-1:]
	}
	if n := len(pieces) - 1; uint64(pieces[n].start) > end {
		pieces = pieces[:searchPiece(pieces, end)+1]
	}
	return pieces
}

// searchPiece returns the number of pieces that start before v.
func searchPiece(pieces []partPiece, v uint64) int {
	return sort.Search(len(pieces), func(i int) bool { return uint64(pieces[i].start) >= v })
}

// use gives numbers to the functions and files of the sites that are used.
func (m *merger) use() {
	most := 0
	for _, part := range m.parts {
		most = max(most, part.from.functions.n)
	}
	if len(m.parts) == 0 { // all that is named is a symbol
		most = m.named()
		m.bare.sites = make([]partSite, 0, most)
	}
	m.tables.reserve(most)
	for i, start := range m.runs.Starts {
		r := &m.runList[m.runs.Values[i]]
		part, last := m.parts[r.part], int32(siteNone)
		pieces := m.pieces(r, start, start+uint64(m.runs.Sizes[i]))
		for i := range pieces[:len(pieces)-1] {
			if site := pieces[i].site; site >= 0 && site != last {
				m.useSite(part, site)
				last = site
			}
		}
	}
	m.tables.rank()
	for _, part := range m.parts {
		part.functions = m.tables.functions
	}
}

// named returns how much code symbols name.
func (m *merger) named() int {
	n := 0
	for _, l := range m.symbols.layers {
		n += len(l.Ranges.Starts)
	}
	return n
}

// useSite gives numbers to the functions and files of a site and its callers.
func (m *merger) useSite(part *indexPart, number int32) {
	for number >= 0 {
		s := &part.sites[number]
		if s.used {
			return
		}
		s.used = true
		s.file = m.tables.fileOf(part.from, s.file)
		s.function = m.tables.functionOf(part.from, s.function, s.file)
		if s.parent >= 0 {
			m.tables.functions[s.function].uses++
		}
		number = s.parent
	}
}

// sweep calls emit with all pieces of the code, in the order of addresses, up to
// end.
func (m *merger) sweep(end uint64, emit func(codePiece)) {
	pos := uint64(0)
	for i, start := range m.runs.Starts {
		m.sweepSymbols(pos, start, emit)
		pos = start + uint64(m.runs.Sizes[i])
		m.sweepRun(&m.runList[m.runs.Values[i]], start, pos, emit)
	}
	m.sweepSymbols(pos, end, emit)
}

// sweepSymbols emits the pieces from pos to end that the debug information does not
// know.
func (m *merger) sweepSymbols(pos, end uint64, emit func(codePiece)) {
	for pos < end {
		sym, until := m.symbols.at(m.base + pos)
		emit(m.barePiece(uint32(pos), sym, 0, 0, 0))
		pos = min(until-m.base, end)
	}
}

// sweepRun emits the pieces of a run from start to end.
func (m *merger) sweepRun(r *codeRun, start, end uint64, emit func(codePiece)) {
	part, pieces := m.parts[r.part], m.pieces(r, start, end)
	for i := range pieces[:len(pieces)-1] {
		p := &pieces[i]
		stop := min(uint64(pieces[i+1].start), end)
		for pos := max(uint64(p.start), start); pos < stop; {
			sym, until := m.symbols.at(m.base + pos)
			if p.site >= 0 {
				emit(codePiece{
					start: uint32(pos), part: part, site: p.site,
					line: p.line, column: p.column, symbol: m.symbolOf(part, p.site, sym),
				})
			} else {
				emit(m.barePiece(uint32(pos), sym, m.tables.fileOf(part.from, uint32(siteNone-1-p.site)), p.line, p.column))
			}
			pos = min(until-m.base, stop)
		}
	}
}

// barePiece returns a piece that only a symbol names, one of which only the line is
// known, or a hole.
func (m *merger) barePiece(start uint32, sym symbolRef, file, line, column uint32) codePiece {
	if sym.index < 0 && file == 0 {
		return codePiece{start: start, site: -1}
	}
	return codePiece{start: start, part: &m.bare, site: m.bareSite(sym, file), line: line, column: column}
}

// bareSite returns the site of a function that only a symbol names, or of lines of a file
// that no function has.
func (m *merger) bareSite(sym symbolRef, file uint32) int32 {
	if file == 0 && sym.index >= 0 {
		n := &m.byName[sym.layer][sym.index]
		if *n == 0 {
			*n = m.newBareSite(sym, file) + 1
		}
		return *n - 1
	}
	key := bareSite{sym.layer, sym.index, file}
	n, ok := m.bySite[key]
	if !ok {
		n = m.newBareSite(sym, file)
		m.bySite[key] = n
	}
	return n
}

func (m *merger) newBareSite(sym symbolRef, file uint32) int32 {
	name, source := uint32(0), SourceDWARF // the empty string, which the table has first
	if sym.index >= 0 {
		name = m.symbolName(sym)
		if file == 0 {
			source = m.symbols.layers[sym.layer].source
		}
	}
	function := m.tables.function(name, 0, LangUnknown, file)
	n := int32(len(m.bare.sites))
	m.bare.functions = m.tables.functions
	m.bare.sites = append(m.bare.sites, partSite{parent: -1, function: function, file: file, source: source})
	return n
}

// symbolOf returns the number of a symbol's name, 0 if there is none, or it is that
// of the function that a site is in.
func (m *merger) symbolOf(part *indexPart, site int32, sym symbolRef) uint32 {
	if sym.index < 0 {
		return 0
	}
	asked := codeSite{part, site}
	if asked == m.lastSite && sym == m.lastNamed.symbol {
		return m.lastName
	}
	m.lastSite = asked
	for part.sites[site].parent >= 0 {
		site = part.sites[site].parent
	}
	key := namedBy{part.sites[site].function, sym}
	if key != m.lastNamed {
		m.lastNamed, m.lastName = key, 0
		if name := m.symbolName(sym); name != part.functionOf(site).name {
			m.lastName = name
		}
	}
	return m.lastName
}

// symbolName returns the number of the string that a symbol's name is. Names may share the
// bytes of their table, so there is room for so many bytes of them in sum. Beyond it the answer
// is the empty string, and there is no index.
func (m *merger) symbolName(sym symbolRef) uint32 {
	if sym == m.lastSymbol {
		return m.lastString
	}
	m.lastSymbol, m.lastString = sym, 0
	if m.room < 0 {
		return 0
	}
	name := m.symbols.name(sym)
	if m.room -= int64(len(name)); m.room >= 0 {
		m.lastString = m.tables.string(name)
	}
	return m.lastString
}

// codeSite is a site of a part.
type codeSite struct {
	part *indexPart
	site int32
}

// namedBy is a function and the symbol at its address.
type namedBy struct {
	function int32
	symbol   symbolRef
}

// sizeNamed is how much of the stream code takes that only a symbol names: a site, and its part of
// a block.
const sizeNamed = 32

// streamSize guesses the size of the stream, so that it need not grow often.
func (m *merger) streamSize() int {
	size := sizeNamed * m.named()
	for _, part := range m.parts {
		size += 3*len(part.pieces) + 6*len(part.sites)
	}
	return size
}

// symbolCursor goes through the symbols of a file in the order of addresses. What
// an earlier layer does not name is looked for in the next.
type symbolCursor struct {
	layers []symbolLayer
	next   []int // of each layer, the first range that ends behind the last address

	// The last answer, and where it begins and ends.
	last         symbolRef
	since, until uint64
}

type symbolLayer struct {
	*symtab.Table
	source Source
}

// symbolRef is a symbol. index is -1 for none.
type symbolRef struct{ layer, index int }

// name returns the name of a symbol.
func (c *symbolCursor) name(sym symbolRef) string {
	l := &c.layers[sym.layer]
	return l.Name(sym.index)
}

// at returns the symbol at v and up to where it is the answer. Addresses must not
// go backwards.
func (c *symbolCursor) at(v uint64) (sym symbolRef, until uint64) {
	if v < c.since || v >= c.until {
		c.last, c.until = c.search(v)
		c.since = v
	}
	return c.last, c.until
}

func (c *symbolCursor) search(v uint64) (sym symbolRef, until uint64) {
	if len(c.next) == 0 {
		c.next = make([]int, len(c.layers))
	}
	until = math.MaxUint64
	for i := range c.layers {
		r := &c.layers[i].Ranges
		n := c.next[i]
		for n < len(r.Starts) && r.Starts[n]+uint64(r.Sizes[n]) <= v {
			n++
		}
		c.next[i] = n
		switch {
		case n == len(r.Starts):
		case r.Starts[n] <= v:
			return symbolRef{i, n}, min(until, r.Starts[n]+uint64(r.Sizes[n]))
		default:
			until = min(until, r.Starts[n])
		}
	}
	return symbolRef{index: -1}, until
}

// Index makes an index of all that the file's tables and debug information say.
func (f *File) Index(opt IndexOptions) (x *Index, err error) {
	defer containPanic(f.Name(), &err)
	f.renew()
	text := textOf(f.image)
	m := &merger{bySite: map[bareSite]int32{}, lastNamed: namedBy{symbol: symbolRef{index: -1}}, lastSymbol: symbolRef{index: -1}, room: minNames}
	m.tables.file("")
	end := uint64(0)
	if len(text) > 0 {
		m.base, end = text[0].Low, text[len(text)-1].High-text[0].Low
	}
	if end > math.MaxUint32 {
		return nil, &FormatError{Name: f.Name(), Err: errTooFar}
	}
	header := indexHeader{base: m.base}
	if d := f.debugImage(); d != nil {
		if opt.Threads != 1 {
			var loading sync.WaitGroup
			defer loading.Wait()
			loading.Go(f.loadTables)
		}
		c := companions{image: d, program: f.Name(), open: opt.Open, threads: opt.Threads}
		defer c.close() // names are in it until the index is made
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

// loadTables reads the symbol tables, so that they are there for addTables, which also
// says what is wrong with them.
func (f *File) loadTables() {
	for _, s := range f.sources {
		s.load()
	}
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
		case *symtab.Table:
			m.symbols.layers = append(m.symbols.layers, symbolLayer{table, s.kind})
			m.byName = append(m.byName, make(siteNumbers, len(table.Ranges.Starts)))
			clear(m.byName[len(m.byName)-1]) // as in hashTable.grow
			m.room += namesFactor * int64(len(table.Names))
		case *goTable:
			part, ok := table.indexPart(m.base, func(pc uint64) bool { return !m.isFunction(pc) })
			if !ok {
				return &FormatError{Name: f.Name(), Err: errShared}
			}
			if len(part.pieces) > 0 {
				m.addPart(part)
			}
		}
	}
	return nil
}

// isFunction reports whether the debug information has a function at v.
func (m *merger) isFunction(v uint64) bool {
	i, ok := m.runs.Find(v - m.base)
	if !ok {
		return false
	}
	return m.kind(m.runs.Values[i]) == kindFunction
}

var errShared = errors.New("tables of its pclntab are shared far too often")

// debugImage returns the image that has DWARF, or nil.
func (f *File) debugImage() *elffile.Image {
	for _, m := range f.images {
		if hasDWARF(m) {
			return m
		}
	}
	return nil
}

func (f *File) writeIndex(m *merger, header indexHeader, end uint64, opt IndexOptions) (*Index, error) {
	m.use()
	w := newIndexWriter(&m.tables, !opt.NoColumns, m.streamSize())
	starts := unnamedStarts{tables: &m.tables, bare: &m.bare}
	if described, err := describedIn(f.image); err == nil {
		starts.described = fromBase(described, m.base, end)
	}
	m.sweep(end, func(p codePiece) {
		w.add(p)
		starts.add(p)
	})
	if m.room < 0 {
		return nil, &FormatError{Name: f.Name(), Err: errLongNames}
	}
	w.finish(uint32(end))
	starts.until(end)
	var contents [parts][]byte
	contents[partDirectory], contents[partStream] = w.directory, w.stream
	contents[partGranules], header.width = w.encodeGranules()
	contents[partFunctions] = m.tables.encodeFunctions()
	contents[partFiles], contents[partLong] = m.tables.encodeFiles(), m.tables.long
	contents[partText] = m.tables.strings.encode()
	contents[partStarts] = encodeStarts(starts.kept)
	contents[partIdentity] = []byte(opt.Identity)
	if opt.Origin != "" {
		contents[partIdentity] = []byte(opt.Identity + "\n" + opt.Origin)
	}
	contents[partSegments] = encodeSegments(f.image.Segments)
	if !opt.NoColumns {
		header.flags |= indexHasColumns
	}
	if f.image.HasCode() {
		header.flags |= indexHasCode
	}
	if indexSize(contents) > math.MaxUint32 {
		return nil, &FormatError{Name: f.Name(), Err: errTooMuch}
	}
	return NewIndex(assembleIndex(header, contents), f.Name())
}
