package compact

// ids gives numbers from 0 on to the IDs that a profile has, in the order of their first
// mention.
type ids struct {
	small []uint32 // by ID: number + 1
	large map[uint64]uint32
	count uint32
}

// mostSmall is how large IDs are that are looked up in a list. Most profiles number from 1 on.
const mostSmall = 1 << 22

func (t *ids) number(id uint64) uint32 {
	if id < uint64(len(t.small)) {
		if n := t.small[id]; n != 0 {
			return n - 1
		}
	}
	return t.add(id)
}

func (t *ids) add(id uint64) uint32 {
	if id >= mostSmall {
		if n, ok := t.large[id]; ok {
			return n
		}
		if t.large == nil {
			t.large = map[uint64]uint32{}
		}
		t.large[id] = t.count
	} else {
		if id >= uint64(len(t.small)) {
			bigger := make([]uint32, min(mostSmall, max(id+1, 2*uint64(len(t.small)), 64)))
			copy(bigger, t.small)
			t.small = bigger
		}
		t.small[id] = t.count + 1
	}
	t.count++
	return t.count - 1
}
