package dwarftest

import "fmt"

// abbreviations are a table of .debug_abbrev, which units can share.
type abbreviations struct {
	label
	object *object
	codes  map[string]uint64
	next   uint64
	style  int
	decls  [][]byte
}

// Styles of codes.
const (
	codesDense = iota
	codesSparse
	codesHuge
)

func (o *object) newAbbreviations() *abbreviations {
	g := o.g
	t := &abbreviations{object: o, codes: map[string]uint64{}, next: 1, style: codesDense}
	switch {
	case g.oneIn(60):
		t.style = codesHuge
		g.trait("huge codes")
	case g.oneIn(3):
		t.style, t.next = codesSparse, 1+g.Uint64N(200)
	}
	o.abbreviations = append(o.abbreviations, t)
	return t
}

// code returns the code of an abbreviation with these attributes, of which values has
// the forms.
func (t *abbreviations) code(tag uint64, children bool, attrs []uint64, values []*value) uint64 {
	g := t.object.g
	var d buffer
	d.uleb(tag)
	if children {
		d.u8(1)
	} else {
		d.u8(0)
	}
	for i, v := range values {
		d.uleb(attrs[i])
		d.uleb(v.form)
		if v.form == formImplicitConst {
			d.sleb(v.constant)
		}
	}
	d.u8(0)
	d.u8(0)
	if code, ok := t.codes[string(d.b)]; ok && !g.oneIn(20) {
		return code
	}
	code := t.next
	switch t.style {
	case codesDense:
		t.next++
	case codesSparse:
		t.next += 1 + g.Uint64N(50)
	case codesHuge:
		t.next += 1 + g.Uint64N(1<<uint(g.IntN(50)))
	}
	t.codes[string(d.b)] = code
	var coded buffer
	coded.uleb(code)
	t.decls = append(t.decls, append(coded.b, d.b...))
	return code
}

// write writes the table, in any order.
func (t *abbreviations) write() {
	g := t.object.g
	if g.oneIn(3) {
		shuffle(g, t.decls)
	}
	b := &t.object.abbrev
	t.at = b.len()
	for _, d := range t.decls {
		b.bytes(d)
	}
	b.u8(0)
}

// attribute is an attribute in the making. Its value is made when the entry is written,
// where the offsets of those before it are known.
type attribute struct {
	name uint64
	make func(u *unit) *value
}

// entry is an entry of .debug_info.
type entry struct {
	tag      uint64
	attrs    []attribute
	children []*entry
	home     *unit

	label       // where it is, once it is written
	end   label // behind its children
	// written says that it is in its section.
	written bool
}

func (e *entry) set(name uint64, f func(u *unit) *value) *entry {
	e.attrs = append(e.attrs, attribute{name, f})
	return e
}

func (e *entry) setString(name uint64, s string) *entry {
	return e.set(name, func(u *unit) *value { return u.string(s) })
}

func (e *entry) setNumber(name uint64, n int) *entry {
	return e.set(name, func(u *unit) *value { return u.number(uint64(n)) })
}

func (e *entry) setReference(name uint64, to *entry) *entry {
	return e.set(name, func(u *unit) *value { return u.reference(to) })
}

// add adds a child.
func (e *entry) add(c *entry) *entry {
	c.home = e.home
	e.children = append(e.children, c)
	return c
}

// write writes an entry and its children.
func (u *unit) write(e *entry) {
	g, b := u.g, u.section
	e.at, e.written = b.len(), true
	children := len(e.children) > 0 || g.oneIn(12) && e.tag != tagBaseType
	attrs := e.attrs
	if e != u.root || g.oneIn(5) {
		for range pick(g, 0, 0, 0, 1, 2, 4) {
			attrs = append(attrs, attribute{uint64(atVendor + len(attrs)), (*unit).noise})
		}
		shuffle(g, attrs)
	}
	if children && e != u.root && g.oneIn(2) {
		g.trait("sibling")
		sibling := attribute{atSibling, func(u *unit) *value { return u.sibling(e) }}
		if g.oneIn(4) {
			attrs = append(attrs, sibling)
		} else {
			attrs = append([]attribute{sibling}, attrs...)
		}
	}
	names, values := make([]uint64, len(attrs)), make([]*value, len(attrs))
	for i, a := range attrs {
		names[i], values[i] = a.name, a.make(u)
		g.trait(fmt.Sprintf("form %#x", values[i].form))
	}
	b.uleb(u.abbreviations.code(e.tag, children, names, values))
	for _, v := range values {
		for _, f := range v.fixups {
			f.to, f.at = b, f.at+b.len()
			g.fixups = append(g.fixups, f)
		}
		b.bytes(v.b)
	}
	if !children {
		e.end.at = b.len()
		return
	}
	for _, c := range e.children {
		u.write(c)
	}
	b.u8(0)
	e.end.at = b.len()
}

// sibling returns the value of DW_AT_sibling.
func (u *unit) sibling(e *entry) *value {
	relative := func() uint64 { return uint64(e.end.at - u.start.at) }
	v := u.value(pick(u.g, uint64(formRef4), formRef4, formRef4, formRef8, formRefUdata, formRefAddr))
	if u.split && v.form == formRefAddr {
		v.form = formRef4
	}
	switch v.form {
	case formRef4:
		v.later(4, relative)
	case formRef8:
		v.later(8, relative)
	case formRefUdata:
		v.laterLEB(4, relative)
	case formRefAddr:
		size := u.offset
		if u.version == 2 {
			size = u.g.word
		}
		v.later(size, e.end.offset)
	}
	return u.indirect(v)
}
