package unwind

import (
	"context"
	"io"
	"runtime"
)

// BuildOptions say how a table is built. The zero value is right.
type BuildOptions struct {
	Context context.Context // its end is that of the build, with its error; nil: there is none
	Threads int             // how many goroutines work at it; 0: as many as run at once, at most 8
	// Small builds a table of a fourth of the functions, rows and call frame information at most, and of
	// the memory: for files of strangers, of which there may be many.
	Small bool
	Warn  func(error) // is called with what was left out because it is damaged, and its offset
}

// Build makes the table of an ELF file, or of the image of one in memory, as the vdso is.
// A file without call frame information has a table without rows. What files there can
// be no table for is an error that wraps ErrUnsupported, and what is no ELF file is one that wraps
// ErrNotELF. Call frame information that is damaged is left out and reported to
// BuildOptions.Warn: its code has no rules.
//
// The same file gives the same bytes, whatever the number of threads. The memory that it
// takes is a small multiple of the size of the call frame information, 1 GiB at most, and
// the time is bounded too: there is no table (ErrUnsupported) of a file with more than
// 16 Mi rows or 4 Mi functions, and sections of call frame information of more than
// 128 MiB are damage. Code that no function covers is looked at up to 256 MiB.
func Build(r io.ReaderAt, o BuildOptions) (*Table, error) {
	bounds := &boundedReader{r: r, ctx: o.Context, most: o.limits().read}
	f, err := openELF(bounds)
	if err != nil {
		return nil, err
	}
	f.maxCFI = o.limits().cfi
	b := newBuilder(f, o)
	b.bounds = bounds
	for _, source := range sources {
		if err := source(b); err != nil {
			return nil, err
		}
		if err := b.err(); err != nil {
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
