package capture

import (
	"encoding/binary"
	"time"

	"hallmark/internal/perfring"
)

// timeline keeps when samples were taken: about eight bytes for each, in the order
// in which they came.
type timeline struct {
	epoch int64    // ns from CLOCK_MONOTONIC to the time since 1970
	full  [][]byte // pieces of entries
	piece []byte   // the last one
	room  int      // for how many more bytes there is room
	last  int64    // time of the last entry, ns since 1970
	cut   uint64   // times that there was no room for
}

const (
	// timelineSize bounds the memory, in bytes.
	timelineSize = 32 << 20
	pieceSize    = 64 << 10
)

func newTimeline() *timeline {
	return &timeline{epoch: time.Now().UnixNano() - int64(perfring.Monotonic()), room: timelineSize}
}

// add notes when a stack was seen in an owner, in ns of CLOCK_MONOTONIC.
func (t *timeline) add(key counted, at uint64) {
	if t.room < 3*binary.MaxVarintLen64 {
		t.cut++
		return
	}
	if cap(t.piece)-len(t.piece) < 3*binary.MaxVarintLen64 {
		t.full = append(t.full, t.piece)
		t.piece = make([]byte, 0, pieceSize)
	}
	now, before := t.epoch+int64(at), len(t.piece)
	t.piece = binary.AppendUvarint(t.piece, uint64(key.stack))
	t.piece = binary.AppendUvarint(t.piece, uint64(key.owner))
	t.piece = binary.AppendVarint(t.piece, now-t.last)
	t.room -= len(t.piece) - before
	t.last = now
}

// times returns all times, in ns since 1970.
func (t *timeline) times() map[counted][]int64 {
	times, now := map[counted][]int64{}, int64(0)
	for _, piece := range append(t.full, t.piece) {
		for len(piece) > 0 {
			stack, n := binary.Uvarint(piece)
			owner, m := binary.Uvarint(piece[n:])
			delta, l := binary.Varint(piece[n+m:])
			piece = piece[n+m+l:]
			now += delta
			key := counted{uint32(stack), uint32(owner)}
			times[key] = append(times[key], now)
		}
	}
	return times
}
