package symbol

import (
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/bits"
	"slices"
)

// indexWriter writes the stream of an index and what leads to it.
type indexWriter struct {
	columns bool
	tables  *tables
	stream  []byte
	again   int // bytes of sites in it that had been written before

	directory []byte
	granules  []uint32 // blocks of granules, those of one chapter after another
	chapter   []uint32 // those that are not in a chapter yet

	granule uint32       // number of the one at hand
	pending []blockEntry // pieces in it
	sites   []blockSite  // of them
	last    codePiece    // the last one that was added
	whole   uint32       // block of the granule before if all of that is last, or 0
}

// codePiece is a piece of code with one answer. It reaches to the next one.
type codePiece struct {
	start  uint32 // from the base
	part   *indexPart
	site   int32 // in part; -1 for a hole
	line   uint32
	column uint32
	symbol uint32 // number of the string, where the ELF symbol has another name
}

// blockEntry is a piece in a block.
type blockEntry struct {
	codePiece
	at      uint32 // of the site in the stream
	inBlock uint32 // number of the site in the block
	inFunc  int32  // line, from the start of the site's function
}

// blockSite is a site that entries of a block are about.
type blockSite struct {
	at          uint32 // in the stream, 0 for holes
	first, last int32  // lowest and highest line
}

// sameAs reports whether two pieces have the same answer.
func (p *codePiece) sameAs(q *codePiece) bool {
	if p.site < 0 || q.site < 0 {
		return p.site < 0 && q.site < 0
	}
	return p.site == q.site && p.line == q.line && p.part == q.part && p.column == q.column && p.symbol == q.symbol
}

// newIndexWriter returns a writer whose stream will have about so many bytes.
func newIndexWriter(t *tables, columns bool, size int) *indexWriter {
	w := &indexWriter{columns: columns, tables: t, stream: make([]byte, 1, size+1)} // nothing is at 0
	w.start(codePiece{site: -1})
	return w
}

// add appends a piece. Pieces must come in the order of addresses.
func (w *indexWriter) add(p codePiece) {
	if p.sameAs(&w.last) {
		return
	}
	w.fill(p.start >> granuleBits)
	if p.start%granuleSize == 0 {
		w.pending, w.whole = w.pending[:0], 0
	}
	w.start(p)
}

// start begins a piece in the granule at hand.
func (w *indexWriter) start(p codePiece) {
	w.pending = append(w.pending, blockEntry{codePiece: p})
	w.last = p
}

// fill writes the granules before this one. The last piece reaches into it.
func (w *indexWriter) fill(granule uint32) {
	for ; w.granule < granule; w.granule++ {
		at := w.whole
		if at == 0 || len(w.pending) > 1 {
			at = w.block()
		}
		if w.chapter = append(w.chapter, at); len(w.chapter) == chapterSize {
			w.endChapter()
		}
		if w.whole = at; len(w.pending) > 1 {
			w.whole = 0
		}
		w.pending = w.pending[:0]
		w.last.start = (w.granule + 1) << granuleBits
		w.start(w.last)
	}
}

// endChapter writes a chapter, unless it is like the one before, as in long holes.
func (w *indexWriter) endChapter() {
	at := max(len(w.granules)-len(w.chapter), 0)
	if !slices.Equal(w.granules[at:], w.chapter) {
		at = len(w.granules)
		if at+len(w.chapter) > cap(w.granules) {
			w.granules = slices.Grow(w.granules, max(at, len(w.chapter)))
		}
		w.granules = append(w.granules, w.chapter...)
	}
	w.directory = binary.LittleEndian.AppendUint32(w.directory, uint32(at))
	w.chapter = w.chapter[:0]
}

// block writes the pending pieces, behind the sites that are new in them, and returns
// where; 0 if they are one hole.
func (w *indexWriter) block() uint32 {
	if len(w.pending) == 1 && w.pending[0].site < 0 {
		return 0
	}
	w.sites = w.sites[:0]
	for i := range w.pending {
		w.settle(&w.pending[i])
	}
	at := uint32(len(w.stream))
	h := w.header(at)
	w.stream = binary.LittleEndian.AppendUint32(w.stream, uint32(h))[:at+blockHeaderSize]
	for i := range w.pending[1:] {
		w.stream = append(w.stream, byte(w.pending[1+i].start%granuleSize))
	}
	fields := bitWriter{out: w.stream}
	siteBits, lineBits, columnBits := h.siteBits(), h.lineBits(), h.columnBits()
	for i := range w.pending {
		e := &w.pending[i]
		fields.put(e.inBlock, siteBits)
		fields.put(uint32(e.inFunc-w.sites[e.inBlock].first), lineBits)
		fields.put(e.column, columnBits)
	}
	for _, s := range w.sites {
		fields.put(s.distance(at), h.distanceBits())
		fields.put(uint32(s.first), h.firstLineBits())
	}
	w.stream = fields.end()
	return at
}

// settle writes the site of an entry unless it is there, and gives it a number in the
// block.
func (w *indexWriter) settle(e *blockEntry) {
	e.at, e.inFunc, e.column = 0, 0, e.columnIn(w.columns)
	if e.site >= 0 {
		e.at = w.site(e.part, e.site, e.symbol)
		e.inFunc = int32(e.line - e.part.functionOf(e.site).startLine())
	}
	n := 0
	for n < len(w.sites) && w.sites[n].at != e.at {
		n++
	}
	if n == len(w.sites) {
		w.sites = append(w.sites, blockSite{e.at, e.inFunc, e.inFunc})
	}
	s := &w.sites[n]
	e.inBlock, s.first, s.last = uint32(n), min(s.first, e.inFunc), max(s.last, e.inFunc)
}

// columnIn returns the column of a piece, 0 if there is none or it is out of all
// measure.
func (p *codePiece) columnIn(columns bool) uint32 {
	if !columns || p.site < 0 || p.column > math.MaxUint16 {
		return 0
	}
	return p.column
}

// header returns the header of the block at an offset.
func (w *indexWriter) header(at uint32) blockHeader {
	var column, line, distance, firstLine uint32 // all bits of all of them
	for i := range w.pending {
		column |= w.pending[i].column
	}
	for i := range w.sites {
		s := &w.sites[i]
		line |= uint32(s.last - s.first)
		distance |= s.distance(at)
		firstLine |= uint32(s.first)
	}
	need := blockWidths{
		site: bits.Len(uint(len(w.sites) - 1)), line: bits.Len32(line), column: bits.Len32(column),
		distance: bits.Len32(distance), firstLine: bits.Len32(firstLine),
	}
	return need.header(len(w.pending) - 1)
}

// distance returns how far a site is before its block, 0 for the one of holes.
func (s *blockSite) distance(block uint32) uint32 {
	if s.at == 0 {
		return 0
	}
	return block - s.at
}

// bitWriter appends numbers of so many bits to bytes, the lowest bit first.
type bitWriter struct {
	out  []byte
	word uint64
	used uint
}

// put appends the lowest bits of n, 32 at most.
func (b *bitWriter) put(n uint32, width uint) {
	b.word |= uint64(n) << b.used
	if b.used += width; b.used >= 32 {
		b.out = binary.LittleEndian.AppendUint32(b.out, uint32(b.word))
		b.word >>= 32
		b.used -= 32
	}
}

// end returns the bytes.
func (b *bitWriter) end() []byte {
	for b.used > 0 {
		b.out = append(b.out, byte(b.word))
		b.word >>= 8
		b.used -= min(b.used, 8)
	}
	return b.out
}

func (w *indexWriter) number(n uint32) { w.stream = binary.AppendUvarint(w.stream, uint64(n)) }

// site writes a site and the callers it needs, unless they are near, and returns where
// it is.
func (w *indexWriter) site(part *indexPart, number int32, symbol uint32) uint32 {
	s := &part.sites[number]
	if s.written && s.symbol == symbol && w.near(s.at) {
		return s.at
	}
	caller := uint32(0)
	if s.parent >= 0 {
		caller = w.site(part, s.parent, symbol)
	}
	at := uint32(len(w.stream))
	if s.parent >= 0 {
		w.inlinedSite(part, number, at-caller)
	} else {
		w.outerSite(part.functionOf(number), s, symbol)
	}
	if s.written {
		w.again += len(w.stream) - int(at)
	}
	s.written, s.symbol, s.at = true, symbol, at
	return at
}

// near reports whether what comes next in the stream may name the site at an offset.
// Where this would make the index much larger, which only takes absurd chains of
// calls, sites are not written again while there is another way.
func (w *indexWriter) near(at uint32) bool {
	distance := len(w.stream) - int(at)
	return distance <= nearSite || distance <= farSite && w.again > len(w.stream)/2
}

// outerSite writes a site that is not inlined.
func (w *indexWriter) outerSite(fn *partFunction, s *partSite, symbol uint32) {
	flags := byte(s.source) << siteSource
	if symbol != 0 {
		flags |= siteSymbol
	}
	w.stream = append(w.stream, flags)
	w.stream = w.tables.appendFunction(w.stream, fn, s.file)
	if symbol != 0 {
		at, size := w.tables.place(symbol)
		w.number(at)
		w.number(size)
	}
}

// inlinedSite writes a call that was inlined. The site of its caller is so far back.
func (w *indexWriter) inlinedSite(part *indexPart, number int32, back uint32) {
	s, fn := &part.sites[number], part.functionOf(number)
	function := fn.number << 1
	if s.file != fn.file {
		function |= 1
	}
	call := part.callLine(number)
	column := s.callColumn
	if !w.columns || column > math.MaxUint16 {
		column = 0
	}
	w.stream = append(w.stream, siteInlined|(numberSize(function)-1)<<1|(numberSize(back)-1)<<3|
		(numberSize(call)-1)<<5|(numberSize(column)-1)<<7)
	w.fixed(function)
	w.fixed(back)
	w.fixed(call)
	if w.columns {
		w.fixed(column)
	}
	if function&1 != 0 {
		w.number(s.file)
	}
}

// fixed writes a number in as many bytes as it needs.
func (w *indexWriter) fixed(n uint32) {
	size := len(w.stream) + int(numberSize(n))
	w.stream = binary.LittleEndian.AppendUint32(w.stream, n)[:size]
}

// numberSize returns how many bytes a number needs.
func numberSize(n uint32) byte { return byte(max(bits.Len32(n)+7, 8) / 8) }

// startLine returns the line that lines in a function are counted from.
func (f *partFunction) startLine() uint32 { return startLine(f.line) }

// finish ends the code at end.
func (w *indexWriter) finish(end uint32) {
	w.add(codePiece{start: end, site: -1})
	w.fill(uint32((uint64(end) + granuleSize - 1) >> granuleBits))
	if len(w.chapter) > 0 {
		w.endChapter()
	}
	w.stream = append(w.stream, make([]byte, streamPadding)...)
}

// encodeGranules returns the blocks of granules in as many bytes as they need, and how
// many that are of each.
func (w *indexWriter) encodeGranules() (b []byte, width uint8) {
	width = max(numberSize(uint32(len(w.stream))), minGranuleWidth)
	b = make([]byte, 0, len(w.granules)*int(width)+4)
	for _, at := range w.granules {
		size := len(b) + int(width)
		b = binary.LittleEndian.AppendUint32(b, at)[:size]
	}
	return append(b, 0), width // what is read of the last one is 4 bytes long
}

// tables are the strings, files and functions of an index.
type tables struct {
	strings   stringTable
	files     []uint32       // numbers of strings
	byString  []int32        // number of the file with the path that is a string, plus 1
	functions []partFunction // in the order in which they were seen
	byKey     hashTable
	ranked    []int32 // functions in the order of their numbers
	long      []byte  // where the strings are whose size a function's record cannot hold
}

// partFunction is a function of an index.
type partFunction struct {
	name   uint32 // number of the string
	line   uint32
	file   uint32
	uses   uint32 // how many inlined calls
	number uint32 // in the index, if there are any
	lang   Lang
}

// reserve makes room for n more functions.
func (t *tables) reserve(n int) {
	t.functions = slices.Grow(t.functions, n)
	t.byKey.reserve(t.byKey.used + n)
	t.strings.reserve(n)
}

// string returns the number of a string.
func (t *tables) string(s string) uint32 { return t.strings.number(s, hashString(s)) }

// file returns the number of a file.
func (t *tables) file(path string) uint32 {
	name := t.string(path)
	if missing := int(name) + 1 - len(t.byString); missing > 0 {
		t.byString = append(t.byString, make([]int32, missing)...)
	}
	n := &t.byString[name]
	if *n == 0 {
		t.files = append(t.files, name)
		*n = int32(len(t.files))
	}
	return uint32(*n) - 1
}

// fileOf returns the number of a file that has a number in parts.
func (t *tables) fileOf(from *partTables, number uint32) uint32 {
	if len(from.fileNumbers) == 0 {
		from.fileNumbers = make([]uint32, len(from.files))
	}
	n := &from.fileNumbers[number]
	if *n == 0 {
		*n = t.file(from.files[number]) + 1
	}
	return *n - 1
}

// functionOf returns which function has a number in parts, and one of whose sites is
// in file.
func (t *tables) functionOf(from *partTables, number int32, file uint32) int32 {
	if len(from.functionNumbers) == 0 {
		from.functionNumbers = make([]uint32, from.functions.n)
	}
	n := &from.functionNumbers[number]
	if *n == 0 {
		f := from.functions.at(uint32(number))
		*n = uint32(t.function(t.strings.number(f.name, f.hash), f.line, f.lang, file)) + 1
	}
	return int32(*n) - 1
}

// function returns the function with a name, a line where it starts and a language,
// one of whose sites is in file.
func (t *tables) function(name, line uint32, lang Lang, file uint32) int32 {
	t.byKey.room()
	hash := hashNumbers(uint64(name), uint64(line)<<8|uint64(lang))
	at := t.byKey.find(hash, func(number uint32) bool {
		f := &t.functions[number]
		return f.name == name && f.line == line && f.lang == lang
	})
	if at.number == 0 {
		t.byKey.fill(at, hash, uint32(len(t.functions)))
		t.functions = append(t.functions, partFunction{name: name, line: line, lang: lang, file: file})
	}
	return int32(at.number) - 1
}

// rank gives numbers to the functions that are inlined somewhere: small ones to those
// that are most often, for small numbers take fewer bytes.
func (t *tables) rank() {
	for i := range t.functions {
		if t.functions[i].uses > 0 {
			t.ranked = append(t.ranked, int32(i))
		}
	}
	slices.SortStableFunc(t.ranked, func(a, b int32) int {
		return cmp.Compare(t.functions[b].uses, t.functions[a].uses)
	})
	for i, n := range t.ranked {
		t.functions[n].number = uint32(i)
	}
}

// encodeFunctions returns the records of the functions that have numbers.
func (t *tables) encodeFunctions() []byte {
	b := make([]byte, 0, len(t.ranked)*functionSize)
	for _, n := range t.ranked {
		f := &t.functions[n]
		b = t.appendFunction(b, f, f.file)
	}
	return b
}

func (t *tables) encodeFiles() []byte {
	var b []byte
	for _, n := range t.files {
		at, size := t.place(n)
		b = binary.LittleEndian.AppendUint32(b, at)
		b = binary.LittleEndian.AppendUint32(b, size)
	}
	return b
}

// place returns where a string is in the text, and its size.
func (t *tables) place(number uint32) (at, size uint32) {
	return t.strings.starts[number], uint32(len(t.strings.strings[number]))
}

// appendFunction appends the record of a function, for code of it in a file.
func (t *tables) appendFunction(b []byte, f *partFunction, file uint32) []byte {
	at, size := t.place(f.name)
	if size >= longName {
		t.long = binary.LittleEndian.AppendUint32(t.long, at)
		t.long = binary.LittleEndian.AppendUint32(t.long, size)
		at, size = uint32(len(t.long)/placeSize-1), longName
	}
	if file > maxIndexFiles {
		file = 0
	}
	return newFunctionRecord(at, size, startLine(f.line), file, f.lang).append(b)
}

// indexSize returns how many bytes an index of these parts has.
func indexSize(contents [parts][]byte) uint64 {
	_, size := placeParts(contents)
	return size
}

// placeParts returns where the parts of an index begin, and how many bytes it has. There are as many checksums before
// the parts as there are blocks, those with checksums among them.
func placeParts(contents [parts][]byte) (at [parts]uint64, size uint64) {
	for before := uint64(0); ; before = size {
		size, _ = blockSums(before)
		for i, c := range contents {
			at[i] = size
			size = aligned(size + uint64(len(c)))
		}
		if size == before {
			return at, size
		}
	}
}

// assembleIndex puts the parts behind a header and the checksums.
func assembleIndex(h indexHeader, contents [parts][]byte) []byte {
	at, size := placeParts(contents)
	data := make([]byte, size)
	for i, c := range contents {
		h.parts[i] = part{uint32(at[i]), uint32(len(c))}
		copy(data[at[i]:], c)
	}
	sumBlocks(data)
	start, _ := blockSums(size)
	h.sum, h.size = crc32.Checksum(data[indexHeaderSize:start], castagnoli), uint32(size)
	copy(data, h.encode())
	return data
}
