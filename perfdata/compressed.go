package perfdata

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/klauspost/compress/zstd"
)

// packer turns records into compressed records: one zstd frame that goes on through
// all of them.
type packer struct {
	own *Encoder
	z   *zstd.Encoder
	out bytes.Buffer
}

// maxPacked is how many compressed bytes a record holds: as many as a header can say,
// in a multiple of 8.
const maxPacked = 0xfff8 - HeaderSize

func newPacker(own *Encoder) (*packer, error) {
	p := &packer{own: own}
	var err error
	// perf's decompressor has the window of a level 1 at least.
	p.z, err = zstd.NewWriter(&p.out, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	return p, nil
}

// pack returns COMPRESSED records that give data when they are unpacked after those before.
func (p *packer) pack(data []byte) ([]byte, error) {
	if len(data) == 0 {
		return nil, nil
	}
	p.out.Reset()
	if _, err := p.z.Write(data); err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	if err := p.z.Flush(); err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	var records []byte
	for packed := p.out.Bytes(); len(packed) > 0; {
		n := min(len(packed), maxPacked)
		var err error
		if records, err = p.own.Append(records, &Unknown{Type: TypeCompressed, Data: packed[:n]}); err != nil {
			return nil, err
		}
		packed = packed[n:]
	}
	return records, nil
}

// unpacker turns compressed records into records. perf compresses all of them as
// one zstd frame, which it flushes at the end of each compressed record but does
// not end: so the decompressor must stop where its input is used up for now, and go
// on later. It runs as a coroutine for that.
type unpacker struct {
	cutter cutter
	input  []byte // not consumed yet
	output []byte // not read yet
	next   func() ([]byte, bool)
	stop   func()
	err    error
}

// maxWindow is what a decompressor may remember: more than zstd's highest level needs.
const maxWindow = 128 << 20

var errStopped = errors.New("stopped")

func newUnpacker(pool *blocks, big bool) (*unpacker, error) {
	u := &unpacker{cutter: cutter{pool: pool, big: big}}
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	u.next, u.stop = iter.Pull(func(yield func([]byte) bool) {
		defer z.Close()
		in := &unpackerInput{u: u, yield: yield}
		if u.err = z.Reset(in); u.err != nil {
			return
		}
		buf := make([]byte, 64<<10)
		for {
			n, err := z.Read(buf)
			if n > 0 && !yield(buf[:n]) {
				return
			}
			if err != nil {
				u.err = err
				return
			}
		}
	})
	u.cutter.src = u
	u.cutter.start(0)
	return u, nil
}

// unpackerInput gives the decompressor what there is, and stops it where there is
// no more for now.
type unpackerInput struct {
	u     *unpacker
	yield func([]byte) bool
}

func (in *unpackerInput) Read(b []byte) (int, error) {
	for len(in.u.input) == 0 {
		if !in.yield(nil) {
			return 0, errStopped
		}
	}
	n := copy(b, in.u.input)
	in.u.input = in.u.input[n:]
	return n, nil
}

// feed adds a compressed record's data.
func (u *unpacker) feed(data []byte) { u.input = append(u.input, data...) }

// Read reads what is decompressed; io.EOF says that there is no more for now.
func (u *unpacker) Read(b []byte) (int, error) {
	for len(u.output) == 0 {
		if u.err != nil {
			return 0, fmt.Errorf("compressed records: %w", u.damage())
		}
		out, running := u.next()
		if !running {
			u.err = cmp.Or(u.err, errStopped)
			continue
		}
		if out == nil {
			return 0, io.EOF
		}
		u.output = out
	}
	n := copy(b, u.output)
	u.output = u.output[n:]
	return n, nil
}

// damage is the decompressor's error; an end within its input is none for now only.
func (u *unpacker) damage() error {
	if errors.Is(u.err, io.EOF) {
		return errors.New("they go on behind the end of the zstd frame")
	}
	return fmt.Errorf("zstd: %v", u.err)
}

func (u *unpacker) close() { u.stop() }
