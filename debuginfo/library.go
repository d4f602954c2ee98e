package debuginfo

import (
	"context"
	"fmt"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/reason"
	"hallmark/symbol"
)

// Symbols are all that is known of the code of one file: an index of it, or the file
// itself and its debug information. Its methods may be called by several goroutines
// at once.
type Symbols interface {
	symbol.Table

	// LookupOffsets answers as LookupOffset does for each of the offsets.
	LookupOffsets(offsets []addr.Offset) []symbol.Result

	// AppendFrames appends the frames at a virtual address to dst, innermost first, and
	// returns their source. Func of each is left empty: see symbol.Frame.Readable.
	AppendFrames(dst []symbol.Frame, v addr.Virt) ([]symbol.Frame, symbol.Source)

	// Virt returns the virtual address of the byte at a file offset.
	Virt(addr.Offset) (addr.Virt, bool)

	// Close gives everything back. Nothing that came from the Symbols may be used
	// afterwards.
	Close() error
}

var (
	_ Symbols = (*symbol.Index)(nil)
	_ Symbols = (*symbol.File)(nil)
)

// A Library has the symbols of files: prepared ones, and those that a Finder finds.
// The zero value uses what is on this machine. Its methods may be called by several
// goroutines at once.
type Library struct {
	Finder  Finder
	Indexes Indexes
}

// Open returns the symbols of the file with this identity, for the caller to close.
// The candidates are paths where that file may be. Without any it says why the first
// candidate that exists is not the file.
func (l *Library) Open(_ context.Context, id buildid.ID, candidates ...string) (Symbols, reason.Reason) {
	if x, err := l.Indexes.Open(id); err == nil {
		return x, reason.None
	}
	file, why := l.Finder.Open(id, candidates...)
	if file == nil {
		return nil, why
	}
	return file, reason.None
}

// OpenFile returns the symbols of the file with this name, which may be an index, for
// the caller to close.
func (l *Library) OpenFile(_ context.Context, name string) (Symbols, error) {
	if x, err := symbol.OpenIndex(name); err == nil {
		return x, nil
	}
	file, err := symbol.OpenFile(name)
	if err != nil {
		return nil, err
	}
	info, err := buildid.Read(file.Reader())
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if x, err := l.Indexes.Open(info.ID); err == nil {
		file.Close()
		return x, nil
	}
	return l.Finder.Complete(info.ID, file), nil
}
