package unwind

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// rules numbers distinct rules in the order in which they are first met. Number 0 is
// the rule that says nothing.
type rules struct {
	list  []Rule
	slots []uint32 // number + 1 by hash; a power of two, at most half full
	last  uint32   // the number given last
}

func newRules() *rules {
	return &rules{list: []Rule{{}}, slots: newSlots(256, []Rule{{}})}
}

func newSlots(n int, list []Rule) []uint32 {
	slots := make([]uint32, n)
	for i := range list {
		at := list[i].hash()
		for slots[at&uint64(n-1)] != 0 {
			at++
		}
		slots[at&uint64(n-1)] = uint32(i + 1)
	}
	return slots
}

// number returns the number of a rule.
func (t *rules) number(r Rule) uint32 {
	if t.list[t.last] == r {
		return t.last
	}
	mask := uint64(len(t.slots) - 1)
	for at := r.hash(); ; at++ {
		slot := &t.slots[at&mask]
		if *slot == 0 {
			t.list = append(t.list, r)
			*slot = uint32(len(t.list))
			t.last = *slot - 1
			break
		}
		if t.list[*slot-1] == r {
			t.last = *slot - 1
			return t.last
		}
	}
	if 2*len(t.list) > len(t.slots) {
		t.slots = newSlots(2*len(t.slots), t.list)
	}
	return t.last
}

// words returns the rule's bytes, as doc.go says they are, as two numbers.
func (r *Rule) words() (first, second uint64) {
	first = uint64(r.Kind) | uint64(r.Register)<<8 | uint64(r.Flags)<<16 | uint64(uint8(r.RA))<<24 | uint64(uint32(r.Offset))<<32
	for i, s := range r.Saved {
		second |= uint64(uint8(s)) << (8 * i)
	}
	return first, second | uint64(uint8(r.Addend))<<48 | uint64(r.Link)<<56
}

// seeds make it impossible to write a file whose rules all have one hash. They do not
// change the numbers of rules.
var seeds = [2]uint64{rand.Uint64(), rand.Uint64()}

func (r *Rule) hash() uint64 {
	first, second := r.words()
	high, low := bits.Mul64(first^seeds[0], second^seeds[1])
	return high ^ low
}

func (r *Rule) put(b []byte) {
	first, second := r.words()
	binary.LittleEndian.PutUint64(b, first)
	binary.LittleEndian.PutUint64(b[8:], second)
}
