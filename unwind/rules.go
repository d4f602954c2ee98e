package unwind

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// packed is a rule's bytes, as doc.go says they are, as two numbers.
type packed [2]uint64

// rules numbers distinct rules in the order in which they are first met. Number 0 is
// the rule that says nothing.
type rules struct {
	list  []packed
	slots []uint32 // number + 1 by hash; a power of two, at most half full
	last  uint32   // the number given last
	full  bool     // there are more than maxDistinct
}

// maxDistinct is how many distinct rules a source may have. The largest programs have
// little more than a thousand.
const maxDistinct = 1 << 20

func newRules() *rules {
	list := make([]packed, 1, 128)
	return &rules{list: list, slots: newSlots(256, list)}
}

func newSlots(n int, list []packed) []uint32 {
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
func (t *rules) number(r packed) uint32 {
	if t.list[t.last] == r {
		return t.last
	}
	mask := uint64(len(t.slots) - 1)
	for at := r.hash(); ; at++ {
		slot := &t.slots[at&mask]
		if *slot == 0 {
			if t.full = t.full || len(t.list) == maxDistinct; t.full {
				return 0
			}
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

func (r *Rule) pack() packed {
	first := uint64(r.Kind) | uint64(r.Register)<<8 | uint64(r.Flags)<<16 | uint64(uint8(r.RA))<<24 | uint64(uint32(r.Offset))<<32
	s := &r.Saved
	second := uint64(uint8(s[0])) | uint64(uint8(s[1]))<<8 | uint64(uint8(s[2]))<<16 | uint64(uint8(s[3]))<<24 | uint64(uint8(s[4]))<<32 | uint64(uint8(s[5]))<<40
	return packed{first, second | uint64(uint8(r.Addend))<<48 | uint64(r.Link)<<56}
}

// seeds make it impossible to write a file whose rules all have one hash. They do not
// change the numbers of rules.
var seeds = [2]uint64{rand.Uint64(), rand.Uint64()}

func (p packed) hash() uint64 {
	high, low := bits.Mul64(p[0]^seeds[0], p[1]^seeds[1])
	return high ^ low
}

func (p packed) put(b []byte) {
	binary.LittleEndian.PutUint64(b, p[0])
	binary.LittleEndian.PutUint64(b[8:], p[1])
}
