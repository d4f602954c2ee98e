package unwind

import (
	"io"
	"runtime"
)

// BuildOptions say how a table is built. The zero value is right.
type BuildOptions struct {
	Threads int         // how many goroutines work at it; 0: as many as run at once, at most 8
	Warn    func(error) // is told what was left out because it is damaged, with its offset
}

// Build makes the table of an ELF file, or of the image of one in memory, as the vdso is.
// A file without call frame information has a table without rows. What files there can
// be no table for is an error that wraps ErrUnsupported, and what is no ELF file is
// ErrNotELF. Call frame information that is damaged is left out and told to
// BuildOptions.Warn: its code has no rules.
//
// The same file gives the same bytes, whatever the number of threads. The memory that it
// takes is a small multiple of the size of the call frame information.
func Build(r io.ReaderAt, o BuildOptions) (*Table, error) {
	f, err := openELF(r)
	if err != nil {
		return nil, err
	}
	b := newBuilder(f, o)
	for _, source := range sources {
		if err := source(b); err != nil {
			return nil, err
		}
	}
	return b.table()
}

// sources say what there is to know of a file, each in layers of its own, in the order of
// what they are worth. An error is one of reading: what is damaged is for builder.warn.
var sources = []func(*builder) error{
	(*builder).pclntab,
	(*builder).ehFrame,
	(*builder).debugFrame,
	(*builder).vdsoARM64,
	(*builder).plt,
	(*builder).known,
	(*builder).followed,
	(*builder).framePointers,
}

func (o *BuildOptions) threads() int {
	if o.Threads > 0 {
		return o.Threads
	}
	return min(runtime.GOMAXPROCS(0), 8)
}
