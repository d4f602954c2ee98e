package profile

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	pprof "github.com/google/pprof/profile"
	"github.com/klauspost/compress/zstd"
)

// DefaultMaxSize is ReadOptions.MaxSize where that is zero: 1 GiB.
const DefaultMaxSize = 1 << 30

// ErrTooLarge is the error for a profile beyond the bounds of ReadOptions. It arrives wrapped.
var ErrTooLarge = errors.New("profile is too large")

// ErrFormat is the error for what is no profile, or a damaged one. It arrives wrapped.
var ErrFormat = errors.New("not a profile")

// ReadOptions bounds what reading a profile may cost.
type ReadOptions struct {
	// MaxSize is the most bytes of the profile, uncompressed. Zero means DefaultMaxSize, and
	// that the profile in memory takes at most 256 MiB and eight times what it is in its file,
	// and less than that where it is only a few kilobytes there; who names a size has that memory.
	MaxSize int64

	// BaseMemory is what stands in place of the 256 MiB, where MaxSize is zero and it is not.
	BaseMemory int64

	// InFile returns how many bytes of the file have been read so far, where they are not
	// those of the Reader: who uncompresses them knows. Nil means that they are.
	InFile func() int64
}

// Limits returns how much a profile may take that is so many bytes in its file. A profile in
// memory takes a dozen times its uncompressed size, and few take more than the base.
func (o ReadOptions) Limits(inFile int64) Limits {
	if o.MaxSize != 0 || inFile < 0 { // nobody knows, of a stream
		return Limits{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64}
	}
	return Limits{
		Memory: min(cmp.Or(o.BaseMemory, memoryBase), smallBase+smallTimes*inFile) + memoryTimes*inFile,
		Text:   textBase + textTimes*inFile,
		Calls:  callsBase + callsTimes*inFile,
		Shown:  shownBase + inFile/shownPart,
	}
}

// Limits are what a profile may take and stand for.
type Limits struct {
	Memory int64 // bytes
	Text   int64 // bytes of all names, each as often as it is used
	Calls  int64 // of all stacks
	Shown  int64 // calls, where a page has all of them
}

// ReadFile reads the pprof profile in the file called name.
func ReadFile(name string, o ReadOptions) (*pprof.Profile, error) {
	p, _, err := ReadFileLimited(name, o)
	return p, err
}

// ReadFileLimited is ReadLimited for the file called name.
func ReadFileLimited(name string, o ReadOptions) (*pprof.Profile, Limits, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, Limits{}, err
	}
	defer f.Close()
	p, limits, err := ReadLimited(f, o)
	if err != nil {
		return nil, limits, fmt.Errorf("%s: %w", name, err)
	}
	return p, limits, nil
}

// Read reads a pprof profile, compressed by gzip or zstd or not at all, from r. Every profile that
// github.com/google/pprof reads will do, whoever made it.
func Read(r io.Reader, o ReadOptions) (*pprof.Profile, error) {
	p, _, err := ReadLimited(r, o)
	return p, err
}

// ReadLimited is Read, and returns also what else the profile may take: names and lines that
// it gets later make it larger.
func ReadLimited(r io.Reader, o ReadOptions) (*pprof.Profile, Limits, error) {
	data, limits, err := readAll(r, o)
	if err != nil {
		return nil, limits, err
	}
	p, err := pprof.ParseData(data)
	if err != nil {
		return nil, limits, formatError{err}
	}
	if err := Check(p, limits); err != nil {
		return nil, limits, err
	}
	return p, limits, nil
}

// formatError is an error of pprof's parser.
type formatError struct{ error }

func (formatError) Is(target error) bool { return target == ErrFormat }

// readAll returns the uncompressed bytes, of which the profile fits into memory.
// pprof.ParseData would uncompress them as well, but without any bound.
func readAll(r io.Reader, o ReadOptions) ([]byte, Limits, error) {
	data, limits, err := ReadData(r, o)
	if err != nil {
		return nil, limits, err
	}
	return data, limits, checkCost(data, limits.Memory)
}

// ReadData returns the uncompressed bytes of a profile in whatever format, with or without gzip, within the
// bounds of o. It returns also what the profile may take in memory, of which it checks nothing.
func ReadData(r io.Reader, o ReadOptions) ([]byte, Limits, error) {
	in := &counting{r: r}
	buffered := bufio.NewReader(in)
	r = buffered
	if isGzip(buffered) {
		gz, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, Limits{}, fmt.Errorf("decompressing profile: %w", err)
		}
		r = gz
	} else if magic, _ := buffered.Peek(len(zstdMagic)); string(magic) == zstdMagic {
		z, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, Limits{}, fmt.Errorf("decompressing profile: %w", err)
		}
		defer z.Close()
		r = z
	}
	inFile := func() int64 { return in.n }
	if o.InFile != nil {
		inFile = o.InFile
	}
	data, err := readPieces(r, func(n int64) error {
		if limit := cmp.Or(o.MaxSize, DefaultMaxSize); n > limit {
			return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
		}
		// They are there twice while they are put together, and no profile takes less than twice its bytes.
		if limit := o.Limits(inFile()).Memory / 2; n > limit {
			return fmt.Errorf("%w: more than %d bytes, of %d compressed", ErrTooLarge, limit, inFile())
		}
		return nil
	})
	limits := o.Limits(inFile())
	switch {
	case err != nil:
		return nil, limits, err
	case isGzip(bufio.NewReader(bytes.NewReader(data))):
		return nil, limits, errors.New("profile is compressed twice")
	}
	return data, limits, nil
}

const (
	zstdMagic  = "\x28\xb5\x2f\xfd"
	zstdWindow = 128 << 20 // the most memory that a file can have the decoder take, as the command zstd has it
)

// counting counts what is read.
type counting struct {
	r io.Reader
	n int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// readPieces reads all of r, and asks at each piece whether so many bytes may be read. The
// pieces are put together once: a buffer that doubles leaves as much garbage again.
func readPieces(r io.Reader, check func(n int64) error) ([]byte, error) {
	var pieces [][]byte
	size := int64(0)
	for {
		piece := make([]byte, max(64<<10, min(size/4, 16<<20)))
		n, err := 0, error(nil)
		for n < len(piece) && err == nil {
			var more int
			more, err = r.Read(piece[n:])
			n += more
		}
		pieces, size = append(pieces, piece[:n]), size+int64(n)
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("reading profile: %w", err)
		}
		if err := check(size); err != nil {
			return nil, err
		}
		if err == io.EOF {
			return slices.Concat(pieces...), nil
		}
	}
}

func isGzip(r *bufio.Reader) bool {
	magic, err := r.Peek(2)
	return err == nil && magic[0] == 0x1f && magic[1] == 0x8b
}
