package dwarftest

import "fmt"

// value is the value of an attribute in a form: its bytes, and parts of these that are
// known later.
type value struct {
	form     uint64
	constant int64 // of DW_FORM_implicit_const
	buffer
	fixups []fixup // to is nil
}

func (u *unit) value(form uint64) *value { return &value{form: form, buffer: buffer{big: u.g.big}} }

// later appends a number that is known later.
func (v *value) later(size int, f func() uint64) *value {
	v.fixups = append(v.fixups, fixup{at: v.len(), size: size, value: f})
	v.num(0, size)
	return v
}

// laterLEB appends a LEB128 number that is known later, with padding.
func (v *value) laterLEB(size int, f func() uint64) *value {
	v.later(size, f)
	v.fixups[len(v.fixups)-1].leb = true
	return v
}

func (v *value) with(n uint64, size int) *value { v.num(n, size); return v }
func (v *value) withLEB(n uint64) *value        { v.uleb(n); return v }

// choose returns a form for a kind of value: mostly that which the unit prefers, so that
// entries share abbreviations.
func (u *unit) choose(kind string, forms []uint64) uint64 {
	if f, ok := u.prefers[kind]; ok && !u.g.oneIn(3) {
		for _, g := range forms {
			if f == g {
				return f
			}
		}
	}
	f := pick(u.g, forms...)
	u.prefers[kind] = f
	return f
}

// indirect may put the form before the value.
func (u *unit) indirect(v *value) *value {
	if v.form == formImplicitConst || !u.g.oneIn(u.plain) {
		return v
	}
	u.g.trait("indirect")
	w := u.value(formIndirect)
	w.uleb(v.form)
	for _, f := range v.fixups {
		f.at += w.len()
		w.fixups = append(w.fixups, f)
	}
	w.bytes(v.b)
	return w
}

// string returns a string.
func (u *unit) string(s string) *value {
	g := u.g
	forms := []uint64{formString}
	switch {
	case u.split && u.version < 5:
		forms = append(forms, formGNUStrIndex, formGNUStrIndex)
	case u.split:
		forms = append(forms, formStrx, formStrx1, formStrx2, formStrx3, formStrx4)
	default:
		forms = append(forms, formStrp, formStrp)
		if u.version >= 5 {
			forms = append(forms, formLineStrp)
			if u.strx != nil {
				forms = append(forms, formStrx, formStrx1, formStrx2, formStrx3, formStrx4)
			}
		}
		if sup := g.layout.sup; sup != nil && u.object != sup {
			if u.version >= 5 {
				forms = append(forms, formStrpSup)
			}
			forms = append(forms, formGNUStrpAlt)
		}
	}
	form := u.choose("string", forms)
	v := u.value(form)
	switch form {
	case formString:
		v.str(s)
	case formStrp:
		v.later(u.offset, u.object.str.put(g, s))
	case formLineStrp:
		v.later(u.offset, u.object.lineStr.put(g, s))
	case formStrpSup, formGNUStrpAlt:
		g.trait("supplementary strings")
		v.later(u.offset, g.layout.sup.str.put(g, s))
	default:
		g.trait(fmt.Sprintf("form %#x", form))
		index := u.strx.index(g, s)
		return u.indexed(v, form, index, formStrx1, formStrx)
	}
	return u.indirect(v)
}

// indexed appends an index in a form of a family whose first one has one byte. A
// number that does not fit has the form that any does.
func (u *unit) indexed(v *value, form, index, first, any uint64) *value {
	if size := form - first + 1; size >= 1 && size <= 4 {
		if index>>(8*size) == 0 {
			return u.indirect(v.with(index, int(size)))
		}
		v.form = any
	}
	return u.indirect(v.withLEB(index))
}

// address returns an address.
func (u *unit) address(a uint64) *value {
	var forms []uint64
	if !u.split {
		forms = append(forms, formAddr, formAddr)
	}
	switch {
	case u.addrx == nil:
	case u.version >= 5:
		forms = append(forms, formAddrx, formAddrx1, formAddrx2, formAddrx3, formAddrx4)
	case u.split:
		forms = append(forms, formGNUAddrIndex)
	}
	form := u.choose("address", forms)
	v := u.value(form)
	if form == formAddr {
		return u.indirect(v.with(a, u.g.word))
	}
	u.g.trait(fmt.Sprintf("form %#x", form))
	return u.indexed(v, form, u.addrx.index(u.g, a), formAddrx1, formAddrx)
}

// number returns a constant.
func (u *unit) number(n uint64) *value {
	forms := []uint64{formUdata, formData8}
	if u.signed {
		u.g.trait("sdata")
		forms = append(forms, formSdata, formSdata)
	}
	for i, form := range []uint64{formData1, formData2, formData4} {
		if n>>(8<<i) == 0 {
			forms = append(forms, form, form)
		}
	}
	if u.version >= 5 {
		forms = append(forms, formImplicitConst)
	}
	v := u.value(u.choose("number", forms))
	switch v.form {
	case formUdata:
		v.uleb(n)
	case formSdata:
		v.sleb(int64(n))
	case formData1:
		v.num(n, 1)
	case formData2:
		v.num(n, 2)
	case formData4:
		v.num(n, 4)
	case formData8:
		v.num(n, 8)
	case formImplicitConst:
		u.g.trait("implicit_const")
		v.constant = int64(n)
	}
	return u.indirect(v)
}

// flag returns a flag that is true.
func (u *unit) flag() *value {
	if u.version >= 4 && u.g.oneIn(2) {
		return u.value(formFlagPresent)
	}
	return u.value(formFlag).with(1, 1)
}

// place returns an offset in another section.
func (u *unit) place(f func() uint64) *value {
	form := uint64(formSecOffset)
	if u.version < 4 {
		form = map[int]uint64{4: formData4, 8: formData8}[u.offset]
	}
	return u.indirect(u.value(form).later(u.offset, f))
}

// reference returns a reference to an entry.
func (u *unit) reference(to *entry) *value {
	g := u.g
	var forms []uint64
	relative := func() uint64 { return uint64(to.at - u.start.at) }
	absolute := func() uint64 { return uint64(to.at) }
	switch home := to.home; {
	case home.object != u.object: // the supplementary file
		g.trait("supplementary entries")
		forms = []uint64{formGNURefAlt}
		if u.version >= 5 {
			forms = append(forms, formRefSup4, formRefSup8)
		}
	case home != u:
		g.trait("ref_addr")
		forms = []uint64{formRefAddr}
	default:
		forms = []uint64{formRef4, formRef4, formRef4, formRef2, formRef8, formRefUdata, formRefUdata}
		if !u.split {
			forms = append(forms, formRefAddr)
		}
		if to.written && relative() < 0x100 {
			forms = append(forms, formRef1, formRef1)
		}
	}
	v := u.value(u.choose("reference", forms))
	switch v.form {
	case formRef1, formRef2, formRef4, formRef8:
		v.later(map[uint64]int{formRef1: 1, formRef2: 2, formRef4: 4, formRef8: 8}[v.form], relative)
	case formRefUdata:
		if to.written && g.oneIn(2) {
			v.uleb(relative())
		} else {
			v.laterLEB(3+g.IntN(4), relative)
		}
	case formRefAddr:
		size := u.offset
		if u.version == 2 {
			size = g.word
		}
		v.later(size, absolute)
	case formGNURefAlt:
		v.later(u.offset, absolute)
	case formRefSup4:
		v.later(4, absolute)
	case formRefSup8:
		v.later(8, absolute)
	}
	return u.indirect(v)
}

// noise returns a value that nobody asks for.
func (u *unit) noise() *value {
	g := u.g
	forms := []uint64{
		formBlock1, formBlock2, formBlock4, formBlock, formData1, formData2, formData4, formData8,
		formFlag, formSdata, formUdata, formString, formRef4, formRef8, formRefUdata, formRefAddr,
	}
	if !u.split {
		forms = append(forms, formAddr, formStrp)
	}
	if u.version >= 4 {
		forms = append(forms, formSecOffset, formExprloc, formFlagPresent, formRefSig8)
	}
	if u.version >= 5 {
		forms = append(forms, formData16, formImplicitConst, formLoclistx, formRnglistx)
		if u.strx != nil {
			forms = append(forms, formStrx, formStrx1, formStrx2, formStrx3, formStrx4)
		}
		if u.addrx != nil {
			forms = append(forms, formAddrx, formAddrx1, formAddrx2, formAddrx3, formAddrx4)
		}
		if !u.split {
			forms = append(forms, formLineStrp)
		}
	}
	if u.split && u.version < 5 {
		forms = append(forms, formGNUStrIndex, formGNUAddrIndex)
	}
	form := u.choose("noise", forms)
	v := u.value(form)
	some := make([]byte, g.IntN(pick(g, 2, 20, 150)))
	for i := range some {
		some[i] = byte(g.Uint32())
	}
	switch form {
	case formBlock1:
		v.u8(len(some))
		v.bytes(some)
	case formBlock2:
		v.num(uint64(len(some)), 2)
		v.bytes(some)
	case formBlock4:
		v.num(uint64(len(some)), 4)
		v.bytes(some)
	case formBlock, formExprloc:
		v.uleb(uint64(len(some)))
		v.bytes(some)
	case formData1, formFlag:
		v.num(g.Uint64(), 1)
	case formData2:
		v.num(g.Uint64(), 2)
	case formData4:
		v.num(g.Uint64(), 4)
	case formData8, formRefSig8:
		v.num(g.Uint64(), 8)
	case formData16:
		v.num(g.Uint64(), 8)
		v.num(g.Uint64(), 8)
	case formSdata:
		v.sleb(int64(g.Uint64()) >> g.IntN(64))
	case formUdata, formLoclistx, formRnglistx, formGNUAddrIndex:
		v.uleb(g.Uint64() >> g.IntN(64))
	case formImplicitConst:
		v.constant = int64(g.Uint64()) >> g.IntN(64)
	case formString:
		v.str(g.name("noise"))
	case formStrp:
		v.later(u.offset, u.object.str.put(g, "noise"))
	case formLineStrp:
		v.later(u.offset, u.object.lineStr.put(g, "noise"))
	case formStrx, formGNUStrIndex, formAddrx:
		v.uleb(0)
	case formStrx1, formStrx2, formStrx3, formStrx4:
		v.num(0, int(form-formStrx1)+1)
	case formAddrx1, formAddrx2, formAddrx3, formAddrx4:
		v.num(0, int(form-formAddrx1)+1)
	case formAddr:
		v.num(g.Uint64(), g.word)
	case formSecOffset:
		v.num(0, u.offset)
	case formRef4:
		v.later(4, func() uint64 { return uint64(u.root.at - u.start.at) })
	case formRef8:
		v.later(8, func() uint64 { return uint64(u.root.at - u.start.at) })
	case formRefUdata:
		v.uleb(uint64(u.root.at - u.start.at))
	case formRefAddr:
		size := u.offset
		if u.version == 2 {
			size = g.word
		}
		v.later(size, func() uint64 { return uint64(u.root.at) })
	}
	return u.indirect(v)
}
