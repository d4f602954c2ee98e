package symbol

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
)

// stringTable holds one copy of each string, numbered from 0 in the order in which
// they came.
type stringTable struct {
	seed  maphash.Seed
	text  []byte
	ends  []uint32 // of each string in text
	slots []slot   // a hash table of a power of two, at most three quarters full
}

// slot is a string in the hash table. Most comparisons end with the hash.
type slot struct {
	hash   uint32
	number uint32 // plus 1; 0 for an empty slot
}

// number returns the number of a string, which is copied if it is new.
func (t *stringTable) number(s []byte) uint32 {
	if 4*len(t.ends) >= 3*len(t.slots) {
		t.grow()
	}
	hash := uint32(maphash.Bytes(t.seed, s))
	at := t.find(hash, func(number uint32) bool { return bytes.Equal(t.bytes(number), s) })
	if found := t.slots[at].number; found != 0 {
		return found - 1
	}
	t.text = append(t.text, s...)
	t.ends = append(t.ends, uint32(len(t.text)))
	t.slots[at] = slot{hash, uint32(len(t.ends))}
	return uint32(len(t.ends)) - 1
}

// find returns the slot of a string, or the empty one where it belongs.
func (t *stringTable) find(hash uint32, is func(number uint32) bool) int {
	mask := len(t.slots) - 1
	for at := int(hash) & mask; ; at = (at + 1) & mask {
		s := t.slots[at]
		if s.number == 0 || s.hash == hash && is(s.number-1) {
			return at
		}
	}
}

// bytes returns a string by its number.
func (t *stringTable) bytes(number uint32) []byte {
	start := uint32(0)
	if number > 0 {
		start = t.ends[number-1]
	}
	return t.text[start:t.ends[number]]
}

func (t *stringTable) grow() {
	if t.slots == nil {
		t.seed = maphash.MakeSeed()
	}
	old := t.slots
	t.slots = make([]slot, max(2*len(old), 1<<10))
	for _, s := range old {
		if s.number != 0 {
			t.slots[t.find(s.hash, func(uint32) bool { return false })] = s
		}
	}
}

// encode returns where each string ends, after where the first one starts.
func (t *stringTable) encode() []byte {
	ends := make([]byte, 4, 4*len(t.ends)+4)
	for _, end := range t.ends {
		ends = binary.LittleEndian.AppendUint32(ends, end)
	}
	return ends
}
