package dwarf

// abbrev is an abbreviation declaration, compiled: what it takes to pass over an
// entry that has it, and to read one.
type abbrev struct {
	tag      uint16
	children bool
	code     bool // says which addresses it has: DW_AT_low_pc or DW_AT_ranges
	sibling  bool // has DW_AT_sibling
	fixed    int  // bytes of an entry, or -1 where it depends
	skip     []op
	read     []op
}

// table is a set of abbreviations, by code.
type table struct {
	dense  []abbrev // of codes from 1 on
	sparse map[uint64]*abbrev
	ops    int
}

func (t *table) lookup(code uint64) *abbrev {
	if code-1 < uint64(len(t.dense)) {
		return &t.dense[code-1]
	}
	return t.sparse[code]
}

// add keeps an abbreviation. Codes mostly count from 1; the first of a code counts.
func (t *table) add(code uint64, a abbrev) {
	t.ops += len(a.skip) + len(a.read) + 4
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
}

// maxCachedOps bounds what tables keeps, at 24 bytes each.
const maxCachedOps = 1 << 17

func (c *tables) get(d *Data, offset uint64, f format) (*table, error) {
	key := tableKey{d, offset, f}
	if t := c.byKey[key]; t != nil {
		return t, nil
	}
	t, err := d.parseTable(offset, f)
	if err != nil {
		return nil, err
	}
	if c.byKey == nil || c.ops+t.ops > maxCachedOps {
		c.byKey, c.ops = map[tableKey]*table{}, 0
	}
	c.byKey[key] = t
	c.ops += t.ops
	return t, nil
}

// parseTable reads the abbreviations at offset of .debug_abbrev (DWARF 5, section
// 7.5.3).
func (d *Data) parseTable(offset uint64, f format) (*table, error) {
	b := d.Abbrev
	if offset > uint64(len(b)) {
		return nil, d.fail(".debug_abbrev", offset, "abbreviations are outside the section")
	}
	t := new(table)
	start := int(offset)
	for p := start; ; {
		code, next := uleb(b, p)
		if next == overrun {
			return nil, d.fail(".debug_abbrev", uint64(p), "abbreviations do not end")
		}
		if code == 0 {
			return t, d.spend(next - start)
		}
		a, end := f.parseAbbrev(b, next)
		if end == overrun {
			return nil, d.fail(".debug_abbrev", uint64(p), "malformed abbreviation %d", code)
		}
		t.add(code, a)
		p = end
	}
}

// parseAbbrev reads one declaration behind its code, and returns where it ends.
func (f format) parseAbbrev(b []byte, p int) (abbrev, int) {
	tag, p := uleb(b, p)
	if p == overrun || p >= len(b) {
		return abbrev{}, overrun
	}
	a := abbrev{tag: uint16(tag), children: b[p] != 0}
	p++
	for {
		var attr, form uint64
		if attr, p = uleb(b, p); p == overrun {
			return abbrev{}, overrun
		}
		if form, p = uleb(b, p); p == overrun {
			return abbrev{}, overrun
		}
		if attr == 0 && form == 0 {
			a.finish()
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
		a.read = append(a.read, o)
		a.code = a.code || o.slot == slotLowPC || o.slot == slotRanges
		a.sibling = a.sibling || o.slot == slotSibling
	}
}

// finish makes the plan for passing over from that for reading, and joins what
// the latter only passes over.
func (a *abbrev) finish() {
	a.fixed = 0
	for _, o := range a.read {
		if o.kind == opFixed && a.fixed >= 0 {
			a.fixed += int(o.size)
		} else {
			a.fixed = -1
		}
		a.skip = appendOp(a.skip, op{kind: o.kind, form: o.form, size: o.size})
	}
	if a.readable() {
		var read []op
		for _, o := range a.read {
			read = appendOp(read, o)
		}
		a.read = read
	} else {
		a.read = nil
	}
}

// readable reports whether entries with this tag are ever read. Others with a
// sibling are, to find it.
func (a *abbrev) readable() bool {
	switch a.tag {
	case tagSubprogram, tagInlinedSubroutine, tagCompileUnit, tagPartialUnit, tagSkeletonUnit:
		return true
	default:
		return a.sibling && a.children
	}
}

// appendOp appends a step, or makes the last one pass over more.
func appendOp(ops []op, o op) []op {
	if o.slot == slotNone && o.kind == opFixed && len(ops) > 0 {
		if last := &ops[len(ops)-1]; last.slot == slotNone && last.kind == opFixed {
			last.size += o.size
			return ops
		}
	}
	return append(ops, o)
}
