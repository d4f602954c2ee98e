package buildid

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"io"
)

const (
	htlSize  = 16   // bytes of an HTL ID
	htlPiece = 4096 // bytes of head and tail that are hashed
)

// Hash returns what OpenTelemetry's profilers call a file, which is no identity: files that
// differ in between have the same one. Of the size bytes in r it is the first 16 bytes of the
// SHA-256 over the first 4096 bytes, the last 4096 bytes (overlapping the first
// in a short file) and the length as a 64-bit big-endian number. OpenTelemetry
// defines it as the attribute process.executable.build_id.htlhash. No other function of this
// package returns an ID of kind HTL.
func Hash(r io.ReaderAt, size int64) (ID, error) {
	s := getSearch()
	defer s.release()
	s.open(r, 0)
	return s.hash(size)
}

func (m *image) hash(size int64) (ID, error) {
	n := min(size, htlPiece)
	if n < 0 {
		return ID{}, errLength
	}
	m.fill(&m.head, 0, htlPiece)
	m.fill(&m.moving, uint64(size-n), htlPiece)
	h := sha256.New()
	for _, w := range []*window{&m.head, &m.moving} {
		if int64(w.size) != n {
			return ID{}, cmp.Or(w.err, errLength)
		}
		h.Write(w.bytes[:n])
	}
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(size))
	h.Write(length[:])
	return ID{HTL, string(h.Sum(nil)[:htlSize])}, nil
}
