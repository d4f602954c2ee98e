package symbol

import (
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"slices"
)

// entriesInBlock is how many entries a block has at most. More make the index
// smaller and each lookup slower.
const entriesInBlock = 12

// indexWriter writes the stream of an index and what leads to it.
type indexWriter struct {
	columns bool
	stream  []byte
	blocks  []blockStart
	pending []codePiece // of the block to come
	last    codePiece   // the last one that was added
}

type blockStart struct{ start, at uint32 }

// codePiece is a piece of code with one answer. It reaches to the next one.
type codePiece struct {
	start  uint32 // from the base
	part   *indexPart
	site   int32 // in part; -1 for a hole
	line   uint32
	column uint32
	symbol uint32 // number of the string, where the ELF symbol has another name

	at, caller uint32 // in the stream, the site and that of its caller
}

// sameAs reports whether two pieces have the same answer.
func (p *codePiece) sameAs(q *codePiece) bool {
	if p.site < 0 || q.site < 0 {
		return p.site < 0 && q.site < 0
	}
	return p.site == q.site && p.line == q.line && p.part == q.part && p.column == q.column && p.symbol == q.symbol
}

// add appends a piece. Pieces must come in the order of addresses.
func (w *indexWriter) add(p codePiece) {
	if len(w.pending) > 0 && p.sameAs(&w.last) {
		return
	}
	if len(w.pending) == entriesInBlock {
		w.flush()
	}
	w.pending = append(w.pending, p)
	w.last = p
}

// flush writes the pending pieces as a block, behind the sites that are new in it.
func (w *indexWriter) flush() {
	if len(w.pending) == 0 {
		return
	}
	for i := range w.pending {
		if p := &w.pending[i]; p.site >= 0 {
			w.site(p.part, p.site, p.symbol)
			p.at, p.caller = p.part.sites[p.site].at, p.part.sites[p.site].caller
		}
	}
	at := uint32(len(w.stream))
	w.blocks = append(w.blocks, blockStart{w.pending[0].start, at})
	var before *codePiece
	for i := range w.pending {
		p := &w.pending[i]
		length := uint32(0)
		if i+1 < len(w.pending) {
			length = w.pending[i+1].start - p.start
		}
		w.entry(p, before, length, at)
		if p.site >= 0 {
			before = p
		}
	}
	w.pending = w.pending[:0]
}

// entry writes an entry of the block at offset at. before is the last one that was
// no hole.
func (w *indexWriter) entry(p, before *codePiece, length, at uint32) {
	if p.site < 0 {
		w.head(entryHole, length)
		return
	}
	here, line := p.at, p.relativeLine()
	switch {
	case before != nil && before.at == here:
		w.move(line-before.relativeLine(), length)
	case before != nil && before.isInlined() && before.caller == here:
		w.head(entryCaller, length)
		w.signed(line - before.part.callLine(before.site))
	default:
		w.head(entrySite, length)
		w.number(at - here)
		w.signed(line)
	}
	if w.columns {
		w.number(p.column)
	}
}

// relativeLine returns the line, from the start of the function.
func (p *codePiece) relativeLine() int32 {
	return int32(p.line - p.part.functionOf(p.site).line)
}

// isInlined reports whether the piece's site was inlined into another.
func (p *codePiece) isInlined() bool { return p.part.sites[p.site].parent >= 0 }

// move writes an entry for the same site.
func (w *indexWriter) move(lines int32, length uint32) {
	if i := slices.Index(lineSteps[:], lines); i >= 0 {
		w.head(entryStep+byte(i), length)
		return
	}
	w.head(entryLine, length)
	w.signed(lines)
}

// head writes the first byte of an entry, and the length where it does not fit.
// The length 0 stands for the rest of the block.
func (w *indexWriter) head(kind byte, length uint32) {
	if length < lengthLong {
		w.stream = append(w.stream, kind<<4|byte(length))
		return
	}
	w.stream = append(w.stream, kind<<4|lengthLong)
	w.number(length - lengthLong)
}

func (w *indexWriter) number(n uint32) { w.stream = binary.AppendUvarint(w.stream, uint64(n)) }

func (w *indexWriter) signed(n int32) { w.number(uint32(n)<<1 ^ uint32(n>>31)) }

// site writes a site and the callers it needs, unless they are there.
func (w *indexWriter) site(part *indexPart, number int32, symbol uint32) {
	s := &part.sites[number]
	if s.written && s.symbol == symbol {
		return
	}
	if s.parent >= 0 {
		w.site(part, s.parent, symbol)
	}
	s.written, s.symbol, s.at = true, symbol, uint32(len(w.stream))
	fn := part.functionOf(number)
	flags := byte(0)
	if s.file != fn.file {
		flags |= siteFile
	}
	if s.parent >= 0 {
		flags |= siteInlined
	} else {
		flags |= byte(s.source) << siteSource
		if symbol != 0 {
			flags |= siteSymbol
		}
	}
	w.stream = append(w.stream, flags)
	w.number(fn.number)
	if flags&siteFile != 0 {
		w.number(s.file)
	}
	if s.parent < 0 {
		if symbol != 0 {
			w.number(symbol)
		}
		return
	}
	s.caller = part.sites[s.parent].at
	w.number(s.at - s.caller)
	w.signed(part.callLine(number))
	if w.columns {
		w.number(s.callColumn)
	}
}

// finish ends the code at end, and returns the blocks and the buckets that lead to
// them.
func (w *indexWriter) finish(end uint32) (blocks, buckets []byte, shift uint8) {
	w.add(codePiece{start: end, site: -1})
	w.flush()
	for _, b := range w.blocks {
		blocks = binary.LittleEndian.AppendUint32(blocks, b.start)
		blocks = binary.LittleEndian.AppendUint32(blocks, b.at)
	}
	shift = bucketShift(end, len(w.blocks))
	block := 0
	for k := uint64(0); ; k++ {
		for block+1 < len(w.blocks) && uint64(w.blocks[block+1].start) <= k<<shift {
			block++
		}
		buckets = binary.LittleEndian.AppendUint32(buckets, uint32(block))
		if k > uint64(end>>shift) {
			return blocks, buckets, shift
		}
	}
}

// bucketShift returns how many bits of an address do not tell its bucket, so that
// there are about as many buckets as blocks.
func bucketShift(end uint32, blocks int) uint8 {
	return uint8(bits.Len32(end / uint32(max(blocks, 1))))
}

// tables are the strings, files and functions of an index.
type tables struct {
	strings   stringTable
	files     []uint32       // numbers of strings
	byString  []int32        // number of the file with the path that is a string, plus 1
	functions []partFunction // in the order in which they were seen
	byKey     hashTable
	ranked    []int32 // functions in the order of their numbers
}

// partFunction is a function of an index.
type partFunction struct {
	name   uint32 // number of the string
	line   uint32
	file   uint32
	uses   uint32
	number uint32 // in the index
	lang   Lang
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
		from.functionNumbers = make([]uint32, len(from.functions))
	}
	n := &from.functionNumbers[number]
	if *n == 0 {
		f := &from.functions[number]
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

// rank gives numbers to the functions that have none: small ones to those that are
// used most, for small numbers take fewer bytes.
func (t *tables) rank() {
	start := len(t.ranked)
	var counts [manyUses + 1]int32 // of functions with so many uses, or more
	for i := start; i < len(t.functions); i++ {
		counts[min(t.functions[i].uses, manyUses)]++
	}
	var at [manyUses + 1]int32
	for uses := manyUses - 1; uses >= 0; uses-- {
		at[uses] = at[uses+1] + counts[uses+1]
	}
	t.ranked = append(t.ranked, make([]int32, len(t.functions)-start)...)
	ranked := t.ranked[start:]
	for i := start; i < len(t.functions); i++ {
		uses := min(t.functions[i].uses, manyUses)
		ranked[at[uses]] = int32(i)
		at[uses]++
	}
	slices.SortStableFunc(ranked[:at[manyUses]], func(a, b int32) int {
		return cmp.Compare(t.functions[b].uses, t.functions[a].uses)
	})
	for i, n := range ranked {
		t.functions[n].number = uint32(start + i)
	}
}

// manyUses is how many uses few functions have.
const manyUses = 255

// encodeFunctions returns the records of all functions.
func (t *tables) encodeFunctions() []byte {
	b := make([]byte, 0, len(t.ranked)*functionSize)
	for _, n := range t.ranked {
		f := &t.functions[n]
		b = binary.LittleEndian.AppendUint32(b, f.name)
		b = binary.LittleEndian.AppendUint32(b, f.line)
		b = binary.LittleEndian.AppendUint32(b, f.file|uint32(f.lang)<<24)
	}
	return b
}

func (t *tables) encodeFiles() []byte {
	var b []byte
	for _, n := range t.files {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	return b
}

// assembleIndex puts the parts behind a header.
func assembleIndex(h indexHeader, contents [parts][]byte) []byte {
	size := indexHeaderSize
	for i, c := range contents {
		h.parts[i] = part{uint32(size), uint32(len(c))}
		size = (size + len(c) + indexAlign - 1) &^ (indexAlign - 1)
	}
	data := make([]byte, size)
	for i, c := range contents {
		copy(data[h.parts[i].off:], c)
	}
	h.sum = crc32.Checksum(data[indexHeaderSize:], castagnoli)
	copy(data, h.encode())
	return data
}
