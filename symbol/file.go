package symbol

import (
	"cmp"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"hallmark/addr"
	"hallmark/reason"
)

// A File answers from the symbol tables of an ELF file, the best Source first. It is
// a Table.
//
// The headers are read at once, each table when it is first needed. No two
// sources are mixed in one answer.
type File struct {
	image   *image
	images  []*image // it, and that of the debug file
	sources []source // best first
	closers []io.Closer
}

// finder is a loaded table of one file. It returns nil for an address that it
// does not name.
type finder interface {
	find(addr.Virt) []Frame
}

// source is a table that is loaded when it is first needed.
type source struct {
	kind Source
	load func() (finder, error) // may be called by several goroutines at once
	// loadAt loads what answers for these addresses, and keeps nothing.
	loadAt func([]addr.Virt) (finder, error)
}

var _ Table = (*File)(nil)

// OpenFile opens the ELF file with this name, until Close. Something that is not
// a regular file is no ELF file, and cannot make the call wait.
func OpenFile(name string) (*File, error) {
	r, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f, err := newRegularFile(r)
	if err != nil {
		r.Close()
		return nil, err
	}
	f.closers = []io.Closer{r}
	return f, nil
}

func newRegularFile(r *os.File) (*File, error) {
	info, err := r.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &FormatError{r.Name(), ErrNotELF}
	}
	return NewFile(r, r.Name())
}

// NewFile returns the File that reads from r, for instance the image of a vdso, and
// does not close it; name is for messages. A malformed file is a *FormatError, which
// wraps ErrNotELF if the file is no ELF file at all.
func NewFile(r io.ReaderAt, name string) (*File, error) {
	m, err := readImage(r, name)
	if err != nil {
		return nil, err
	}
	f := &File{image: m, images: []*image{m}}
	if s := m.pclntabSection(); s != nil {
		f.add(SourcePclntab, func([]addr.Virt) (finder, error) { return m.loadPclntab(s) })
	}
	if s := m.sectionOfType(shtSYMTAB); s != nil {
		f.add(SourceSymtab, func(at []addr.Virt) (finder, error) { return m.loadSymtab(s, at) })
	}
	if s := m.section(".gnu_debugdata"); s != nil {
		f.add(SourceMiniDebug, func([]addr.Virt) (finder, error) { return m.loadMiniDebug(s) })
	}
	if s := m.sectionOfType(shtDYNSYM); s != nil {
		f.add(SourceDynsym, func(at []addr.Virt) (finder, error) { return m.loadSymtab(s, at) })
	}
	if len(m.pltSections()) > 0 {
		f.add(SourcePLT, func(at []addr.Virt) (finder, error) { return m.loadPLT(at) })
	}
	return f, nil
}

// add adds a source. load gets the addresses that are asked for, nil for all.
func (f *File) add(kind Source, load func([]addr.Virt) (finder, error)) {
	all := sync.OnceValues(func() (finder, error) { return load(nil) })
	f.sources = append(f.sources, source{kind, all, load})
}

// Join returns a File for the addresses of file that also answers from debug, the
// debug file made from it, whose own file offsets mean nothing. Closing it closes
// both.
func Join(file, debug *File) *File {
	joined := &File{
		image:   file.image,
		images:  slices.Concat(file.images, debug.images),
		sources: slices.Concat(debug.sources, file.sources),
		closers: slices.Concat(file.closers, debug.closers),
	}
	slices.SortStableFunc(joined.sources, func(a, b source) int {
		return cmp.Compare(a.kind, b.kind)
	})
	return joined
}

// Close closes the file that OpenFile opened. Lookups must not follow.
func (f *File) Close() error {
	var errs []error
	for _, c := range f.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Name returns the file's name, as OpenFile or NewFile got it.
func (f *File) Name() string { return f.image.name }

// Reader returns what the file is read from, for whoever wants to know more of it.
func (f *File) Reader() io.ReaderAt { return f.image.r }

// Sources returns which tables the file has, best first.
func (f *File) Sources() []Source {
	kinds := make([]Source, len(f.sources))
	for i, s := range f.sources {
		kinds[i] = s.kind
	}
	return slices.Compact(kinds)
}

// Load reads all tables now rather than when they are first needed, and returns
// what is wrong with them.
func (f *File) Load() error {
	var errs []error
	for _, s := range f.sources {
		_, err := s.load()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Segments returns the PT_LOAD segments in the order of the file. A relocatable
// file has none; its allocated sections, laid out from address 0, stand in.
func (f *File) Segments() []Segment { return slices.Clone(f.image.segments) }

// Virt returns the virtual address of the byte at a file offset. Where segments
// share bytes of the file, the executable one decides.
func (f *File) Virt(o addr.Offset) (addr.Virt, bool) { return virtAt(f.image.segments, o) }

func virtAt(segments []Segment, o addr.Offset) (addr.Virt, bool) {
	var v addr.Virt
	found := false
	for _, s := range segments {
		if s.holds(o) && (!found || s.Executable()) {
			v, found = addr.Virt(o-s.Offset)+s.Virt, true
		}
	}
	return v, found
}

// Offset returns the file offset of the byte at a virtual address. Memory that
// does not come from the file (.bss) has none.
func (f *File) Offset(v addr.Virt) (addr.Offset, bool) {
	for _, s := range f.image.segments {
		if v >= s.Virt && uint64(v-s.Virt) < s.FileSize {
			return addr.Offset(v-s.Virt) + s.Offset, true
		}
	}
	return 0, false
}

// LookupOffset answers for the instruction at a file offset. A debug file alone,
// whose code is elsewhere, cannot tell: reason.NoFile.
func (f *File) LookupOffset(o addr.Offset) Result {
	v, ok := f.Virt(o)
	switch {
	case ok:
		return f.LookupVirt(v)
	case f.image.hasCode():
		return Miss(f.missReason())
	default:
		return Miss(reason.NoFile)
	}
}

// LookupOffsets answers as LookupOffset does for each of the offsets. It reads of
// the tables what it needs for these and keeps nothing, which takes a fraction of
// the time and memory for loading them as long as it is called once.
func (f *File) LookupOffsets(offsets []addr.Offset) []Result {
	results := make([]Result, len(offsets))
	var left []unanswered
	for i, o := range offsets {
		v, ok := f.Virt(o)
		switch {
		case ok:
			left = append(left, unanswered{v, &results[i]})
			results[i] = Miss(f.missReason())
		case f.image.hasCode():
			results[i] = Miss(f.missReason())
		default:
			results[i] = Miss(reason.NoFile)
		}
	}
	own := copies{}
	for _, s := range f.sources {
		if len(left) > 0 {
			left = s.answer(left, own)
		}
	}
	return results
}

// copies has strings that are no parts of a table, which would keep all of it.
type copies map[string]string

func (c copies) of(s string) string {
	own, ok := c[s]
	if !ok {
		own = strings.Clone(s)
		c[own] = own
	}
	return own
}

// unanswered is an address without symbols yet, and where they belong.
type unanswered struct {
	at     addr.Virt
	result *Result
}

// answer fills in what the source knows, and returns what it does not.
func (s *source) answer(asked []unanswered, own copies) []unanswered {
	addresses := make([]addr.Virt, len(asked))
	for i, a := range asked {
		addresses[i] = a.at
	}
	table, err := s.loadAt(addresses)
	return slices.DeleteFunc(asked, func(a unanswered) bool {
		if err != nil {
			*a.result = Miss(reason.BadSymbols)
			return false
		}
		frames := table.find(a.at)
		for i := range frames {
			f := &frames[i]
			f.Func, f.Linkage, f.File = own.of(f.Func), own.of(f.Linkage), own.of(f.File)
		}
		if frames != nil {
			*a.result = Result{Frames: frames, Source: s.kind}
		}
		return frames != nil
	})
}

// LookupVirt answers for the instruction at a virtual address.
func (f *File) LookupVirt(v addr.Virt) Result {
	why := f.missReason()
	for _, s := range f.sources {
		table, err := s.load()
		if err != nil {
			why = reason.BadSymbols
			continue
		}
		if frames := table.find(v); frames != nil {
			return Result{Frames: frames, Source: s.kind}
		}
	}
	return Miss(why)
}

// AppendFrames appends the frames at a virtual address to dst, innermost first, and
// returns their source. Func of each is left empty, as by Index.AppendFrames.
func (f *File) AppendFrames(dst []Frame, v addr.Virt) ([]Frame, Source) {
	r := f.LookupVirt(v)
	for _, frame := range r.Frames {
		frame.Func = ""
		dst = append(dst, frame)
	}
	return dst, r.Source
}

// missReason returns why an address has no symbol if all tables are sound.
func (f *File) missReason() reason.Reason {
	if len(f.sources) == 0 {
		return reason.NoSymbolTable
	}
	return reason.NoSymbol
}
