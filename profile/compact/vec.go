package compact

import "math"

// A vec is a list that grows in pieces: nothing is copied, and no old copy is garbage.
type vec[T any] struct {
	pieces [][]T
	n      int
}

const (
	pieceBits = 16
	pieceSize = 1 << pieceBits
)

func (v *vec[T]) add(x T) {
	if v.n&(pieceSize-1) == 0 {
		size := pieceSize
		if v.n == 0 {
			size = 16 // most profiles are small
		}
		v.pieces = append(v.pieces, make([]T, 0, size))
	}
	last := len(v.pieces) - 1
	v.pieces[last] = append(v.pieces[last], x)
	v.n++
}

func (v *vec[T]) at(i int) T { return v.pieces[i>>pieceBits][i&(pieceSize-1)] }

// A column is the values of one type, in four bytes each where they fit.
type column struct {
	short vec[int32]
	long  map[int][]int64 // by the number of the piece, in place of that
}

func (c *column) add(x int64) {
	piece := c.short.n >> pieceBits
	if long, ok := c.long[piece]; ok {
		c.long[piece] = append(long, x)
		c.short.n++
		return
	}
	if x >= math.MinInt32 && x <= math.MaxInt32 {
		c.short.add(int32(x))
		return
	}
	c.widen(piece, x)
}

// widen makes a piece one of long values.
func (c *column) widen(piece int, x int64) {
	if c.long == nil {
		c.long = map[int][]int64{}
	}
	if piece == len(c.short.pieces) {
		c.short.pieces = append(c.short.pieces, nil)
	}
	have := c.short.pieces[piece]
	long := make([]int64, 0, 2*max(8, len(have)))
	for _, v := range have {
		long = append(long, int64(v))
	}
	c.short.pieces[piece] = nil
	c.long[piece] = append(long, x)
	c.short.n++
}

func (c *column) at(i int) int64 {
	if short := c.short.pieces[i>>pieceBits]; short != nil {
		return int64(short[i&(pieceSize-1)])
	}
	return c.long[i>>pieceBits][i&(pieceSize-1)]
}

// An interner gives numbers to byte strings, each once.
type interner struct {
	bytes vec2
	hash  []uint32 // number + 1, 0 for none; its length is a power of two
}

// vec2 is byte strings one behind the other.
type vec2 struct {
	data  []byte
	start []uint32
}

func (v *vec2) len() int { return len(v.start) }

func (v *vec2) at(i int) []byte {
	end := len(v.data)
	if i+1 < len(v.start) {
		end = int(v.start[i+1])
	}
	return v.data[v.start[i]:end]
}

// number returns the number of a byte string, and whether it is new.
func (t *interner) number(b []byte) (uint32, bool) {
	if 4*(t.bytes.len()+1) > 3*len(t.hash) {
		t.grow()
	}
	mask := uint64(len(t.hash) - 1)
	for at := hashOf(b) & mask; ; at = (at + 1) & mask {
		n := t.hash[at]
		if n == 0 {
			t.bytes.start = append(t.bytes.start, uint32(len(t.bytes.data)))
			t.bytes.data = append(t.bytes.data, b...)
			t.hash[at] = uint32(t.bytes.len())
			return uint32(t.bytes.len() - 1), true
		}
		if string(t.bytes.at(int(n-1))) == string(b) {
			return n - 1, false
		}
	}
}

func (t *interner) grow() {
	hash := make([]uint32, max(64, 2*len(t.hash)))
	mask := uint64(len(hash) - 1)
	for i := range t.bytes.len() {
		at := hashOf(t.bytes.at(i)) & mask
		for hash[at] != 0 {
			at = (at + 1) & mask
		}
		hash[at] = uint32(i + 1)
	}
	t.hash = hash
}
