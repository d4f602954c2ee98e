package dwarf

import "math/rand/v2"

// maxHops bounds how many references lead from an entry to its name: a call refers
// to a function, that to its declaration. References in a circle end here.
const maxHops = 8

// Bounds of what a Reader remembers of other units.
const (
	maxStates  = 64
	maxForeign = 1 << 16
)

// function returns the index of the Func of a scope, whose entry is at offset and
// has the values v.
func (s *scan) function(offset uint64, v *values) (int32, error) {
	data := s.data
	if !v.has(slotName) && !v.has(slotLinkageName) && !v.has(slotDeclLine) {
		if d, o, ok := s.origin(v); ok {
			data, offset = d, o
		}
	}
	key := offset<<1 | 1
	if data != s.data {
		key++
	}
	at := s.funcs.at(key)
	if *at >= 0 {
		return *at, nil
	}
	f, err := s.describe(s.state, data, offset)
	if err != nil {
		return 0, err
	}
	*at = int32(len(s.Funcs))
	s.Funcs = append(s.Funcs, f)
	return *at, nil
}

// placeTable numbers places in a unit.
type placeTable struct {
	slots []placeSlot // a power of two, at most half full
	used  int
	odd   uint64 // of this process alone: who makes a file cannot know what collides
}

type placeSlot struct {
	key    uint64 // 0 for an empty slot
	number int32
}

// minPlaces is the size of a small placeTable.
const minPlaces = 1 << 10

// reset forgets all, and more memory than the last unit used.
func (t *placeTable) reset() {
	size := minPlaces
	for size < 4*t.used {
		size *= 2
	}
	if t.odd == 0 {
		t.odd = rand.Uint64() | 1
	}
	if size < len(t.slots) || t.slots == nil {
		t.slots = make([]placeSlot, size)
	} else {
		clear(t.slots)
	}
	t.used = 0
}

// at returns the number of a key, which is not 0, until the next call: -1 for a new
// one.
func (t *placeTable) at(key uint64) *int32 {
	if 2*t.used >= len(t.slots) {
		t.grow()
	}
	s := t.find(key)
	if s.key == 0 {
		*s = placeSlot{key, -1}
		t.used++
	}
	return &s.number
}

func (t *placeTable) find(key uint64) *placeSlot {
	mask := uint64(len(t.slots) - 1)
	for i := (key * t.odd) >> 32; ; i++ {
		if s := &t.slots[i&mask]; s.key == key || s.key == 0 {
			return s
		}
	}
}

func (t *placeTable) grow() {
	old := t.slots
	t.slots = make([]placeSlot, 2*len(old))
	for i := range old {
		if old[i].key != 0 {
			*t.find(old[i].key) = old[i]
		}
	}
}

// origin returns the entry that v refers to for what it does not say itself.
func (s *state) origin(v *values) (*Data, uint64, bool) {
	if v.has(slotOrigin) {
		return s.reference(v.get(slotOrigin))
	}
	return s.reference(v.get(slotSpecification))
}

// describe returns the Func whose entry is at an offset of data. s is the unit that
// refers to it.
func (r *Reader) describe(s *state, data *Data, offset uint64) (Func, error) {
	if data == s.data && offset >= s.die && offset < s.end {
		return r.follow(s, offset)
	}
	key := place{data, offset}
	if f, ok := r.foreign[key]; ok {
		return f, nil
	}
	s, err := r.stateAt(s, data, offset)
	if s == nil {
		return Func{}, err
	}
	f, err := r.follow(s, offset)
	if len(r.foreign) >= maxForeign {
		clear(r.foreign)
	}
	r.foreign[key] = f
	return f, err
}

// place is where an entry is.
type place struct {
	data   *Data
	offset uint64
}

// follow collects what is known of a function from its entry, and from those that
// it refers to. The first of each counts. A reference that leads nowhere ends the
// search.
func (r *Reader) follow(s *state, offset uint64) (Func, error) {
	var f Func
	var name String
	v := &r.described
	for range maxHops {
		if _, err := s.entry(offset, v); err != nil {
			break
		}
		if err := s.data.spend(16); err != nil {
			return f, err
		}
		if f.Name.isEmpty() {
			f.Name = s.str(v, slotLinkageName)
		}
		if name.isEmpty() {
			name = s.str(v, slotName)
		}
		if f.Line == 0 {
			f.Line = v.number(slotDeclLine)
		}
		data, target, ok := s.origin(v)
		if !ok || !f.Name.isEmpty() && f.Line != 0 {
			break
		}
		var err error
		if s, err = r.stateAt(s, data, target); s == nil {
			return f, err
		}
		offset = target
	}
	if f.Name.isEmpty() {
		f.Name = name
	}
	return f, nil
}

// stateAt returns the state of the unit that holds an offset of data, or nil where
// none does. Mostly that is s.
func (r *Reader) stateAt(s *state, data *Data, offset uint64) (*state, error) {
	if data == s.data && offset >= s.die && offset < s.end {
		return s, nil
	}
	u := data.unitAt(offset)
	if u == nil || u.kind == 0 || offset < u.die {
		return nil, nil
	}
	if known := r.states[u]; known != nil {
		return known, nil
	}
	found, err := r.state(u, nil)
	if err != nil {
		return nil, err
	}
	if len(r.states) >= maxStates {
		clear(r.states)
	}
	r.states[u] = found
	return found, nil
}
