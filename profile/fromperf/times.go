package fromperf

import (
	"encoding/binary"
	"math"

	"hallmark/perfdata"
)

// times keeps when samples were taken, in the order in which they were read: about six
// bytes for each.
type times struct {
	full  [][]byte // pieces of entries
	piece []byte   // the last one
	room  int      // for how many more bytes there is room
	last  uint64   // time of the last entry
	cut   int64    // times that there was no room for
}

const (
	// timesSize bounds the memory for the times of samples, in bytes: capture's has
	// the same bound.
	timesSize      = 32 << 20
	timesPieceSize = 64 << 10
	timesEntrySize = 2 * binary.MaxVarintLen64 // at most
)

func newTimes() *times { return &times{room: timesSize} }

// add notes the time of a sample of the stack that has a number, in ns of the recording's
// clock.
func (t *times) add(number int, at uint64) {
	if t.room < timesEntrySize {
		t.cut++
		return
	}
	if cap(t.piece)-len(t.piece) < timesEntrySize {
		t.full = append(t.full, t.piece)
		t.piece = make([]byte, 0, timesPieceSize)
	}
	before := len(t.piece)
	t.piece = binary.AppendUvarint(t.piece, uint64(number))
	t.piece = binary.AppendVarint(t.piece, int64(at-t.last))
	t.room -= len(t.piece) - before
	t.last = at
}

// all returns the times of each of so many stacks, moved by a distance. Those that are no
// time then are left out.
func (t *times) all(stacks int, move int64) [][]int64 {
	counts := make([]int, stacks)
	t.each(move, func(number int, _ int64) { counts[number]++ })
	out := make([][]int64, stacks)
	for i, n := range counts {
		out[i] = make([]int64, 0, n)
	}
	t.each(move, func(number int, at int64) { out[number] = append(out[number], at) })
	return out
}

func (t *times) each(move int64, do func(number int, at int64)) {
	var now uint64
	for _, piece := range append(t.full, t.piece) {
		for len(piece) > 0 {
			number, n := binary.Uvarint(piece)
			delta, m := binary.Varint(piece[n:])
			piece = piece[n+m:]
			now += uint64(delta)
			if at := int64(now) + move; now <= maxTime && at > 0 && at <= maxTime {
				do(int(number), at)
			}
		}
	}
}

// maxTime is far from every time (in 1970 + 146 years), and leaves room for
// whoever adds to one.
const maxTime = math.MaxInt64 / 2

// clockRealtime is CLOCK_REALTIME of clock_gettime(2): nanoseconds since 1970.
const clockRealtime = 0

// toWall is what makes nanoseconds since 1970 of a time of the recording. ok is false
// when the recording does not say: then perf was not asked for a clock (-k), and the
// kernel's own counts from about when the machine was started.
func toWall(info *perfdata.Info, e *perfdata.Event) (move int64, ok bool) {
	switch {
	case e.Attr.Flags&perfdata.AttrUseClockID != 0 && e.Attr.ClockID == clockRealtime:
		return 0, true
	case info.Clock != nil && info.Clock.Wall <= maxTime && info.Clock.Time <= maxTime:
		return int64(info.Clock.Wall) - int64(info.Clock.Time), true
	}
	return 0, false
}
