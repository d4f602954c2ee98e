package buildid

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"sync"
	"syscall"
	"time"

	"hallmark/addr"
)

// ContentSize is the number of bytes of a Content: as many as perf.data has room for,
// and too many for anybody to find a second file with the same ones.
const ContentSize = 20

// Content is a hash of a file's code. A build ID is a claim of the file; Content is
// a property of the bytes, so it distinguishes two builds with one build ID. Contents are
// equal (==) when their bytes are, and serve as map keys. The zero Content is unknown.
//
// It covers the executable PT_LOAD segments, each with its place in the file and in
// memory and its size. So a program and its stripped copy have the same Content. Headers may be
// part of such a segment. Bytes that stripping changes do not count:
//
//   - e_shoff, if it is less than 2^36, e_shentsize, e_shnum and e_shstrndx, if they are valid,
//     count as 0;
//   - in program headers within the first 4 KiB, up to the first PT_TLS, p_filesz of a PT_LOAD
//     that is not executable counts as rounded up to a multiple of 64, and p_offset of a PT_TLS
//     without bytes in the file, if it is less than 2^31, as 0;
//   - section headers within the first 4 KiB count as 0 if they are those that Go's linker writes:
//     in the order of the file, where the segments have them, the others behind without gaps.
//
// All other bytes there count as what they are.
//
// A file without code of that kind, ELF or not, has the Content of all its bytes. A debug
// file has none: its headers describe code that is in another file. Sections show it, which
// nobody needs to execute a file: of what was executed, ReadMapped returns the Content.
//
// Segments whose bytes overlap so much that they are more than the file has are no code:
// no linker writes them, and to hash them would take longer than the size of the file says.
//
// The hash is the start of the SHA-256 over: a line that names this format; the class,
// the byte order and e_machine, 0 without segments; the number of segments, and p_offset,
// p_vaddr, p_filesz and p_memsz of each; and the SHA-256 of each piece of 1 MiB of each
// segment, or of the file. Numbers have 64 bits and are little-endian.
type Content struct{ sum [ContentSize]byte }

// contentFormat names what a Content is computed of, so that no other use of SHA-256
// gives the same value.
const contentFormat = "hallmark content 2\n"

const (
	contentPiece       = 1 << 20 // bytes that are hashed on their own, so that cores can share a file
	maxContent         = 1 << 30 // bytes that are read for one Content
	maxContentSegments = 256
)

var (
	// ErrTooLarge says that a file has more code than a Content is computed of, 1 GiB.
	ErrTooLarge = errors.New("more than 1 GiB of code to hash")
	// ErrChanging says that a file changed while its code was hashed.
	ErrChanging = errors.New("file changed while it was hashed")
	// ErrBudget says that a file has more code than the budget of the context has left.
	ErrBudget = errors.New("budget for hashing code is used up")
)

// A Budget says how many bytes of code may be hashed.
type Budget struct {
	Bytes  int64 // at once
	Second int64 // and so many more in each second, up to Bytes again
}

// WithBudget returns a context under which the functions of this package keep to a budget,
// all of them together. A file for which the rest is too small is not begun, and leaves the
// rest to others.
func WithBudget(ctx context.Context, b Budget) context.Context {
	return context.WithValue(ctx, budgetKey{}, &budget{Budget: b, left: b.Bytes, since: time.Now()})
}

type budgetKey struct{}

// budget is a Budget in use.
type budget struct {
	Budget
	mu    sync.Mutex
	left  int64
	since time.Time // of left
}

// charge takes what hashing will read from the budget, if there is one.
func charge(ctx context.Context, bytes uint64) error {
	b, ok := ctx.Value(budgetKey{}).(*budget)
	if !ok {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	more := min(now.Sub(b.since).Seconds()*float64(b.Second), float64(b.Bytes-b.left))
	b.left, b.since = b.left+int64(more), now
	if uint64(max(b.left, 0)) < bytes {
		return ErrBudget
	}
	b.left -= int64(bytes)
	return nil
}

// IsZero reports whether the content is unknown.
func (c Content) IsZero() bool { return c == Content{} }

// ID returns the identity of kind ByContent that a file of this content has when it claims
// none, and the zero ID for unknown content.
func (c Content) ID() ID {
	if c.IsZero() {
		return ID{}
	}
	return ID{ByContent, string(c.sum[:])}
}

// Content returns the content that an identity of kind ByContent names, and the zero
// Content for those of other kinds, which are claims.
func (id ID) Content() (c Content) {
	if id.kind == ByContent {
		copy(c.sum[:], id.bytes)
	}
	return c
}

// Bytes returns a copy of the bytes, nil for unknown content.
func (c Content) Bytes() []byte {
	if c.IsZero() {
		return nil
	}
	return slices.Clone(c.sum[:])
}

// NewContent returns the Content with these bytes, ContentSize of them.
func NewContent(b []byte) (c Content, err error) {
	if len(b) != ContentSize {
		return Content{}, errContent
	}
	copy(c.sum[:], b)
	return c, nil
}

var errContent = fmt.Errorf("content hash that has not %d bytes", ContentSize)

// String returns lower-case hexadecimal digits, "" for unknown content.
func (c Content) String() string { return hex.EncodeToString(c.Bytes()) }

// AppendText appends what String returns.
func (c Content) AppendText(b []byte) ([]byte, error) {
	if c.IsZero() {
		return b, nil
	}
	return hex.AppendEncode(b, c.sum[:]), nil
}

// ParseContent reads the form that String writes. The empty string is an error.
func ParseContent(s string) (Content, error) {
	var c Content
	if hex.DecodedLen(len(s)) != ContentSize {
		return c, fmt.Errorf("content %.80q: %w", s, errContent)
	}
	if _, err := hex.Decode(c.sum[:], []byte(s)); err != nil {
		return Content{}, fmt.Errorf("content %.80q: %w", s, err)
	}
	return c, nil
}

// MarshalText returns what String returns.
func (c Content) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads what MarshalText wrote: empty text is unknown content.
func (c *Content) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*c = Content{}
		return nil
	}
	got, err := ParseContent(string(text))
	if err != nil {
		return err
	}
	*c = got
	return nil
}

// ReadContent returns the Content of the file behind r, the zero one for a debug file. r
// has to report its size, as Read describes, if it is not ELF or has no code. Reading
// ends early, with its error, when ctx is done. Several processors share large files, so
// r.ReadAt is called by several goroutines at once. If r has a method Stat, as an os.File has,
// a change of the file meanwhile is ErrChanging.
//
// Malformed headers are a *FormatError; code outside the file is one, too. More than
// 1 GiB is ErrTooLarge, and more than the budget of ctx ErrBudget.
func ReadContent(ctx context.Context, r io.ReaderAt) (Content, error) {
	return readContent(ctx, r, false)
}

// ReadMapped is [ReadContent] for a file that code was executed from, or mapped to be: it is no
// debug file, whatever its sections say. The Content is never zero without an error.
func ReadMapped(ctx context.Context, r io.ReaderAt) (Content, error) {
	return readContent(ctx, r, true)
}

func readContent(ctx context.Context, r io.ReaderAt, isMapped bool) (Content, error) {
	s := getSearch()
	defer s.release()
	s.open(r, 0)
	return s.readContent(ctx, isMapped)
}

// readContent returns the Content of the file that s has open.
func (s *search) readContent(ctx context.Context, isMapped bool) (Content, error) {
	before := stateOf(s.r)
	c, err := s.hashCode(ctx, isMapped)
	if ctx.Err() == nil && stateOf(s.r) != before {
		return Content{}, ErrChanging
	}
	return c, err
}

// state is what changes of a file when its content does.
type state struct {
	size         int64
	mtime, ctime syscall.Timespec
}

// stateOf returns the state of the file behind r, the zero one where r has none.
func stateOf(r io.ReaderAt) state {
	var stat *syscall.Stat_t
	switch r := r.(type) {
	case *descriptor:
		stat = new(syscall.Stat_t)
		if syscall.Fstat(int(*r), stat) != nil {
			return state{}
		}
	case interface{ Stat() (fs.FileInfo, error) }:
		info, err := r.Stat()
		if err != nil {
			return state{}
		}
		stat, _ = info.Sys().(*syscall.Stat_t)
	}
	if stat == nil {
		return state{}
	}
	return state{stat.Size, stat.Mtim, stat.Ctim}
}

// hashCode is readContent for a file that nobody changes meanwhile.
func (s *search) hashCode(ctx context.Context, isMapped bool) (Content, error) {
	code, err := s.listCode()
	switch {
	case err != nil:
		return Content{}, err
	case code.debugOnly && !isMapped:
		return Content{}, nil
	case len(code.segments) == 0:
		size, err := s.trueSize()
		if err != nil {
			return Content{}, err
		}
		code.segments = []codeSegment{{fileSize: uint64(size)}}
		code.wholeFile = true
	}
	if err := code.checkSize(s.r); err != nil {
		return Content{}, err
	}
	return code.hash(ctx, s.r)
}

// trueSize returns the size of the file that s has open, if the head agrees with it: files
// that the kernel makes up say 0.
func (s *search) trueSize() (int64, error) {
	size, err := sizeOf(s.r)
	switch {
	case err != nil:
		return 0, err
	case size < 0:
		return 0, errNoSize
	case int64(s.head.size) != min(size, headSize):
		return 0, cmp.Or(s.head.err, errLength)
	}
	return size, nil
}

// code is what a Content is computed of.
type code struct {
	segments  []codeSegment
	class     byte
	order     byte
	machine   uint16
	debugOnly bool // the code is in another file
	wholeFile bool // segments has all of the file, which has no code of its own
	patches   []patch
}

// codeSegment is an executable PT_LOAD program header.
type codeSegment struct{ offset, virt, fileSize, memSize uint64 }

// span is a range of bytes of a file.
type span struct{ from, to uint64 }

// listCode reads the executable segments from the headers. A file that is not ELF has none.
func (s *search) listCode() (code, error) {
	if !s.isELF() {
		return code{}, s.err
	}
	var c code
	if s.readHeader() {
		c = s.codeOfHeader()
		s.listSegments()
		s.addCode(&c)
	}
	if s.damage == nil && s.err == nil && s.spent() {
		s.damage = &FormatError{Msg: "headers that take too many reads"}
	}
	switch {
	case s.err != nil:
		return code{}, s.err
	case s.damage != nil:
		return code{}, s.damage
	}
	return c, nil
}

// codeOfHeader returns what the ELF header says (gABI, "ELF Header").
func (s *search) codeOfHeader() code {
	l := s.layout
	b := s.at(0, l.headerSize())
	return code{class: b[4], order: b[5], machine: l.u16(b[18:])}
}

// addCode adds the executable segments that have bytes in the file.
func (s *search) addCode(c *code) {
	const ptLoadExecutable = 1 // PF_X of p_flags
	hasCode := false
	for i := uint64(0); ; i++ {
		b := s.entry(&s.programs, i)
		if b == nil {
			break
		}
		if s.layout.u32(b) != ptLoad || s.layout.flags(b)&ptLoadExecutable == 0 {
			continue
		}
		hasCode = true
		p := s.layout.segment(b)
		if p.size == 0 {
			continue
		}
		if len(c.segments) == maxContentSegments {
			s.damaged(addr.Offset(s.programs.pos), "more than %d segments of code", maxContentSegments)
			return
		}
		c.segments = append(c.segments, codeSegment{p.offset, p.vaddr, p.size, s.layout.memorySize(b)})
	}
	c.debugOnly = hasCode && (len(c.segments) == 0 || s.sectionsLackCode())
	s.patchHeaders(c)
}

// sectionsLackCode reports whether there are sections of code and none of them has bytes
// in the file. Debug files by elfutils keep the program headers of the program.
func (s *search) sectionsLackCode() bool {
	const (
		shtNoBits  = 8
		shfAlloc   = 2
		shfExecute = 4
	)
	l := s.layout
	if s.sections.count == 0 && s.sections.pos != 0 {
		s.sections.count, _ = s.sectionZero()
	}
	damage := s.damage
	defer func() { s.damage = damage }() // the loader does not need sections
	s.check(&s.sections, l.sectionHeaderSize())
	lacking := false
	for i := uint64(0); ; i++ {
		b := s.entry(&s.sections, i)
		if b == nil {
			return lacking
		}
		if flags := l.address(b[8:]); flags&(shfAlloc|shfExecute) != shfAlloc|shfExecute {
			continue
		}
		if l.u32(b[4:]) != shtNoBits {
			return false
		}
		lacking = true
	}
}

// flags returns p_flags of a program header, whose place depends on the class.
func (l layout) flags(b []byte) uint32 {
	if l.word == 4 {
		return l.u32(b[24:])
	}
	return l.u32(b[4:])
}

// memorySize returns p_memsz of a program header.
func (l layout) memorySize(b []byte) uint64 {
	if l.word == 4 {
		return uint64(l.u32(b[20:]))
	}
	return l.address(b[40:])
}

// hash reads the code.
func (c *code) hash(ctx context.Context, r io.ReaderAt) (Content, error) {
	pieces, size, err := c.pieces()
	if err == nil {
		err = charge(ctx, size)
	}
	if err != nil {
		return Content{}, err
	}
	if err := c.hashPieces(ctx, r, pieces); err != nil {
		return Content{}, err
	}
	h := sha256.New()
	io.WriteString(h, contentFormat)
	numbers := []uint64{uint64(c.class), uint64(c.order), uint64(c.machine), uint64(len(c.segments))}
	if c.wholeFile {
		numbers = []uint64{0, 0, 0, 0}
	}
	for _, s := range c.segments {
		numbers = append(numbers, s.offset, s.virt, s.fileSize, s.memSize)
	}
	for _, n := range numbers {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], n)
		h.Write(b[:])
	}
	for i := range pieces {
		h.Write(pieces[i].sum[:])
	}
	return NewContent(h.Sum(nil)[:ContentSize])
}

// piece is a range of the file that is hashed on its own.
type piece struct {
	span
	sum [sha256.Size]byte
}

// pieces cuts the segments into pieces, and returns how many bytes they have in all.
func (c *code) pieces() (pieces []piece, total uint64, err error) {
	for _, s := range c.segments {
		if s.offset > math.MaxInt64 || s.fileSize > math.MaxInt64-s.offset {
			return nil, 0, &FormatError{Offset: addr.Offset(s.offset), Msg: "segment outside the file"}
		}
		if total += min(s.fileSize, maxContent+1); total > maxContent {
			return nil, 0, ErrTooLarge
		}
		for at, end := s.offset, s.offset+s.fileSize; at < end; {
			to := min(at+contentPiece, end)
			pieces = append(pieces, piece{span: span{at, to}})
			at = to
		}
	}
	return pieces, total, nil
}

// checkSize returns an error for segments that have more bytes than the file. Those in front
// of one that lies outside of it would be read before that shows.
func (c *code) checkSize(r io.ReaderAt) error {
	var total, size uint64
	for _, s := range c.segments {
		total += min(s.fileSize, maxContent+1)
		size = max(size, s.offset+s.fileSize)
	}
	if n, err := sizeOf(r); err == nil && n > 0 { // files that the kernel makes up say 0
		if size > uint64(n) {
			return &FormatError{Offset: addr.Offset(n), Msg: "code outside the file"}
		}
		size = uint64(n)
	}
	if total > size && total <= maxContent {
		return &FormatError{Msg: "segments of code that overlap"}
	}
	return nil
}

// contentWorkers read a file at a time. More would take the machine from the programs
// that are observed.
const contentWorkers = 4

// hashPieces reads the pieces, several at a time.
func (c *code) hashPieces(ctx context.Context, r io.ReaderAt, pieces []piece) error {
	workers := min(contentWorkers, len(pieces))
	if workers <= 1 {
		return c.hashEach(ctx, r, pieces, 1)
	}
	errs := make([]error, workers)
	var running sync.WaitGroup
	for i := range workers {
		running.Go(func() { errs[i] = c.hashEach(ctx, r, pieces[i:], workers) })
	}
	running.Wait()
	return errors.Join(errs...)
}

var contentBuffers = sync.Pool{New: func() any { return new([256 << 10]byte) }}

// hashEach reads every step-th of the pieces.
func (c *code) hashEach(ctx context.Context, r io.ReaderAt, pieces []piece, step int) error {
	buffer := contentBuffers.Get().(*[256 << 10]byte)
	defer contentBuffers.Put(buffer)
	h := sha256.New()
	for i := 0; i < len(pieces); i += step {
		h.Reset()
		for at := pieces[i].from; at < pieces[i].to; {
			if err := ctx.Err(); err != nil {
				return err
			}
			b := buffer[:min(uint64(len(buffer)), pieces[i].to-at)]
			n, err := r.ReadAt(b, int64(at))
			if n < len(b) {
				switch {
				case err != nil && !errors.Is(err, io.EOF):
				case c.wholeFile:
					err = errLength
				default:
					err = &FormatError{Offset: addr.Offset(at + uint64(n)), Msg: "code outside the file"}
				}
				return err
			}
			c.blank(b, at)
			h.Write(b)
			at += uint64(n)
		}
		h.Sum(pieces[i].sum[:0])
	}
	return nil
}

// blank has the bytes b of the file, which begin at at, count as before stripping.
func (c *code) blank(b []byte, at uint64) {
	for i := range c.patches {
		c.patches[i].apply(b, at)
	}
}
