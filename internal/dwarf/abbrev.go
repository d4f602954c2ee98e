package dwarf

import "math"

// abbrev is an abbreviation declaration, compiled: what it takes to pass over an
// entry that has it, and to read one.
type abbrev struct {
	tag      uint16
	children bool
	code     bool  // says which addresses it has: DW_AT_low_pc or DW_AT_ranges
	sibling  int32 // bytes before a DW_AT_sibling of DW_FORM_ref4, or -1
	fixed    int   // bytes of an entry, or -1 where it depends
	skip     []op  // nil where fixed has all
	read     []op  // nil where entries are never read
}

// table is a set of abbreviations, by code.
type table struct {
	dense  []abbrev // of codes from 1 on
	quick  []quick  // of codes from 0 on
	sparse map[uint64]*abbrev
	ops    []op // of all plans
}

// quick is what it takes to pass over an entry of no interest, which most are.
type quick struct {
	size  int32 // bytes of its attributes, or those before the one of quickSibling
	depth int8  // by how much its children are deeper: 1 if it has any
	kind  uint8
}

const (
	quickNot     = iota // it must be looked at
	quickPass           // it has a fixed size
	quickSibling        // no function can be among its children, and it has where they end
	quickInC            // and so it is if the language is C
)

func (t *table) reset() {
	t.dense, t.quick, t.ops, t.sparse = t.dense[:0], append(t.quick[:0], quick{}), t.ops[:0], nil
}

func (t *table) lookup(code uint64) *abbrev {
	if code-1 < uint64(len(t.dense)) {
		return &t.dense[code-1]
	}
	return t.sparse[code]
}

// add keeps an abbreviation. Codes mostly count from 1; the first of a code counts.
func (t *table) add(code uint64, a *abbrev) {
	switch {
	case code == uint64(len(t.dense))+1:
		t.dense = append(t.dense, *a)
		t.quick = append(t.quick, a.quick())
	case t.lookup(code) == nil:
		if t.sparse == nil {
			t.sparse = map[uint64]*abbrev{}
		}
		kept := *a
		t.sparse[code] = &kept
	}
}

// quick returns how entries are passed over.
func (a *abbrev) quick() quick {
	q := quick{}
	if a.children {
		q.depth = 1
	}
	switch {
	case a.isScope():
		return q
	case a.sibling >= 0 && a.children && a.isBarren(false):
		q.kind, q.size = quickSibling, a.sibling
	case a.sibling >= 0 && a.children && a.isBarren(true):
		q.kind, q.size = quickInC, a.sibling
	case a.fixed >= 0 && a.fixed <= math.MaxInt32:
		q.kind, q.size = quickPass, int32(a.fixed)
	}
	return q
}

// isScope reports whether entries are of code with a function.
func (a *abbrev) isScope() bool {
	return a.code && (a.tag == tagSubprogram || a.tag == tagInlinedSubroutine)
}

// isBarren reports whether no function can be among the children: where types hold
// none, as in C, or elsewhere.
func (a *abbrev) isBarren(inC bool) bool {
	switch a.tag {
	case tagEnumerationType, tagArrayType, tagSubroutineType:
		return true
	case tagStructureType, tagUnionType, tagClassType:
		return inC
	default:
		return false
	}
}

// tableKey says which table a unit uses, and how it must be compiled.
type tableKey struct {
	data   *Data
	offset uint64
	format format
}

// tables keeps the tables that were used last. Linked objects bring one each, which
// is forgotten with the unit; files that went through dwz or Go's linker share one
// among all units.
type tables struct {
	byKey  map[tableKey]*table
	ops    int
	own    table // of the unit being read
	attrs  []op  // of the abbreviation that is being read
	shapes shapes
}

// maxCachedOps bounds what tables keeps, at 24 bytes each.
const maxCachedOps = 1 << 17

// Limits on one table, and on an abbreviation. Those of whole programs have thousands of
// abbreviations, of a dozen attributes each.
const (
	maxAbbrevs    = 1 << 18
	maxOps        = 1 << 20
	maxAttributes = 1 << 12
)

// get returns a table, to be kept.
func (c *tables) get(d *Data, offset uint64, f format) (*table, error) {
	key := tableKey{d, offset, f}
	if t := c.byKey[key]; t != nil {
		return t, nil
	}
	t := &table{dense: make([]abbrev, 0, 64), quick: make([]quick, 0, 64), ops: make([]op, 0, 512)}
	if err := c.parse(t, d, offset, f); err != nil {
		return nil, err
	}
	size := len(t.ops) + 4*len(t.dense) + 4*len(t.sparse)
	if c.byKey == nil || c.ops+size > maxCachedOps {
		c.byKey, c.ops = map[tableKey]*table{}, 0
	}
	c.byKey[key] = t
	c.ops += size
	return t, nil
}

// getOwn returns a table that nothing but the unit being read uses, and that is lost
// with the next one.
func (c *tables) getOwn(d *Data, offset uint64, f format) (*table, error) {
	return &c.own, c.parse(&c.own, d, offset, f)
}

// parse reads the abbreviations at offset of .debug_abbrev (DWARF 5, section 7.5.3).
func (c *tables) parse(t *table, d *Data, offset uint64, f format) error {
	b := d.Abbrev
	if offset > uint64(len(b)) {
		return d.fail(".debug_abbrev", offset, "abbreviations are outside the section")
	}
	t.reset()
	c.shapes.make(f)
	start, n := int(offset), 0
	for p := start; ; {
		code, next := uleb(b, p)
		if next == overrun {
			return d.failAfter(p-start, ".debug_abbrev", uint64(p), "abbreviations do not end")
		}
		if code == 0 {
			return d.spend(next - start)
		}
		a, end := c.abbrev(b, next, f)
		if end == overrun {
			return d.failAfter(p-start, ".debug_abbrev", uint64(p), "malformed abbreviation %d", code)
		}
		if n++; n > maxAbbrevs || len(t.ops) > maxOps {
			return d.failAfter(p-start, ".debug_abbrev", uint64(p), "more than %d abbreviations, or %d attributes", maxAbbrevs, maxOps)
		}
		t.plan(&a, c.attrs)
		t.add(code, &a)
		p = end
	}
}

// abbrev reads one declaration behind its code, and returns where it ends. Its
// attributes are in c.attrs.
func (c *tables) abbrev(b []byte, p int, f format) (abbrev, int) {
	tag, p := uleb(b, p)
	if p == overrun || p >= len(b) {
		return abbrev{}, overrun
	}
	a := abbrev{tag: uint16(tag), children: b[p] != 0}
	p++
	for c.attrs = c.attrs[:0]; ; {
		var attr, form uint64
		if p+2 <= len(b) && b[p]|b[p+1] < 0x80 { // one byte each, as nearly all
			attr, form, p = uint64(b[p]), uint64(b[p+1]), p+2
		} else {
			if attr, p = uleb(b, p); p == overrun {
				return abbrev{}, overrun
			}
			if form, p = uleb(b, p); p == overrun {
				return abbrev{}, overrun
			}
		}
		if attr == 0 && form == 0 {
			return a, p
		}
		shape, ok := c.shapes.of(form)
		if !ok {
			return abbrev{}, overrun
		}
		o := op{kind: shape.kind, slot: slotOf(attr), form: uint16(form), size: shape.size}
		if form == FormImplicitConst {
			if o.value, p = sleb(b, p); p == overrun {
				return abbrev{}, overrun
			}
		}
		if len(c.attrs) >= maxAttributes {
			return abbrev{}, overrun
		}
		c.attrs = append(c.attrs, o)
	}
}

// shapes are the shapes of the common forms in one format.
type shapes struct {
	format format
	common [0x30]shape
}

// shape is how many bytes a form takes.
type shape struct {
	kind  opKind
	known bool
	size  uint32
}

func (s *shapes) make(f format) {
	if s.format == f {
		return
	}
	s.format = f
	for form := range s.common {
		kind, size, ok := f.shape(uint64(form))
		s.common[form] = shape{kind, ok, size}
	}
}

func (s *shapes) of(form uint64) (shape, bool) {
	if form < uint64(len(s.common)) {
		return s.common[form], s.common[form].known
	}
	kind, size, ok := s.format.shape(form)
	return shape{kind, ok, size}, ok
}

// plan makes the plans for an abbreviation with these attributes.
func (t *table) plan(a *abbrev, attrs []op) {
	a.sibling = -1
	for i := range attrs {
		o := &attrs[i]
		if o.slot == slotSibling && o.form == FormRef4 && a.fixed >= 0 {
			a.sibling = int32(a.fixed)
		}
		a.code = a.code || o.slot == slotLowPC || o.slot == slotRanges
		if o.kind == opFixed && a.fixed >= 0 {
			a.fixed += int(o.size)
		} else {
			a.fixed = -1
		}
	}
	start := len(t.ops)
	if a.fixed < 0 {
		for _, o := range attrs {
			t.step(start, op{kind: o.kind, form: o.form, size: o.size})
		}
		a.skip = t.ops[start:]
	}
	start = len(t.ops)
	if a.readable() {
		for _, o := range attrs {
			t.step(start, o)
		}
		a.read = t.ops[start:]
	}
}

// step appends a step to the plan that begins at start, or makes the last one pass
// over more.
func (t *table) step(start int, o op) {
	if n := len(t.ops); n > start && o.slot == slotNone && o.kind == opFixed {
		if last := &t.ops[n-1]; last.slot == slotNone && last.kind == opFixed {
			last.size += o.size
			return
		}
	}
	t.ops = append(t.ops, o)
}

// readable reports whether entries with this tag are ever read.
func (a *abbrev) readable() bool {
	switch a.tag {
	case tagSubprogram, tagInlinedSubroutine, tagCompileUnit, tagPartialUnit, tagSkeletonUnit:
		return true
	default:
		return false
	}
}
