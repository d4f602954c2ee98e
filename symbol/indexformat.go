package symbol

import (
	"encoding/binary"
	"hash/crc32"
)

// indexVersion is that of the format. An index of another version counts as none.
//
//	1–4  before checksums of blocks: 4 had one of the whole file, which nobody looked at while it answered
//	5    a checksum for each block of 4096 bytes, behind the header
//	6    an inlined call without a name has a site: before, its code had the line of the call
const indexVersion = 6

// IndexVersion is the version of the format, for names of files and keys: indexes of several versions lie beside each
// other.
const IndexVersion = "v6"

// The fixed parts of an index; the package comment describes the format.
const (
	indexMagic      = "hallmark"
	indexHeaderSize = 128
	indexAlign      = 8
)

// Flags of the header.
const (
	indexHasColumns = 1 << iota
	indexHasCode    // made from a file that holds its code, so file offsets mean something
)

// The parts of an index, in the order in which they are in the file.
const (
	partIdentity = iota
	partSegments
	partDirectory
	partGranules
	partStream
	partFunctions
	partFiles
	partLong
	partText
	partStarts

	parts
)

var partNames = [parts]string{
	"identity", "segments", "directory", "granules", "stream", "functions", "files", "long", "text", "starts",
}

// Sizes of the records of parts.
const (
	segmentSize  = 40
	functionSize = 12
	placeSize    = 8
)

// A granule is a stretch of addresses with a block of its own. The directory has a
// number for so many granules.
const (
	granuleBits = 7
	granuleSize = 1 << granuleBits
	chapterBits = 7
	chapterSize = 1 << chapterBits

	minGranuleWidth = 3 // bytes in the file
	maxGranuleWidth = 4
)

// indexHeader is the start of an index.
type indexHeader struct {
	flags   uint32
	sources uint32 // bits, by Source
	width   uint8  // of granules in the file, in bytes
	base    uint64
	parts   [parts]part
	sum     uint32 // CRC-32C of the checksums of blocks
	size    uint32 // of the file
}

type part struct{ off, size uint32 }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Places of the fields in the header.
const (
	atVersion   = 8
	atFlags     = 12
	atSources   = 16
	atWidth     = 20
	atSum       = 24
	atSize      = 28
	atBase      = 32
	atParts     = 40
	atHeaderSum = indexHeaderSize - 4
)

func (h *indexHeader) encode() []byte {
	b := make([]byte, indexHeaderSize)
	le := binary.LittleEndian
	copy(b, indexMagic)
	le.PutUint32(b[atVersion:], indexVersion)
	le.PutUint32(b[atFlags:], h.flags)
	le.PutUint32(b[atSources:], h.sources)
	b[atWidth] = h.width
	le.PutUint32(b[atSum:], h.sum)
	le.PutUint32(b[atSize:], h.size)
	le.PutUint64(b[atBase:], h.base)
	for i, p := range h.parts {
		le.PutUint32(b[atParts+8*i:], p.off)
		le.PutUint32(b[atParts+8*i+4:], p.size)
	}
	le.PutUint32(b[atHeaderSum:], crc32.Checksum(b[:atHeaderSum], castagnoli))
	return b
}

func decodeIndexHeader(b []byte) indexHeader {
	le := binary.LittleEndian
	h := indexHeader{
		flags: le.Uint32(b[atFlags:]), sources: le.Uint32(b[atSources:]),
		width: b[atWidth], sum: le.Uint32(b[atSum:]), size: le.Uint32(b[atSize:]), base: le.Uint64(b[atBase:]),
	}
	for i := range h.parts {
		h.parts[i] = part{le.Uint32(b[atParts+8*i:]), le.Uint32(b[atParts+8*i+4:])}
	}
	return h
}

// The first byte of a site. Of an inlined one it has the sizes of its numbers, less 1.
const (
	siteInlined = 1 << 0 // has a caller
	siteSymbol  = 1 << 1 // not inlined: has a symbol with another name
	siteSource  = 2      // not inlined: bits from here on are the Source
)

// nearSite is how far before what refers to it a site is, save for what was written
// together with it. One that is farther away is written again, so that a lookup stays
// on a page or two, and distances are small. It is never farther than farSite.
const (
	nearSite = 1<<12 - 1
	farSite  = 1<<27 - 1
)

// maxSiteSize is the size of the largest site, and streamPadding how many bytes follow
// what is in the stream: whatever starts in it can be read without looking for the end.
const (
	maxSiteSize   = 32
	streamPadding = maxSiteSize
)

// blockHeader is the head of a block: 7 bits of how many entries it has behind the
// first, and the widths of their fields and those of its sites, in bits.
type blockHeader uint32

// blockHeaderSize is the size of a blockHeader in the stream.
const blockHeaderSize = 3

// Widths that do not stand for themselves in a block's header.
var (
	lineWidths     = [16]uint8{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 32}
	columnWidths   = [16]uint8{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16}
	distanceWidths = [8]uint8{6, 7, 8, 9, 10, 11, 13, 28}
	firstWidths    = [8]uint8{0, 2, 4, 6, 8, 10, 13, 32}
)

func (h blockHeader) more() uint64        { return uint64(h) % granuleSize }
func (h blockHeader) siteBits() uint      { return uint(h) >> 7 & 7 }
func (h blockHeader) lineBits() uint      { return uint(lineWidths[h>>10&15]) }
func (h blockHeader) columnBits() uint    { return uint(columnWidths[h>>14&15]) }
func (h blockHeader) distanceBits() uint  { return uint(distanceWidths[h>>18&7]) }
func (h blockHeader) firstLineBits() uint { return uint(firstWidths[h>>21&7]) }

// blockWidths are how many bits the highest numbers of a block need.
type blockWidths struct {
	site, line, column, distance, firstLine int
}

// header returns the header of a block with such numbers.
func (w *blockWidths) header(more int) blockHeader {
	return blockHeader(more | w.site<<7 | widthCode(lineWidths[:], w.line)<<10 |
		widthCode(columnWidths[:], w.column)<<14 | widthCode(distanceWidths[:], w.distance)<<18 | widthCode(firstWidths[:], w.firstLine)<<21)
}

// widthCode returns the number of the first width that is not less than bits.
func widthCode(widths []uint8, bits int) int {
	for code, width := range widths {
		if int(width) >= bits {
			return code
		}
	}
	return -1 // which cannot be: the last width is that of the largest number
}

// functionRecord is what an index knows of a function: in low from the lowest bit on
// 32 bits of name, 12 of size, and of line the lowest 20; and in high 4 bits of line,
// 22 of file and 6 of lang.
type functionRecord struct {
	low  uint64
	high uint32
}

const (
	longName      = 1<<12 - 1 // the size of names whose place and size is in a part of its own
	maxStart      = 1<<24 - 1 // of lines
	maxIndexFiles = 1<<22 - 1 // the highest number of a file
)

func newFunctionRecord(name, size, line, file uint32, lang Lang) functionRecord {
	return functionRecord{uint64(name) | uint64(size)<<32 | uint64(line)<<44, line>>20 | file<<4 | uint32(lang)<<26}
}

func (f functionRecord) name() uint64 { return f.low & (1<<32 - 1) } // place in the text, or number of a long one
func (f functionRecord) size() uint64 { return f.low >> 32 & longName }
func (f functionRecord) line() uint32 { return uint32(f.low>>44) | f.high&0xf<<20 }
func (f functionRecord) file() uint32 { return f.high >> 4 & maxIndexFiles }
func (f functionRecord) lang() Lang   { return Lang(f.high >> 26) }

func (f functionRecord) append(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(b, f.low), f.high)
}

func decodeFunction(b []byte) functionRecord {
	_ = b[functionSize-1]
	return functionRecord{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:])}
}

// startLine returns the line where a function starts, as an index has it: 0, which is
// that it is not known, where it is out of all measure.
func startLine(line uint32) uint32 {
	if line > maxStart {
		return 0
	}
	return line
}
