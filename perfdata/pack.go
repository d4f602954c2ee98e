package perfdata

import (
	"bytes"
	"fmt"

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
