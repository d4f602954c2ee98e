package dwarf

// abbrev is an abbreviation declaration, compiled: what it takes to pass over an
// entry that has it, and to read one.
type abbrev struct {
	tag      uint16
	children bool
	code     bool  // says which addresses it has: DW_AT_low_pc or DW_AT_ranges
	sibling  int32 // bytes before a DW_AT_sibling of DW_FORM_ref4, or -1
	fixed    int   // bytes of an entry, or -1 where it depends
	skip     []op  // nil where fixed tells all
	read     []op  // nil where entries are never read
}

// table is a set of abbreviations, by code.
type table struct {
	dense  []abbrev // of codes from 1 on
	sparse map[uint64]*abbrev
	ops    []op // of all plans
}

func (t *table) lookup(code uint64) *abbrev {
	if code-1 < uint64(len(t.dense)) {
		return &t.dense[code-1]
	}
	return t.sparse[code]
}

// add keeps an abbreviation. Codes mostly count from 1; the first of a code counts.
func (t *table) add(code uint64, a abbrev) {
	switch {
	case code == uint64(len(t.dense))+1:
		t.dense = append(t.dense, a)
	case t.lookup(code) == nil:
		if t.sparse == nil {
			t.sparse = map[uint64]*abbrev{}
		}
		t.sparse[code] = &a
	}
}

// tableKey says which table a unit uses, and how it must be compiled.
type tableKey struct {
	data   *Data
	offset uint64
	format format
}

// tables keeps the tables that were used last. Linked objects bring one each, and
// files that went through dwz or Go's linker share one among all units.
type tables struct {
	byKey map[tableKey]*table
	ops   int
	attrs []op // of the abbreviation that is being read
}

// maxCachedOps bounds what tables keeps, at 24 bytes each.
const maxCachedOps = 1 << 17

func (c *tables) get(d *Data, offset uint64, f format) (*table, error) {
	key := tableKey{d, offset, f}
	if t := c.byKey[key]; t != nil {
		return t, nil
	}
	t, err := c.parse(d, offset, f)
	if err != nil {
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

// parse reads the abbreviations at offset of .debug_abbrev (DWARF 5, section 7.5.3).
func (c *tables) parse(d *Data, offset uint64, f format) (*table, error) {
	b := d.Abbrev
	if offset > uint64(len(b)) {
		return nil, d.fail(".debug_abbrev", offset, "abbreviations are outside the section")
	}
	t := &table{dense: make([]abbrev, 0, 64), ops: make([]op, 0, 512)}
	start := int(offset)
	for p := start; ; {
		code, next := uleb(b, p)
		if next == overrun {
			return nil, d.fail(".debug_abbrev", uint64(p), "abbreviations do not end")
		}
		if code == 0 {
			return t, d.spend(next - start)
		}
		a, end := c.abbrev(b, next, f)
		if end == overrun {
			return nil, d.fail(".debug_abbrev", uint64(p), "malformed abbreviation %d", code)
		}
		t.plan(&a, c.attrs)
		t.add(code, a)
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
		if attr, p = uleb(b, p); p == overrun {
			return abbrev{}, overrun
		}
		if form, p = uleb(b, p); p == overrun {
			return abbrev{}, overrun
		}
		if attr == 0 && form == 0 {
			return a, p
		}
		kind, size, ok := f.shape(form)
		if !ok {
			return abbrev{}, overrun
		}
		o := op{kind: kind, slot: slotOf(attr), form: uint16(form), size: size}
		if form == formImplicitConst {
			if o.value, p = sleb(b, p); p == overrun {
				return abbrev{}, overrun
			}
		}
		c.attrs = append(c.attrs, o)
	}
}

// plan makes the plans for an abbreviation with these attributes.
func (t *table) plan(a *abbrev, attrs []op) {
	a.sibling = -1
	for _, o := range attrs {
		if o.slot == slotSibling && o.form == formRef4 && a.fixed >= 0 {
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
