package symbol

import (
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strings"
)

// hashTable finds numbers by the hash of what has them. Its size is a power of two,
// and it is at most three quarters full.
type hashTable struct {
	slots []slot
	used  int
}

// slot is an entry of a hashTable. Most comparisons end with the hash.
type slot struct {
	hash   uint32
	number uint32 // plus 1; 0 for an empty slot
}

// find returns the slot of what has a hash, or the empty one where it belongs. There
// must be room.
func (t *hashTable) find(hash uint32, is func(number uint32) bool) *slot {
	mask := len(t.slots) - 1
	for at := int(hash) & mask; ; at = (at + 1) & mask {
		s := &t.slots[at]
		if s.number == 0 || s.hash == hash && is(s.number-1) {
			return s
		}
	}
}

// fill makes an empty slot that of a number.
func (t *hashTable) fill(s *slot, hash, number uint32) {
	*s = slot{hash, number + 1}
	t.used++
}

// room makes room for one more.
func (t *hashTable) room() {
	if 4*t.used >= 3*len(t.slots) {
		t.grow(max(2*len(t.slots), 1<<10))
	}
}

// reserve makes room for n.
func (t *hashTable) reserve(n int) {
	size := 1 << 10
	for 3*size < 4*(n+1) {
		size *= 2
	}
	t.grow(max(size, len(t.slots)))
}

func (t *hashTable) grow(size int) {
	old := t.slots
	t.slots = make([]slot, size)
	// A search reads a slot before it fills it. The kernel maps its page of zeros for the read, and has
	// to take that away from every processor for the write; a write comes first here.
	clear(t.slots)
	for _, s := range old {
		if s.number != 0 {
			*t.find(s.hash, func(uint32) bool { return false }) = s
		}
	}
}

// Hashes are of this process alone: who makes a file cannot know which of its names
// collide.
var (
	hashSeed = maphash.MakeSeed()
	hashOdd  = [2]uint64{rand.Uint64() | 1, rand.Uint64() | 1}
)

func hashString(s string) uint32 { return uint32(maphash.String(hashSeed, s)) }

func hashNumbers(a, b uint64) uint32 { return uint32((a*hashOdd[0] + b*hashOdd[1]) >> 32) }

// stringTable numbers strings from 0 in the order in which they come.
type stringTable struct {
	hashTable
	strings []string
	starts  []uint32 // of each, if they stand one after another
	size    int      // of all
}

// number returns the number of a string with its hash.
func (t *stringTable) number(s string, hash uint32) uint32 {
	t.room()
	at := t.find(hash, func(number uint32) bool { return t.strings[number] == s })
	if at.number == 0 {
		t.fill(at, hash, uint32(len(t.strings)))
		t.strings = append(t.strings, s)
		t.starts = append(t.starts, uint32(t.size))
		t.size += len(s)
	}
	return at.number - 1
}

// reserve makes room for n more strings.
func (t *stringTable) reserve(n int) {
	t.strings, t.starts = slices.Grow(t.strings, n), slices.Grow(t.starts, n)
	t.hashTable.reserve(t.used + n)
}

// encode returns the strings, one after another.
func (t *stringTable) encode() []byte {
	text := make([]byte, 0, t.size)
	for _, s := range t.strings {
		text = append(text, s...)
	}
	return text
}

// stringArena copies strings into memory that they share.
type stringArena struct{ chunk strings.Builder }

// arenaChunk is how much memory is taken at once.
const arenaChunk = 64 << 10

func (a *stringArena) copy(s []byte) string {
	if a.chunk.Cap()-a.chunk.Len() < len(s) {
		a.chunk = strings.Builder{}
		a.chunk.Grow(max(len(s), arenaChunk))
	}
	start := a.chunk.Len()
	a.chunk.Write(s)
	return a.chunk.String()[start:]
}
