package profile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"

	pprof "github.com/google/pprof/profile"
)

// DefaultMaxSize is ReadOptions.MaxSize where that is zero: 1 GiB. A profile in
// memory takes several times its uncompressed size.
const DefaultMaxSize = 1 << 30

// ErrTooLarge is the error for a profile beyond ReadOptions.MaxSize.
var ErrTooLarge = errors.New("profile is too large")

// ReadOptions bounds what reading a profile may cost.
type ReadOptions struct {
	MaxSize int64 // most bytes of the profile, uncompressed; 0 means DefaultMaxSize
}

// ReadFile reads the pprof profile in the file called name.
func ReadFile(name string, o ReadOptions) (*pprof.Profile, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p, err := Read(f, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// Read reads a pprof profile, with or without gzip, from r. Every profile that
// github.com/google/pprof reads will do, whoever made it.
func Read(r io.Reader, o ReadOptions) (*pprof.Profile, error) {
	data, err := readAll(r, o)
	if err != nil {
		return nil, err
	}
	return pprof.ParseData(data)
}

// readAll returns the uncompressed bytes. pprof.ParseData would uncompress them
// as well, but without any bound.
func readAll(r io.Reader, o ReadOptions) ([]byte, error) {
	limit := o.MaxSize
	if limit == 0 {
		limit = DefaultMaxSize
	}
	buffered := bufio.NewReader(r)
	r = buffered
	if isGzip(buffered) {
		gz, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, fmt.Errorf("decompressing profile: %w", err)
		}
		r = gz
	}
	var data bytes.Buffer
	n, err := data.ReadFrom(io.LimitReader(r, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading profile: %w", err)
	case n > limit:
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	case isGzip(bufio.NewReader(bytes.NewReader(data.Bytes()))):
		return nil, errors.New("profile is compressed twice")
	}
	return data.Bytes(), nil
}

func isGzip(r *bufio.Reader) bool {
	magic, err := r.Peek(2)
	return err == nil && magic[0] == 0x1f && magic[1] == 0x8b
}
