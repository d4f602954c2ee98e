package compact

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"hallmark/profile"
)

// ReadFile reads the pprof profile in the file called name.
func ReadFile(name string, o profile.ReadOptions) (*Profile, error) {
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

// Read reads a pprof profile from r, compressed by gzip or zstd or not at all. It keeps
// nothing of the file but the parts of the profile, and takes memory only for what has
// arrived. Errors of the format are profile.ErrFormat and name the offset, uncompressed;
// profiles beyond the bounds are profile.ErrTooLarge.
func Read(r io.Reader, o profile.ReadOptions) (*Profile, error) {
	in := &counting{r: r}
	plain, stop, err := uncompressed(in)
	if err != nil {
		return nil, err
	}
	defer stop()
	inFile := in.n.Load
	if o.InFile != nil {
		inFile = o.InFile
	}
	buffered := bufio.NewReaderSize(plain, headSize)
	head, _ := buffered.Peek(headSize)
	switch {
	case bytes.HasPrefix(head, []byte("\x1f\x8b")), bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")):
		return nil, errors.New("profile is compressed twice")
	case isOld(head):
		own := o
		own.InFile = inFile
		p, err := profile.Read(buffered, own)
		if err != nil {
			return nil, err
		}
		return FromPprof(p)
	}
	d := newDecoder(buffered, o, inFile)
	return d.run()
}

const headSize = 64

// isOld reports whether a profile with this head is in one of the formats that pprof had before
// its protobuf: text, or words that begin with a zero.
func isOld(head []byte) bool {
	if len(head) > 0 && head[0] == 0 {
		return true
	}
	for i, b := range head {
		if b >= 0x7f || b < ' ' && (i == 0 || b != '\n' && b != '\t' && b != '\r') {
			return false
		}
	}
	return len(head) > 0
}
