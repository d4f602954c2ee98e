package symbol

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"hallmark/addr"
	"hallmark/internal/cursor"
	"hallmark/internal/regular"
	"hallmark/reason"
)

// ErrNotIndex says that a file is no index, or one of another version.
var ErrNotIndex = errors.New("not an index of this version")

// An Index answers from an index: all that debug information and symbol tables say
// of the code of one file. It is a Table. It is never changed, and may be used by
// several goroutines at once.
type Index struct {
	indexHeader
	name     string
	data     []byte
	parts    [parts][]byte
	segments []Segment
	stream   []byte
	text     string
	mapping  []byte // to give back; nil for none
	blocks   blocks

	// Replace is called when a part of the index turns out to be damaged, once, with what is wrong. It returns what
	// answers instead, which the index closes with itself; nil for nothing: then no address has symbols. Nobody may
	// change it after the first lookup.
	Replace func(damage error) Substitute
}

var _ Table = (*Index)(nil)

// OpenIndex opens the index with this name, until Close. It is mapped into memory
// and not read: the first answer costs no more than looking at what it needs.
func OpenIndex(name string) (*Index, error) {
	f, err := regular.Open(name)
	if errors.Is(err, regular.ErrOther) {
		return nil, &FormatError{Name: name, Err: ErrNotIndex}
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return MapIndex(f)
}

// MapIndex is OpenIndex for a file that is open already, and may be closed afterwards.
func MapIndex(f *os.File) (*Index, error) {
	name := f.Name()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() < indexHeaderSize {
		return nil, &FormatError{Name: name, Err: ErrNotIndex}
	}
	data, err := syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	x, err := NewIndex(data, name)
	if err != nil {
		syscall.Munmap(data)
		return nil, err
	}
	x.mapping = data
	return x, nil
}

// NewIndex returns the Index in data, which must not be changed while it is used;
// name is for messages. The header and the checksums of blocks are checked. A block is checked
// when a lookup first needs it: see Damage.
func NewIndex(data []byte, name string) (*Index, error) {
	if len(data) < indexHeaderSize || string(data[:len(indexMagic)]) != indexMagic ||
		binary.LittleEndian.Uint32(data[atVersion:]) != indexVersion {
		return nil, &FormatError{Name: name, Err: ErrNotIndex}
	}
	if crc32.Checksum(data[:atHeaderSum], castagnoli) != binary.LittleEndian.Uint32(data[atHeaderSum:]) {
		return nil, indexDamage(name, atHeaderSum, "header is damaged")
	}
	x := &Index{indexHeader: decodeIndexHeader(data), name: name, data: data}
	if x.width < minGranuleWidth || x.width > maxGranuleWidth {
		return nil, indexDamage(name, atWidth, "header is implausible")
	}
	if uint64(x.size) > uint64(len(data)) {
		return nil, indexDamage(name, int64(len(data)), fmt.Sprintf("file was cut off: it had %d bytes", x.size))
	}
	data = data[:x.size]
	start, n := blockSums(uint64(len(data)))
	if start > uint64(len(data)) {
		return nil, indexDamage(name, atSize, "header is implausible")
	}
	if crc32.Checksum(data[indexHeaderSize:start], castagnoli) != x.sum {
		return nil, indexDamage(name, indexHeaderSize, "checksums of blocks are damaged")
	}
	x.data, x.blocks.checked = data, newBlocks(n)
	for i, p := range x.indexHeader.parts {
		if uint64(p.off) < start || uint64(p.off)+uint64(p.size) > uint64(len(data)) {
			return nil, indexDamage(name, int64(p.off), "part "+partNames[i]+" is outside the file")
		}
		x.parts[i] = data[p.off : p.off+p.size : p.off+p.size]
	}
	x.stream = x.parts[partStream]
	if text := x.parts[partText]; len(text) > 0 {
		x.text = unsafe.String(&text[0], len(text)) // data does not change
	}
	for _, part := range []int{partIdentity, partSegments} {
		if !x.hasWhole(part, 0, uint64(len(x.parts[part]))) {
			return nil, x.Damage()
		}
	}
	x.segments = decodeSegments(x.parts[partSegments])
	return x, nil
}

func indexDamage(name string, off int64, msg string) *FormatError {
	return &FormatError{Name: name, Err: &cursor.Error{Offset: off, Msg: msg}}
}

// Close gives back what OpenIndex mapped. Lookups must not follow, and no string
// that came from the Index may be used any more.
func (x *Index) Close() error {
	var err error
	x.blocks.once.Do(func() {}) // no lookup is under way: nothing is put in its place any more
	if s := x.blocks.substitute; s != nil {
		x.blocks.substitute = nil
		err = s.Close()
	}
	if x.mapping == nil {
		return err
	}
	mapping := x.mapping
	x.mapping = nil
	return cmp.Or(err, os.NewSyscallError("munmap", syscall.Munmap(mapping)))
}

// Bytes returns the index as it is in a file. It must not be changed.
func (x *Index) Bytes() []byte { return x.data }

// Name returns the name that the Index was opened with.
func (x *Index) Name() string { return x.name }

// Identity returns the identity of the file that the index was made from, as its
// maker wrote it, "" if it did not.
func (x *Index) Identity() string {
	id, _, _ := strings.Cut(string(x.parts[partIdentity]), "\n")
	return id
}

// Origin returns what the maker of the index wrote of that file, "" for nothing.
func (x *Index) Origin() string {
	_, origin, _ := strings.Cut(string(x.parts[partIdentity]), "\n")
	return origin
}

// Sources returns which tables the index was made from, best first.
func (x *Index) Sources() []Source {
	var kinds []Source
	for s := range Source(len(sourceNames)) {
		if x.sources&(1<<s) != 0 {
			kinds = append(kinds, s)
		}
	}
	return kinds
}

// HasCode reports whether the index was made from a file that holds its code.
func (x *Index) HasCode() bool { return x.flags&indexHasCode != 0 }

// Segments returns the PT_LOAD segments of the file that the index was made from.
func (x *Index) Segments() []Segment { return slices.Clone(x.segments) }

// Virt returns the virtual address of the byte at a file offset, as File.Virt does.
func (x *Index) Virt(o addr.Offset) (addr.Virt, bool) { return virtAt(x.segments, o) }

// LookupOffsets answers as LookupOffset does for each of the offsets. Names are made
// readable once for all of them.
func (x *Index) LookupOffsets(offsets []addr.Offset) []Result {
	names := readableNames{}
	results := make([]Result, len(offsets))
	for i, o := range offsets {
		if results[i] = x.lookupOffset(o, names); x.Damage() != nil {
			break
		}
	}
	if s := x.instead(); s != nil {
		return s.LookupOffsets(offsets)
	}
	return x.missing(results)
}

// missing returns results, where those of a damaged index are misses that nobody has looked up.
func (x *Index) missing(results []Result) []Result {
	if x.Damage() == nil {
		return results
	}
	for i, r := range results {
		if len(r.Frames) == 0 {
			results[i] = Miss(reason.BadSymbols)
		}
	}
	return results
}

// LookupVirts answers as LookupVirt does for each of the addresses.
func (x *Index) LookupVirts(addresses []addr.Virt) []Result {
	names := readableNames{}
	results := make([]Result, len(addresses))
	for i, v := range addresses {
		results[i] = x.lookupVirt(v, names)
	}
	return results
}

// LookupOffset answers for the instruction at a file offset. An index that was made
// from a debug file alone does not know: reason.DebugFileAlone.
func (x *Index) LookupOffset(o addr.Offset) Result { return x.lookupOffset(o, nil) }

// LookupVirt answers for the instruction at a virtual address.
func (x *Index) LookupVirt(v addr.Virt) Result { return x.lookupVirt(v, nil) }

func (x *Index) lookupOffset(o addr.Offset, names readableNames) Result {
	v, ok := virtAt(x.segments, o)
	if !ok || !x.HasCode() && isOutsideCode(x.segments, v) {
		return Miss(x.WhyNotOffset(o))
	}
	return x.lookupVirt(v, names)
}

// WhyNotOffset returns why nothing is known of a file offset that the index has no frames of.
func (x *Index) WhyNotOffset(o addr.Offset) reason.Reason {
	v, ok := virtAt(x.segments, o)
	if s := x.instead(); s != nil {
		return s.LookupOffset(o).Reason
	}
	switch {
	case !x.HasCode() && (!ok || isOutsideCode(x.segments, v)):
		return reason.DebugFileAlone
	case ok:
		return x.WhyNotVirt(v)
	default:
		return reason.NotCode
	}
}

func (x *Index) lookupVirt(v addr.Virt, names readableNames) (r Result) {
	defer containMiss(&r)
	frames, source := x.AppendFrames(nil, v)
	if len(frames) == 0 {
		return Miss(x.WhyNotVirt(v))
	}
	names.set(frames)
	return Result{Frames: frames, Source: source}
}

// WhyNotVirt returns why nothing is known of a virtual address that the index has no frames of.
func (x *Index) WhyNotVirt(v addr.Virt) reason.Reason {
	if s := x.instead(); s != nil {
		return s.LookupVirt(v).Reason
	}
	if x.Damage() != nil {
		return reason.BadSymbols
	}
	if isOutsideCode(x.segments, v) {
		return reason.NotCode
	}
	if x.sources == 0 {
		return reason.NoSymbolTable
	}
	return reason.NoSymbol
}

// encodeSegments writes the fields of segments one after another.
func encodeSegments(segments []Segment) []byte {
	var b []byte
	le := binary.LittleEndian
	for _, s := range segments {
		b = le.AppendUint64(b, uint64(s.Offset))
		b = le.AppendUint64(b, uint64(s.Virt))
		b = le.AppendUint64(b, s.FileSize)
		b = le.AppendUint64(b, s.MemSize)
		b = le.AppendUint64(b, uint64(s.Flags))
	}
	return b
}

func decodeSegments(b []byte) []Segment {
	var segments []Segment
	le := binary.LittleEndian
	for ; len(b) >= segmentSize; b = b[segmentSize:] {
		segments = append(segments, Segment{
			Offset: addr.Offset(le.Uint64(b)), Virt: addr.Virt(le.Uint64(b[8:])),
			FileSize: le.Uint64(b[16:]), MemSize: le.Uint64(b[24:]), Flags: uint32(le.Uint64(b[32:])),
		})
	}
	return segments
}
