package symbol

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"hallmark/addr"
	"hallmark/internal/elffile"
	"hallmark/internal/regular"
	"hallmark/internal/symtab"
	"hallmark/reason"
)

// ErrNotELF says that a file is no ELF file at all.
var ErrNotELF = elffile.ErrNotELF

// ErrTooMuch says that the tables of a file are more than can be in it: it has holes where they
// are said to be, or they are said to be in the same place. It arrives wrapped.
var ErrTooMuch = elffile.ErrTooMuch

// FormatError is damage found in a file: its Name, and an Err which is a *cursor.Error where the
// damage has an offset.
type FormatError = elffile.FormatError

// A Segment is a PT_LOAD program header: a part of the file that is mapped.
type Segment = elffile.Segment

// FileOptions say how a File answers. They may be set until the first lookup: a file is opened
// before it is known where its debug file is, and what that refers to. The zero value is right for
// a file that is alone.
type FileOptions struct {
	// Companion opens another file that holds a part of the debug information, as
	// IndexOptions.Open does. Without it there are no such files.
	Companion func(Companion) *File

	// NoDWARF leaves the debug information alone: answers come from one symbol table
	// each, without inlined calls except in Go, and cost little memory.
	NoDWARF bool

	// NoIndex keeps the File from making an index of itself. Without it the File does so
	// when it was asked for so many addresses that it pays, see Explored.
	NoIndex bool

	// MakeIndex makes the index that the File answers from then, and closes with itself,
	// for instance one that is kept for others. Nil means Index, in memory.
	MakeIndex func() (*Index, error)
}

// A File answers from what an ELF file says of its code: from its debug information,
// Go's pclntab and its symbol tables, the best Source first, and by the same rules as an
// Index of it, which is faster where many addresses are asked for. It is a Table.
//
// The headers are read at once, and all else when it is first needed: of the debug
// information the units that may have the address. Those that were read last are kept,
// and in the end, if many are asked for, an index in memory takes their place.
type File struct {
	FileOptions

	image   *elffile.Image
	images  []*elffile.Image // it, and that of the debug file
	sources []*source        // best first
	closers []io.Closer
	stored  *os.File                   // what Take has taken over
	debug   func() (*debugInfo, error) // the debug information, opened; nil without
	opened  atomic.Pointer[debugInfo]

	damage    atomic.Pointer[error] // that lookups met first
	using     sync.RWMutex          // held while debug is used; for writing when it is replaced
	switching sync.Once
	index     *Index // in place of debug; nil before
}

// finder is a loaded table of one file: a *symtab or a *goTable.
type finder any

// source is a table that is loaded when it is first needed.
type source struct {
	kind Source
	load func() (finder, error) // may be called by several goroutines at once
	// loadAt loads what answers for these addresses, and keeps nothing.
	loadAt func([]addr.Virt) (finder, error)

	asked  atomic.Int32
	loaded atomic.Bool
}

var _ Table = (*File)(nil)

// OpenFile opens the ELF file with this name, until Close. Something that is not
// a regular file is no ELF file, is not opened, and cannot make the call wait: so the name
// may be one that a stranger chose.
func OpenFile(name string) (*File, error) {
	r, err := regular.Open(name)
	return Take(r, name, err)
}

// Take is OpenFile for what opening the file has returned: it takes the file over.
func Take(r *os.File, name string, err error) (*File, error) {
	if errors.Is(err, regular.ErrOther) {
		return nil, &FormatError{Name: name, Err: ErrNotELF}
	}
	if err != nil {
		return nil, err
	}
	f, err := newStored(r, name)
	if err != nil {
		r.Close()
		return nil, err
	}
	f.closers, f.stored = []io.Closer{r}, r
	return f, nil
}

// newStored returns the File of an open file, which may be a kernel module that is compressed.
func newStored(r *os.File, name string) (*File, error) {
	if _, isPacked := UnpackedModule(name); !isPacked {
		return NewFile(r, name)
	}
	data, err := unpackModule(r, name)
	if err != nil {
		return nil, err
	}
	return NewFile(bytes.NewReader(data), name)
}

// NewFile returns the File that reads from r, for instance the image of a vdso, and
// does not close it; name is for messages. A malformed file is a *FormatError, which
// wraps ErrNotELF if the file is no ELF file at all.
func NewFile(r io.ReaderAt, name string) (f *File, err error) {
	err = contained(name, func() (err error) {
		f, err = newELF(r, name)
		return err
	})
	return f, err
}

func newELF(r io.ReaderAt, name string) (*File, error) {
	m, err := elffile.Read(r, name)
	if err != nil {
		return nil, err
	}
	f := newFile(m)
	if s, mixed := m.PclntabSections(); len(s) > 0 {
		f.add(SourcePclntab, func([]addr.Virt) (finder, error) { return loadPclntab(m, s, mixed) })
	}
	if s := m.SectionOfType(elffile.SHT_SYMTAB); s != nil {
		f.add(SourceSymtab, func(at []addr.Virt) (finder, error) { return symtab.Load(m, s, at) })
	}
	if s := m.Section(".gnu_debugdata"); s != nil {
		f.add(SourceMiniDebug, func([]addr.Virt) (finder, error) { return symtab.LoadMiniDebug(m, s) })
	}
	if s := m.SectionOfType(elffile.SHT_DYNSYM); s != nil {
		f.add(SourceDynsym, func(at []addr.Virt) (finder, error) { return symtab.Load(m, s, at) })
	} else if m.DynamicErr != nil {
		f.add(SourceDynsym, func([]addr.Virt) (finder, error) { return nil, m.DynamicErr })
	}
	if len(symtab.PLTSections(m)) > 0 {
		f.add(SourcePLT, func(at []addr.Virt) (finder, error) { return symtab.LoadPLT(m, at) })
	}
	return f, nil
}

// add adds a source. load gets the addresses that are asked for, nil for all.
func (f *File) add(kind Source, load func([]addr.Virt) (finder, error)) {
	loadAt := func(at []addr.Virt) (table finder, err error) {
		defer containPanic(f.Name(), &err)
		return load(at)
	}
	s := &source{kind: kind, loadAt: loadAt}
	s.load = sync.OnceValues(func() (finder, error) {
		defer s.loaded.Store(true)
		return loadAt(nil)
	})
	f.sources = append(f.sources, s)
}

// oneByOne is for how many addresses a table of symbols is read for that address
// alone. To read all of it takes four to nine times as long, so that no number of addresses costs
// more than twice the best way for so many.
const oneByOne = 4

// at returns what answers for an address.
func (s *source) at(v addr.Virt) (finder, error) {
	whole := s.kind == SourcePclntab || s.kind == SourceMiniDebug
	if whole || s.loaded.Load() || s.asked.Add(1) > oneByOne {
		return s.load()
	}
	return s.loadAt([]addr.Virt{v})
}

// Join returns a File for the addresses of file that also answers from debug, the
// debug file made from it, whose own file offsets mean nothing. Closing it closes
// both.
func Join(file, debug *File) *File {
	for _, m := range debug.images {
		if m != file.image {
			m.Program = file.image
		}
	}
	joined := newFile(slices.Concat(file.images, debug.images)...)
	joined.sources = slices.Concat(debug.sources, file.sources)
	joined.closers, joined.stored = slices.Concat(file.closers, debug.closers), file.stored
	joined.Companion, joined.NoDWARF, joined.NoIndex = file.Companion, file.NoDWARF, file.NoIndex
	if joined.Companion == nil {
		joined.Companion = debug.Companion
	}
	slices.SortStableFunc(joined.sources, func(a, b *source) int {
		return cmp.Compare(a.kind, b.kind)
	})
	return joined
}

// newFile returns the File of the first of images, without tables.
func newFile(images ...*elffile.Image) *File {
	f := &File{image: images[0], images: images}
	f.debug = sync.OnceValues(func() (*debugInfo, error) {
		d, err := openDebugInfo(f)
		f.opened.Store(d)
		return d, err
	})
	return f
}

// hasDebug reports whether the file answers from debug information.
func (f *File) hasDebug() bool { return !f.NoDWARF && f.debugImage() != nil }

// Close closes the file that OpenFile opened, and what lookups opened. None must
// follow.
func (f *File) Close() error {
	var errs []error
	if d := f.opened.Swap(nil); d != nil {
		d.close()
	}
	if f.index != nil {
		errs = append(errs, f.index.Close())
	}
	for _, c := range f.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Name returns the file's name, as OpenFile or NewFile got it.
func (f *File) Name() string { return f.image.Name }

// Stored returns the open file that f is of, nil where it is of none. A kernel module may be compressed in it.
func (f *File) Stored() *os.File {
	if f.stored != nil {
		return f.stored
	}
	r, _ := f.image.Reader.(*os.File)
	return r
}

// HasCode reports whether the file holds the code that its headers speak of: a debug file does not.
func (f *File) HasCode() bool { return f.image.HasCode() }

// Reader returns what the file is read from, for whoever wants to know more of it.
func (f *File) Reader() io.ReaderAt { return f.image.Reader }

// Sources returns which tables the file has, best first.
func (f *File) Sources() []Source {
	var kinds []Source
	if f.hasDebug() {
		kinds = append(kinds, SourceDWARF)
	}
	for _, s := range f.sources {
		kinds = append(kinds, s.kind)
	}
	return slices.Compact(kinds)
}

// Load reads all tables now rather than when they are first needed, and of the debug
// information where it has what, and returns what is wrong with them.
func (f *File) Load() error {
	f.renew()
	var errs []error
	if f.hasDebug() {
		_, err := f.debug()
		errs = append(errs, err)
	}
	for _, s := range f.sources {
		_, err := s.load()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Damage returns what is wrong with the tables that lookups have read so far, the first of it.
// They answer from what is sound.
func (f *File) Damage() error {
	if err := f.damage.Load(); err != nil {
		return *err
	}
	return nil
}

// EndWith has a context end the reading of the file: lookups that need more of it miss then, with
// reason.NotLookedUp.
func (f *File) EndWith(ctx context.Context) {
	for _, m := range f.images {
		m.EndWith(ctx)
	}
}

// renew is for what reads anew each time that it is called.
func (f *File) renew() {
	for _, m := range f.images {
		m.Renew()
	}
}

// Segments returns the PT_LOAD segments in the order of the file. A relocatable
// file has none; its allocated sections, laid out from address 0, stand in.
func (f *File) Segments() []Segment { return slices.Clone(f.image.Segments) }

// Virt returns the virtual address of the byte at a file offset. Where segments
// share bytes of the file, the executable one decides.
func (f *File) Virt(o addr.Offset) (addr.Virt, bool) { return virtAt(f.image.Segments, o) }

func virtAt(segments []Segment, o addr.Offset) (addr.Virt, bool) {
	var v addr.Virt
	found := false
	for _, s := range segments {
		if s.Holds(o) && (!found || s.Executable()) {
			v, found = addr.Virt(o-s.Offset)+s.Virt, true
		}
	}
	return v, found
}

// isOutsideCode reports whether an address is in no segment with code, where there are such.
func isOutsideCode(segments []Segment, v addr.Virt) bool {
	code := false
	for _, s := range segments {
		if s.Executable() && v >= s.Virt && uint64(v-s.Virt) < s.MemSize {
			return false
		}
		code = code || s.Executable()
	}
	return code
}

// Offset returns the file offset of the byte at a virtual address. Memory that
// does not come from the file (.bss) has none.
func (f *File) Offset(v addr.Virt) (addr.Offset, bool) {
	for _, s := range f.image.Segments {
		if v >= s.Virt && uint64(v-s.Virt) < s.FileSize {
			return addr.Offset(v-s.Virt) + s.Offset, true
		}
	}
	return 0, false
}

// LookupOffset answers for the instruction at a file offset. A debug file alone,
// whose code is elsewhere, does not know: reason.DebugFileAlone.
func (f *File) LookupOffset(o addr.Offset) Result {
	v, why := f.place(o)
	if why != reason.None {
		return Miss(why)
	}
	return f.LookupVirt(v)
}

// place returns the virtual address of an offset, or why there is none.
func (f *File) place(o addr.Offset) (addr.Virt, reason.Reason) {
	v, ok := f.Virt(o)
	switch {
	case !f.HasCode() && (!ok || isOutsideCode(f.image.Segments, v)):
		return 0, reason.DebugFileAlone
	case !ok:
		return 0, reason.NotCode
	}
	return v, reason.None
}

// LookupVirt answers for the instruction at a virtual address.
func (f *File) LookupVirt(v addr.Virt) (r Result) {
	defer containMiss(&r)
	r = f.lookup(v)
	for i := range r.Frames {
		r.Frames[i].Func = r.Frames[i].Readable()
	}
	return r
}

// AppendFrames appends the frames at a virtual address to dst, innermost first, and
// returns their source. Func of each is left empty, as by Index.AppendFrames.
func (f *File) AppendFrames(dst []Frame, v addr.Virt) ([]Frame, Source) {
	r := f.lookupContained(v)
	return append(dst, r.Frames...), r.Source
}

func (f *File) lookupContained(v addr.Virt) (r Result) {
	defer containMiss(&r)
	return f.lookup(v)
}

// missReason returns why an address has no symbol if all tables are sound.
func (f *File) missReason(v addr.Virt) reason.Reason {
	if isOutsideCode(f.image.Segments, v) {
		return reason.NotCode
	}
	if len(f.sources) == 0 && !f.hasDebug() {
		return reason.NoSymbolTable
	}
	return reason.NoSymbol
}
