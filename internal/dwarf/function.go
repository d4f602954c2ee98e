package dwarf

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
	key := offset << 1
	if data != s.data {
		key |= 1
	}
	if fn, ok := s.funcs[key]; ok {
		return fn, nil
	}
	f, err := s.describe(s.state, data, offset)
	if err != nil {
		return 0, err
	}
	fn := int32(len(s.Funcs))
	s.Funcs = append(s.Funcs, f)
	s.funcs[key] = fn
	return fn, nil
}

// origin returns the entry that v refers to for what it does not say itself.
func (s *state) origin(v *values) (*Data, uint64, bool) {
	if v.has(slotOrigin) {
		return s.reference(v.form[slotOrigin], v.raw[slotOrigin])
	}
	return s.reference(v.form[slotSpecification], v.raw[slotSpecification])
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
// it refers to. What comes first counts. A reference that leads nowhere ends the
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
