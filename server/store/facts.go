package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"hallmark/buildid"
	"hallmark/internal/defect"
	"hallmark/internal/elffile"
)

// Symbols says how much a file knows of its code, the least first.
type Symbols string

// How much files know.
const (
	NoSymbols Symbols = "none"
	Exported  Symbols = "exported"  // functions that other files may call: .dynsym, .gnu_debugdata
	Functions Symbols = "functions" // all functions: .symtab
	Lines     Symbols = "lines"     // functions, inlined calls, files and lines: .debug_info, .gopclntab
)

var ranks = []Symbols{NoSymbols, Exported, Functions, Lines}

func (s Symbols) rank() int { return slices.Index(ranks, s) }

// Facts are what the headers of a file say of it. Nothing in them is a claim of whoever
// brought the file.
type Facts struct {
	ID         buildid.ID      `json:"id"`
	Executable bool            `json:"executable"`           // it holds code or data that a process maps
	Debug      bool            `json:"debug"`                // it holds debug information
	Code       buildid.Content `json:"code,omitzero"`        // hash of its code, zero for a debug file
	Segments   string          `json:"segments,omitempty"`   // addresses and sizes of its code in memory
	Symbols    Symbols         `json:"symbols"`              // the best that it has
	DebugSize  int64           `json:"debug_size,omitempty"` // bytes of .debug_info, as they are stored
	Machine    uint16          `json:"machine,omitempty"`    // e_machine
	DwzID      string          `json:"dwz,omitempty"`        // build ID of the file that dwz put a part of the debug information into
}

// A FormatError says that a file cannot be taken for what it is: it is not ELF, or its headers
// are damaged.
type FormatError struct{ Err error }

func (e *FormatError) Error() string { return e.Err.Error() }
func (e *FormatError) Unwrap() error { return e.Err }

// maxSegments is how many segments of code a file is known by.
const maxSegments = 16

// sized is a file whose size is known, as buildid wants it.
type sized struct {
	io.ReaderAt
	size int64
}

func (s sized) Size() int64 { return s.size }

// Inspect reads the facts from a file of size bytes. An error other than that of ctx or of r is
// a *FormatError.
func Inspect(ctx context.Context, r io.ReaderAt, size int64, name string) (f Facts, err error) {
	if !defect.Escapes() {
		defer func() {
			if v := recover(); v != nil {
				err = &FormatError{defect.Caught(v)}
			}
		}()
	}
	image, f, err := headers(r, name)
	if err == nil && len(image.Sections) == 0 && len(image.Segments) == 0 {
		err = fmt.Errorf("%s: no sections and no segments", name)
	}
	if err == nil {
		err = isWhole(image, size, name)
	}
	if err != nil {
		return Facts{}, refuse(err)
	}
	info, err := buildid.ReadContext(ctx, sized{r, size})
	if err != nil {
		return Facts{}, refuse(err)
	}
	if info.ID.IsZero() {
		return Facts{}, refuse(fmt.Errorf("%s: it has no identity: %v", name, info.Where))
	}
	f.ID = info.ID
	if f.Executable {
		f.Code, err = buildid.ReadContent(ctx, sized{r, size})
		if errors.Is(err, buildid.ErrTooLarge) {
			err = nil
		}
	}
	return f, refuse(err)
}

// headers reads what the headers of a file say of it.
func headers(r io.ReaderAt, name string) (image *elffile.Image, f Facts, err error) {
	if image, err = elffile.Read(r, name); err != nil {
		return image, f, err
	}
	f = Facts{Machine: image.Machine}
	f.classify(image)
	return image, f, nil
}

// Headers reads from a file what its headers say: all facts but its identity and the hash of its code. Where r has not
// all of the headers, the error is its own or a *FormatError.
func Headers(r io.ReaderAt, name string) (f Facts, err error) {
	if !defect.Escapes() {
		defer func() {
			if v := recover(); v != nil {
				err = &FormatError{defect.Caught(v)}
			}
		}()
	}
	_, f, err = headers(r, name)
	return f, err
}

// SegmentsOf returns what Facts have of the machine and the segments of a file, of which r may have the first pages alone.
func SegmentsOf(r io.ReaderAt) (machine uint16, segments string) {
	image, _ := elffile.Read(r, "the file") // the section headers may be missing
	if image == nil {
		return 0, ""
	}
	return image.Machine, segmentsOf(image)
}

// isWhole returns an error where a file ends before its sections do, or before its segments if
// it has no sections.
func isWhole(m *elffile.Image, size int64, name string) error {
	cut := func(what string, off, n uint64) error {
		if end := off + n; end < off || end > uint64(size) {
			return fmt.Errorf("%s: %s ends at %d, behind the end of the file at %d: it was cut off", name, what, end, size)
		}
		return nil
	}
	for i := range m.Sections {
		if s := &m.Sections[i]; s.Type != elffile.SHT_NOBITS && s.Type != 0 {
			if err := cut("section "+s.Name, s.Offset, s.Size); err != nil {
				return err
			}
		}
	}
	if len(m.Sections) > 0 {
		return nil
	}
	for _, s := range m.Segments {
		if err := cut("a segment", uint64(s.Offset), s.FileSize); err != nil {
			return err
		}
	}
	return nil
}

// refuse returns an error as a FormatError, unless something else failed than the file.
func refuse(err error) error {
	var known *FormatError
	switch {
	case err == nil, errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return &FormatError{err}
}

// classify takes from the headers what the file is good for, as elfutils' server does it: a
// file with allocated contents is an executable, one with .debug_ sections a debug file.
func (f *Facts) classify(m *elffile.Image) {
	f.Symbols = NoSymbols
	for i := range m.Sections {
		f.look(m, &m.Sections[i])
	}
	if len(m.Sections) == 0 {
		f.Executable = m.HasCode()
	}
	// A debug file without DWARF has nothing but its symbols.
	f.Debug = f.Debug || !f.Executable && f.Symbols.rank() >= Functions.rank()
	f.Segments = segmentsOf(m)
}

func (f *Facts) look(m *elffile.Image, s *elffile.Section) {
	has := func(symbols Symbols) {
		if symbols.rank() > f.Symbols.rank() {
			f.Symbols = symbols
		}
	}
	if s.Type == elffile.SHT_NOBITS || s.Size == 0 {
		return
	}
	if s.Flags&elffile.SHF_ALLOC != 0 && s.Type == elffile.SHT_PROGBITS {
		f.Executable = true
	}
	switch name := s.Name; {
	case name == ".debug_info", name == ".zdebug_info":
		f.Debug = true
		f.DebugSize += int64(min(s.Size, 1<<50))
		has(Lines)
	case strings.HasPrefix(name, ".debug_"), strings.HasPrefix(name, ".zdebug_"):
		f.Debug = true
	case name == ".gopclntab", name == ".data.rel.ro.gopclntab":
		has(Lines)
	case s.Type == elffile.SHT_SYMTAB:
		has(Functions)
	case s.Type == elffile.SHT_DYNSYM, name == ".gnu_debugdata":
		has(Exported)
	case name == ".gnu_debugaltlink":
		f.DwzID = dwzID(m, s)
	}
}

// dwzID returns the build ID in .gnu_debugaltlink, which has a name, a NUL and the ID.
func dwzID(m *elffile.Image, s *elffile.Section) string {
	if s.Size > 1<<16 {
		return ""
	}
	b, err := m.Read(s.Offset, s.Size)
	if err != nil {
		return ""
	}
	_, id, _ := strings.Cut(string(b), "\x00")
	if id == "" || len(id) > buildid.MaxSize {
		return ""
	}
	parsed, err := buildid.New(buildid.GNU, []byte(id))
	if err != nil {
		return ""
	}
	return parsed.String()
}

// segmentsOf returns what a debug file keeps of the segments of code: addresses and sizes in
// memory.
func segmentsOf(m *elffile.Image) string {
	if m.Relocatable {
		return "relocatable"
	}
	var all []string
	for _, s := range m.Segments {
		if s.Executable() && s.MemSize > 0 {
			all = append(all, fmt.Sprintf("%x+%x", uint64(s.Virt), s.MemSize))
		}
	}
	if len(all) > maxSegments {
		all = append(all[:maxSegments], "…")
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// Fits reports whether a debug file can be that of an executable.
func Fits(exe, debug *Facts) bool {
	return exe.Machine == debug.Machine && (exe.Segments == "" || debug.Segments == "" || exe.Segments == debug.Segments)
}
