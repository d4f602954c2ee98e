package dwarftest

import (
	"fmt"
	"slices"
)

// unit is a unit of .debug_info or .debug_types in the making.
type unit struct {
	g *generator
	*object
	*compilation

	kind            int
	version, offset int // bytes of an offset
	lang            int
	section         *buffer
	start           label
	root            *entry
	id              uint64

	split    bool  // it is in a .dwo file or a package
	skeleton *unit // the unit that stayed in the program: itself, if it is not split

	strx, addrx *indexTable
	lists       *listTable
	base        uint64 // what range lists are relative to
	hasBase     bool
	rangesBase  int // DW_AT_GNU_ranges_base

	abbreviations *abbreviations
	prefers       map[string]uint64
	signed        bool // numbers can have DW_FORM_sdata
	plain         int  // one in so many values has DW_FORM_indirect
	abstracts     map[*function]*entry
	starts        map[*entry]int
	containers    []*entry
	basic         *entry // a type, nil before it is needed
}

// basicType returns a type of the unit.
func (u *unit) basicType() *entry {
	if u.basic == nil {
		u.basic = u.root.add(&entry{tag: tagBaseType}).setString(atName, "int").setNumber(atByteSize, 4)
	}
	return u.basic
}

// newUnit returns a unit of an object without entries but its own.
func (o *object) newUnit(kind, version, offset int, tag uint64) *unit {
	g := o.g
	u := &unit{
		g: g, object: o, kind: kind, version: version, offset: offset, section: &o.info,
		lang: pick(g, langC89, langC99, langCxx, langCxx, langC11, langRus, langC14), split: o.dwo,
		prefers: map[string]uint64{}, plain: pick(g, 1<<40, 1<<40, 1<<40, 5), signed: g.signed && g.oneIn(2),
		abstracts: map[*function]*entry{}, starts: map[*entry]int{},
	}
	u.skeleton = u
	u.root = &entry{tag: tag, home: u}
	u.containers = []*entry{u.root}
	if n := len(o.abbreviations); n > 0 && g.oneIn(3) {
		u.abbreviations = o.abbreviations[g.IntN(n)]
		g.trait("shared abbreviations")
	} else {
		u.abbreviations = o.newAbbreviations()
	}
	o.units = append(o.units, u)
	g.trait(fmt.Sprintf("version %d", version))
	if offset == 8 {
		g.trait("64-bit DWARF")
	}
	return u
}

// isC reports whether types of the unit's language hold no functions.
func (u *unit) isC() bool { return u.lang == langC89 || u.lang == langC99 || u.lang == langC11 }

// useTables decides which tables of strings and addresses the unit refers to.
func (u *unit) useTables() {
	g, main := u.g, u.skeleton.object
	switch {
	case u.version >= 5:
		if u.split || g.oneIn(2) {
			u.strx = u.object.stringTable(u)
		}
		if u.split || g.oneIn(2) {
			u.addrx = main.addressTable(u)
		}
		u.lists = u.object.listTable(u)
	case u.split:
		u.strx, u.addrx = u.object.stringTable(u), main.addressTable(u)
	}
}

// stringTable returns a contribution to .debug_str_offsets. One .dwo file has one.
func (o *object) stringTable(u *unit) *indexTable {
	for _, t := range o.strTables {
		if o.dwo || t.version == u.version && t.offset == u.offset && o.g.oneIn(3) {
			return t
		}
	}
	t := &indexTable{object: o, version: u.version, offset: u.offset, strings: o.str}
	t.numbers = append(t.numbers, o.str.put(o.g, "first"))
	o.strTables = append(o.strTables, t)
	return t
}

func (o *object) addressTable(u *unit) *indexTable {
	for _, t := range o.addrTables {
		if t.version == u.version && o.g.oneIn(3) {
			return t
		}
	}
	t := &indexTable{object: o, version: u.version, offset: u.offset}
	t.numbers = append(t.numbers, func() uint64 { return o.g.text[0].low })
	o.addrTables = append(o.addrTables, t)
	return t
}

func (o *object) listTable(u *unit) *listTable {
	for _, t := range o.lists {
		if o.dwo || t.offset == u.offset && o.g.oneIn(3) {
			return t
		}
	}
	t := &listTable{object: o, offset: u.offset, body: buffer{big: o.g.big}}
	o.lists = append(o.lists, t)
	return t
}

// setBases adds the attributes that say where the unit's tables are.
func (u *unit) setBases() {
	e := u.root
	if u.version < 5 {
		return
	}
	if u.strx != nil && !u.split {
		e.set(atStrOffsetsBase, func(u *unit) *value { return u.place(u.strx.label.offset) })
	}
	if u.addrx != nil && !u.split {
		e.set(atAddrBase, func(u *unit) *value { return u.place(u.addrx.label.offset) })
	}
	if u.lists != nil && !u.split {
		e.set(atRnglistsBase, func(u *unit) *value { return u.place(u.lists.label.offset) })
	}
}

// claim adds the addresses of the compilation to the unit's own entry.
func (u *unit) claim() {
	g := u.g
	var spans []span
	for _, s := range u.scopes {
		if s.bare && g.oneIn(2) {
			g.trait("unclaimed code")
			continue
		}
		spans = append(spans, s.spans...)
	}
	switch {
	case len(spans) == 0:
		return
	case g.oneIn(6):
		g.trait("unit without addresses")
		return
	case len(spans) == 1 && g.oneIn(2):
		u.base, u.hasBase = spans[0].low, true
		u.setSpans(u.root, spans)
		return
	}
	if g.oneIn(2) {
		shuffle(g, spans)
	}
	if !g.oneIn(4) {
		low := slices.MinFunc(spans, func(a, b span) int { return int(a.low>>1) - int(b.low>>1) })
		u.base, u.hasBase = u.selectable(low), true
		u.root.set(atLowPC, func(u *unit) *value { return u.address(u.base) })
	}
	u.root.set(atRanges, func(u *unit) *value { return u.ranges(spans) })
}

// setSpans says which addresses an entry has.
func (u *unit) setSpans(e *entry, spans []span) {
	g := u.g
	if len(spans) > 1 || e != u.root && g.oneIn(6) {
		spans = slices.Clone(spans)
		shuffle(g, spans)
		e.set(atRanges, func(u *unit) *value { return u.ranges(spans) })
		if g.oneIn(5) && e.tag != tagLexicalBlock {
			e.set(atEntryPC, func(u *unit) *value { return u.address(spans[0].low) })
		}
		return
	}
	s := spans[0]
	e.set(atLowPC, func(u *unit) *value { return u.address(s.low) })
	e.set(atHighPC, func(u *unit) *value {
		if u.version < 4 || u.g.oneIn(3) {
			return u.address(s.high)
		}
		u.g.trait("high_pc as a length")
		return u.number(s.high - s.low)
	})
}

// container returns an entry that functions can be in.
func (u *unit) container() *entry {
	g := u.g
	if len(u.containers) == 1 && !u.isC() {
		for range g.IntN(3) {
			parent := pick(g, u.containers...)
			tag := pick(g, uint64(tagNamespace), tagNamespace, tagClassType, tagStructureType, tagUnionType)
			if parent.tag != tagNamespace && parent != u.root {
				tag = pick(g, uint64(tagClassType), tagStructureType)
			}
			if u.version < 3 && tag == tagNamespace {
				tag = tagModule
			}
			c := parent.add(&entry{tag: tag}).setString(atName, g.name("scope"))
			u.containers = append(u.containers, c)
		}
	}
	return pick(g, u.containers...)
}

// homes returns the units that entries which u refers to can be in.
func (u *unit) homes() []*unit {
	l := &u.g.layout
	homes := []*unit{u, u}
	if u.split || u.version == 2 && u.g.word == 8 && u.g.oneIn(2) {
		return homes
	}
	if l.sup != nil {
		homes = append(homes, l.sup.units...)
	}
	if u.object == l.sup {
		return homes
	}
	return append(homes, l.shared...)
}

// describe says what an entry of a function is, there or in a declaration that it
// refers to, and returns the line where the function starts.
func (u *unit) describe(e *entry, f *function) (start int) {
	g := u.g
	var d *entry
	if g.oneIn(3) {
		home := pick(g, u.homes()...)
		d = home.container().add(&entry{tag: tagSubprogram}).setString(atName, f.name).set(atDeclaration, (*unit).flag)
		if !g.oneIn(4) {
			d.setNumber(atDeclLine, f.declared)
			start = f.declared
		}
		e.setReference(atSpecification, d)
	}
	if d == nil || g.oneIn(4) {
		e.setString(atName, f.name)
	}
	if f.linkage != "" {
		if d != nil && g.oneIn(2) {
			d.setLinkage(f)
		} else {
			e.setLinkage(f)
		}
	}
	if !g.oneIn(4) {
		e.setNumber(atDeclLine, f.line)
		start = f.line
	}
	if g.oneIn(4) {
		e.set(atExternal, (*unit).flag)
	}
	return start
}

func (e *entry) setLinkage(f *function) {
	name := uint64(atLinkageName)
	if e.home.version < 4 {
		name = atMIPSLinkageName
	}
	e.setString(name, f.linkage)
}

// abstract returns the abstract instance of a function that u refers to, and the line
// where the function starts.
func (u *unit) abstract(f *function) (*entry, int) {
	if e := u.abstracts[f]; e != nil {
		return e, u.starts[e]
	}
	g := u.g
	home := pick(g, u.homes()...)
	e := &entry{tag: tagSubprogram}
	home.container().add(e)
	e.setNumber(atInline, 1+g.IntN(3))
	u.abstracts[f] = e
	u.starts[e] = home.describe(e, f)
	home.clutter(e, g.IntN(3))
	return e, u.starts[e]
}

// function adds the entry of a function in the code.
func (u *unit) function(s *scope, in *entry) *entry {
	g := u.g
	e := in.add(&entry{tag: tagSubprogram})
	if g.oneIn(3) {
		a, start := u.abstract(s.function)
		e.setReference(atAbstractOrigin, a)
		if s.start = start; g.oneIn(6) {
			e.setNumber(atDeclLine, s.line)
			s.start = s.line
		}
	} else {
		s.start = u.describe(e, s.function)
	}
	u.setSpans(e, s.spans)
	u.body(e, s)
	return e
}

// body adds the calls inlined into a scope, in any order, with other entries between
// and around them.
func (u *unit) body(e *entry, s *scope) {
	g := u.g
	u.clutter(e, g.IntN(3))
	for _, c := range s.children {
		in := e
		for g.oneIn(4) {
			g.trait("lexical block")
			in = in.add(&entry{tag: tagLexicalBlock})
			if !g.oneIn(3) {
				u.setSpans(in, c.spans)
			}
		}
		i := in.add(&entry{tag: tagInlinedSubroutine})
		a, start := u.abstract(c.function)
		c.start = start
		i.setReference(atAbstractOrigin, a)
		u.setSpans(i, c.spans)
		if c.callFile != nil {
			i.setNumber(atCallFile, c.callFile.where).setNumber(atCallLine, c.callLine)
			if c.callCol != 0 || g.oneIn(4) {
				i.setNumber(atCallColumn, c.callCol)
			}
		}
		u.body(i, c)
		u.clutter(e, g.IntN(3))
	}
	shuffle(g, e.children)
}

// clutter adds entries of no interest.
func (u *unit) clutter(in *entry, n int) {
	g := u.g
	for range n {
		tag := pick(g, uint64(tagBaseType), tagVariable, tagFormalParameter, tagEnumerationType, tagArrayType, tagSubroutineType,
			tagStructureType, tagUnionType, tagClassType, tagCallSite, tagVendor)
		e := in.add(&entry{tag: tag})
		if !g.oneIn(4) {
			e.setString(atName, g.name("n"))
		}
		switch tag {
		case tagVariable, tagFormalParameter:
			e.setNumber(atDeclLine, g.IntN(300)).setReference(atType, u.basicType())
		case tagBaseType:
			e.setNumber(atByteSize, 4)
		case tagEnumerationType:
			for range g.IntN(4) {
				e.add(&entry{tag: tagEnumerator}).setNumber(atConstValue, g.IntN(1<<20))
			}
		case tagArrayType:
			e.add(&entry{tag: tagSubrangeType})
		case tagStructureType, tagUnionType, tagClassType:
			for range g.IntN(3) {
				e.add(&entry{tag: tagMember}).setString(atName, g.name("m")).setReference(atType, u.basicType())
			}
			if !u.isC() && g.oneIn(3) {
				u.clutter(e, 1)
			}
		case tagSubroutineType:
			e.add(&entry{tag: tagFormalParameter}).setReference(atType, u.basicType())
		case tagCallSite:
			e.set(atEntryPC, func(u *unit) *value { return u.address(g.text[0].low) })
		}
	}
}

// fill adds the entries of the compilation.
func (u *unit) fill() {
	g := u.g
	u.clutter(u.root, g.IntN(4))
	var before *entry
	for _, s := range u.scopes {
		if s.bare {
			g.trait("code known by its symbol")
			continue
		}
		in := u.container()
		if before != nil && g.oneIn(6) {
			g.trait("nested function")
			in = before
		}
		before = u.function(s, in)
		u.clutter(u.container(), g.IntN(3))
	}
	shuffle(g, u.root.children)
}

// describeOwn adds what a unit's own entry says of the compilation.
func (u *unit) describeOwn() {
	e, g := u.root, u.g
	if !g.oneIn(6) {
		e.setString(atName, g.name("unit")+".c")
	}
	if g.oneIn(2) {
		e.setString(atProducer, "a generator of programs")
	}
	e.setNumber(atLanguage, u.lang)
}

// writeUnit writes the header and all entries.
func (u *unit) writeUnit() {
	g, b := u.g, u.section
	u.start.at = b.len()
	done := b.length(u.offset)
	b.num(uint64(u.version), 2)
	if u.version >= 5 {
		b.u8(u.kind)
		b.u8(g.word)
	}
	table := u.abbreviations
	g.fixups = append(g.fixups, fixup{to: b, at: b.len(), size: u.offset, value: func() uint64 { return uint64(table.at) }})
	b.num(0, u.offset)
	if u.version < 5 {
		b.u8(g.word)
	}
	switch {
	case u.root.tag == tagTypeUnit:
		b.num(u.id, 8)
		g.fixups = append(g.fixups, fixup{to: b, at: b.len(), size: u.offset, value: func() uint64 { return uint64(u.root.children[0].at - u.start.at) }})
		b.num(0, u.offset)
	case u.version >= 5 && (u.kind == unitSkeleton || u.kind == unitSplitCompile):
		b.num(u.id, 8)
	}
	u.write(u.root)
	if g.oneIn(6) {
		b.bytes(make([]byte, g.IntN(8))) // padding
	}
	done()
}
