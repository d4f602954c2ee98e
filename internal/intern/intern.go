// Package intern numbers what comes again and again: each distinct value, and each distinct sequence
// of numbers, has the number of its first sight.
//
// Go's maps do the same with a copy of each key, and hash all keys anew when they grow. Here the keys
// lie one after the other in the order of their numbers, and the table beside them has 8 bytes a slot:
// a number, and half of the hash, so that nearly every slot that is looked at is the right one.
// The hash has a seed of its own (hash/maphash), so nobody can choose keys that collide.
package intern

import (
	"hash/maphash"
	"math"
	"math/bits"
	"slices"
	"unsafe"
)

// Values numbers values. The zero value has none.
type Values[K comparable] struct {
	table table
	all   []K
}

// Number returns the number of a value, and whether it is a new one.
func (v *Values[K]) Number(k K) (n uint32, isNew bool) {
	v.table.makeRoom(len(v.all))
	hash := maphash.Comparable(v.table.seed, k)
	n, slot := v.find(k, hash)
	if slot < 0 {
		return n, false
	}
	v.table.set(slot, hash, len(v.all))
	v.all = append(doubled(v.all, 1), k)
	return n, true
}

// Expect makes room for so many values where there are none yet.
func (v *Values[K]) Expect(n int) {
	if len(v.all) == 0 {
		v.table.init(n)
		v.all = make([]K, 0, n)
	}
}

// Find returns the number of a value, and whether it has one.
func (v *Values[K]) Find(k K) (n uint32, ok bool) {
	if len(v.all) == 0 {
		return 0, false
	}
	n, slot := v.find(k, maphash.Comparable(v.table.seed, k))
	return n, slot < 0
}

// find returns the number of a value and -1, or the number and the slot that it would have.
func (v *Values[K]) find(k K, hash uint64) (n uint32, slot int) {
	for i := v.table.first(hash); ; i = v.table.next(i) {
		n, isLike := v.table.at(i, hash)
		switch {
		case n == none:
			return uint32(len(v.all)), i
		case isLike && v.all[n] == k:
			return n, -1
		}
	}
}

// All returns the values in the order of their numbers. They are not to be changed.
func (v *Values[K]) All() []K { return v.all }

// Len returns how many values there are.
func (v *Values[K]) Len() int { return len(v.all) }

// Sequences numbers sequences of numbers. The zero value has none.
type Sequences struct {
	table   table
	numbers []uint32 // of all sequences, one after the other
	ends    []uint64 // of each sequence in numbers
}

// Number returns the number of a sequence, which is copied if it is new.
func (s *Sequences) Number(sequence []uint32) uint32 {
	s.table.makeRoom(len(s.ends))
	hash := hashOf(s.table.seed, sequence)
	n, slot := s.find(sequence, hash)
	if slot >= 0 {
		s.table.set(slot, hash, len(s.ends))
		s.numbers = append(doubled(s.numbers, len(sequence)), sequence...)
		s.ends = append(doubled(s.ends, 1), uint64(len(s.numbers)))
	}
	return n
}

// Expect makes room for so many sequences where there are none yet, but not for what they have.
func (s *Sequences) Expect(n int) {
	if len(s.ends) == 0 {
		s.table.init(n)
		s.ends = make([]uint64, 0, n)
	}
}

// Find returns the number of a sequence, and whether it has one.
func (s *Sequences) Find(sequence []uint32) (n uint32, ok bool) {
	if len(s.ends) == 0 {
		return 0, false
	}
	n, slot := s.find(sequence, hashOf(s.table.seed, sequence))
	return n, slot < 0
}

func (s *Sequences) find(sequence []uint32, hash uint64) (n uint32, slot int) {
	for i := s.table.first(hash); ; i = s.table.next(i) {
		n, isLike := s.table.at(i, hash)
		switch {
		case n == none:
			return uint32(len(s.ends)), i
		case isLike && slices.Equal(s.At(n), sequence):
			return n, -1
		}
	}
}

// hashOf hashes the numbers as they lie in memory.
func hashOf(seed maphash.Seed, sequence []uint32) uint64 {
	return maphash.Bytes(seed, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(sequence))), 4*len(sequence)))
}

// At returns the sequence with a number. It is not to be changed.
func (s *Sequences) At(n uint32) []uint32 {
	start := uint64(0)
	if n > 0 {
		start = s.ends[n-1]
	}
	return s.numbers[start:s.ends[n]:s.ends[n]]
}

// Len returns how many sequences there are.
func (s *Sequences) Len() int { return len(s.ends) }

// doubled returns a slice with room for some more elements, twice as large if there was none: append alone
// makes a quarter more, and by that moves everything three times as often.
func doubled[T any](s []T, more int) []T {
	if cap(s)-len(s) >= more {
		return s
	}
	return slices.Grow(s, max(more, len(s)))
}

// table finds numbers by the upper halves of their hashes. A slot has such a half and the number plus
// one; 0 is an empty slot. A number is in the slot that the first bits of the hash say, or in one of those
// that follow it without an empty one between.
type table struct {
	seed  maphash.Seed
	slots []uint64 // a power of two, a quarter of them empty at least
	shift uint8    // of a hash, for the place of its slot
}

const (
	none      = ^uint32(0) // is in an empty slot
	firstBits = 6          // of the places in a new table
)

// init makes an empty table with room for so many numbers.
func (t *table) init(numbers int) {
	size := max(firstBits, bits.Len(uint(numbers+numbers/3)))
	*t = table{maphash.MakeSeed(), make([]uint64, 1<<size), uint8(64 - size)}
}

// makeRoom makes room for one more than so many numbers.
func (t *table) makeRoom(numbers int) {
	switch {
	case t.slots == nil:
		t.init(1)
	case numbers >= len(t.slots)/4*3:
		old := t.slots
		t.slots = make([]uint64, 2*len(old))
		t.shift--
		for _, slot := range old {
			if slot != 0 {
				i := t.first(slot)
				for t.slots[i] != 0 {
					i = t.next(i)
				}
				t.slots[i] = slot
			}
		}
	}
}

// first returns the place of the slot where a number with this hash may be; next the place after another one.
func (t *table) first(hash uint64) int { return int(hash >> t.shift) }
func (t *table) next(i int) int        { return (i + 1) & (len(t.slots) - 1) }

// at returns the number in a slot, or none, and whether its hash may be this one.
func (t *table) at(i int, hash uint64) (n uint32, isLike bool) {
	slot := t.slots[i]
	return uint32(slot) - 1, slot>>32 == hash>>32
}

// set puts a number into an empty slot.
func (t *table) set(i int, hash uint64, n int) { t.slots[i] = hash&^math.MaxUint32 | uint64(n+1) }
