package symbol

import (
	"encoding/binary"
	"hash/crc32"
)

// The fixed parts of an index; the package comment describes the format.
const (
	indexMagic      = "hallmark"
	indexVersion    = 1
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
	partBuckets
	partBlocks
	partStream
	partFunctions
	partFiles
	partStrings
	partText

	parts
)

var partNames = [parts]string{
	"identity", "segments", "buckets", "blocks", "stream", "functions", "files", "strings", "text",
}

// Sizes of the records of parts.
const (
	segmentSize  = 40
	blockSize    = 8
	functionSize = 12
)

// indexHeader is the start of an index.
type indexHeader struct {
	flags   uint32
	sources uint32 // bits, by Source
	shift   uint8  // of buckets
	base    uint64
	parts   [parts]part
	sum     uint32 // CRC-32C of what follows the header
}

type part struct{ off, size uint32 }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Places of the fields in the header.
const (
	atVersion   = 8
	atFlags     = 12
	atSources   = 16
	atShift     = 20
	atSum       = 24
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
	b[atShift] = h.shift
	le.PutUint32(b[atSum:], h.sum)
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
		shift: b[atShift],
		sum:   le.Uint32(b[atSum:]), base: le.Uint64(b[atBase:]),
	}
	for i := range h.parts {
		h.parts[i] = part{le.Uint32(b[atParts+8*i:]), le.Uint32(b[atParts+8*i+4:])}
	}
	return h
}

// Kinds of entries in a block: the high four bits of its first byte.
const (
	entryHole   = 0
	entrySite   = 1 // another site: distance back to it, line from its function's start
	entryLine   = 2 // the same site, another line
	entryCaller = 3 // the caller of the site
	entryStep   = 4 // the same site, the line moved by one of lineSteps
)

// lineSteps are the moves that take no byte of their own.
var lineSteps = [12]int32{1, 2, 3, 4, 5, 6, 8, -1, -2, -3, -4, -5}

// Lengths of entries: the low four bits of the first byte.
const (
	lengthRest = 0  // up to the next block
	lengthLong = 15 // a number follows, of what is beyond 15
)

// Flags of sites.
const (
	siteInlined = 1 << iota // has a caller
	siteFile                // is in another file than its function mostly is
	siteSymbol              // not inlined: has a symbol with another name
	siteSource  = 3         // not inlined: bits from here on are the Source
)

// maxIndexFiles is the highest number of a file.
const maxIndexFiles = 1<<24 - 1
