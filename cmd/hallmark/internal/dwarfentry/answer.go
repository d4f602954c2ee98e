package dwarfentry

import (
	"cmp"
	"slices"

	"hallmark/internal/cursor"
)

// A Frame is what is known of a function at an address besides its name.
type Frame struct {
	Path          Path // of the instruction, for an outer frame of the call
	Line, Column  uint64
	Discriminator uint64 // of the line; 0 when there is none

	StartPath Path   // where the function is declared
	StartLine uint64 // 0 when not known
	Start     uint64 // address of its first instruction
	HasStart  bool
}

// Frames returns the function at an address and the calls inlined into it, innermost
// first. Where only lines are known it is one frame, and nil where nothing is.
func (f *File) Frames(v uint64) []Frame {
	f.renew()
	u := f.unitOf(v)
	if u == nil {
		return nil
	}
	at := Frame{}
	r, hasLine := u.lines().at(v)
	if hasLine {
		at = Frame{Path: u.path(r.file), Line: r.line, Column: r.column, Discriminator: r.discr}
	}
	own := u.full()
	i := own.innermost(v)
	if i < 0 && hasLine {
		return []Frame{at}
	}
	var frames []Frame
	for ; i >= 0; i = own.scopes[i].parent {
		s := own.scopes[i]
		e, ok := own.entryAt(s.off)
		if !ok {
			break
		}
		frame := at
		frame.start(&e)
		frames = append(frames, frame)
		at = Frame{}
		if s.isCall {
			at.Path = own.path(e.find(atCallFile).u)
			at.Line, at.Column, at.Discriminator = e.find(atCallLine).u, e.find(atCallColumn).u, e.find(atGNUDiscr).u
		}
	}
	return frames
}

// start adds to a frame where the function of an entry starts.
func (f *Frame) start(e *entry) {
	file, says := e.recursively(atDeclFile)
	if file.form != 0 {
		f.StartPath = says.path(file.u)
	}
	line, _ := e.recursively(atDeclLine)
	f.StartLine = line.u
	f.Start, f.HasStart = e.unit.address(e.find(atLowPC))
}

// A Declaration is where something is declared.
type Declaration struct {
	Path Path
	Line uint64
}

// variable is one with an address.
type variable struct{ start, end, off uint64 }

// Data returns where the variable at an address is declared.
func (f *File) Data(v uint64) (Declaration, bool) {
	f.renew()
	f.search()
	for i, u := range f.main.all() {
		variables := f.variables[i]
		at, _ := slices.BinarySearchFunc(variables, v, func(x variable, v uint64) int { return cmp.Compare(x.start, v+1) })
		if at == 0 || variables[at-1].end <= v {
			continue
		}
		e, ok := u.own.entryAt(variables[at-1].off)
		if !ok {
			continue
		}
		line, _ := e.recursively(atDeclLine)
		file, says := e.recursively(atDeclFile)
		d := Declaration{Line: line.u}
		if file.form != 0 {
			d.Path = says.path(file.u)
		}
		return d, true
	}
	return Declaration{}, false
}

// search finds all variables with an address.
func (f *File) search() {
	if f.searched {
		return
	}
	f.searched = true
	for _, u := range f.main.all() {
		f.variables = append(f.variables, u.full().globals())
	}
}

// globals returns the variables of a unit that have an address, by address. Of those at
// one address it is the last.
func (u *unit) globals() []variable {
	var all []variable
	u.walk(u.first, true, func(e *entry, _ int) bool {
		if e.tag != tagVariable {
			return true
		}
		start, ok := uint64(0), false
		u.expressions(e.find(atLocation), func(x []byte) bool {
			start, ok = u.fixedAddress(x)
			return !ok
		})
		if !ok {
			return true
		}
		size := uint64(1)
		if n, ok := e.sizeOfType(0); ok {
			size = n
		}
		all = append(all, variable{start, start + size, e.off})
		return true
	})
	slices.SortStableFunc(all, func(a, b variable) int { return cmp.Compare(a.start, b.start) })
	kept := all[:0]
	for i, v := range all {
		if i+1 == len(all) || all[i+1].start != v.start {
			kept = append(kept, v)
		}
	}
	return kept
}

// fixedAddress returns the address that an expression is: DW_OP_addr or DW_OP_addrx,
// with or without DW_OP_plus_uconst.
func (u *unit) fixedAddress(x []byte) (v uint64, ok bool) {
	c := cursor.New(x, 0, u.Big)
	switch c.U8() {
	case opAddr:
		v, ok = c.Word(u.addrSize), true
	case opAddrx, opGNUAddrx:
		v, ok = u.addressAt(c.Uvarint())
	}
	if ok && c.Len() > 0 {
		ok = c.U8() == opPlusUconst
		v += c.Uvarint()
	}
	return v, ok && c.Err() == nil && c.Len() == 0
}

// sizeOfType returns the bytes of the type that an entry says it has.
func (e *entry) sizeOfType(depth int) (uint64, bool) {
	v, u := e.recursively(atType)
	t, ok := u.refer(v)
	if !ok {
		return 0, false
	}
	return t.size(depth)
}

// size returns the bytes that something of a type takes.
func (e *entry) size(depth int) (uint64, bool) {
	if depth >= maxDepth {
		return 0, false
	}
	if v := e.find(atByteSize); v.isConstant() {
		return v.u, true
	}
	pointer := uint64(e.unit.addrSize)
	switch e.tag {
	case tagPointer, tagReference, tagRvalue:
		return pointer, true
	case tagPtrToMember:
		if t, ok := e.unit.refer(e.find(atType)); ok && t.tag == tagSubroutine {
			return 2 * pointer, true
		}
		return pointer, true
	case tagArray:
		return e.arraySize(depth)
	}
	return e.sizeOfType(depth + 1)
}

// arraySize returns the bytes of an array.
func (e *entry) arraySize(depth int) (uint64, bool) {
	size, ok := e.sizeOfType(depth + 1)
	if !ok || !e.children {
		return size, ok
	}
	e.unit.walk(e.off, false, func(child *entry, depth int) bool {
		if depth != 1 || child.tag != tagSubrange {
			return true
		}
		if n := child.find(atCount); n.isConstant() {
			size *= n.u
		}
		if high := child.find(atUpperBound); high.isConstant() {
			low := int64(0)
			if v := child.find(atLowerBound); v.isConstant() {
				low = v.signed()
			}
			size *= uint64(high.signed() - low + 1)
		}
		return true
	})
	return size, ok
}

// A Local is a variable or a parameter of a function.
type Local struct {
	Function string // "" when not known
	Name     string // "" when not known
	Declaration

	FrameOffset int64 // from the frame's base
	HasOffset   bool
	Size        uint64
	HasSize     bool
	TagOffset   uint64 // what HWASan adds to the tag of the frame
	HasTag      bool
}

// Locals returns the variables of the function at an address.
func (f *File) Locals(v uint64) []Local {
	f.renew()
	u := f.unitOf(v)
	if u == nil {
		return nil
	}
	own := u.full()
	i := own.innermost(v)
	if i < 0 {
		return nil
	}
	function, ok := own.entryAt(own.scopes[i].off)
	if !ok {
		return nil
	}
	var locals []Local
	functions := []entry{function} // by depth
	own.walk(function.off, false, func(e *entry, depth int) bool {
		for len(functions) <= depth {
			functions = append(functions, functions[len(functions)-1])
		}
		functions = functions[:depth+1]
		switch e.tag {
		case tagVariable, tagParameter:
			locals = append(locals, localOf(e, &functions[depth]))
		case tagInlined:
			if origin, ok := own.refer(e.find(atAbstractOrigin)); ok {
				functions[depth] = origin
				if depth == 0 {
					functions[0] = origin
				}
			}
		}
		return len(locals) < maxLocals && depth < maxDepth
	})
	return locals
}

// localOf returns the variable that an entry of a function is.
func localOf(e, function *entry) Local {
	var l Local
	name, says := function.recursively(atName)
	l.Function = says.string(name)
	base := -1
	if x := function.find(atFrameBase).expression(); len(x) > 0 && x[0] >= opReg0 && x[0] <= opReg31 {
		base = int(x[0] - opReg0)
	}
	e.unit.expressions(e.find(atLocation), func(x []byte) bool {
		l.FrameOffset, l.HasOffset = frameOffset(x, base)
		return !l.HasOffset
	})
	if tag := e.find(atLLVMTagOffset); tag.isConstant() {
		l.TagOffset, l.HasTag = tag.u, true
	}
	if origin, ok := e.unit.refer(e.find(atAbstractOrigin)); ok {
		e = &origin
	}
	l.Name = e.unit.string(e.find(atName))
	l.Size, l.HasSize = e.sizeOfType(0)
	if file := e.find(atDeclFile); file.form != 0 {
		l.Path = e.unit.path(file.u)
	}
	l.Line = e.find(atDeclLine).u
	return l
}

// frameOffset returns the offset from the frame's base that an expression is: that of
// DW_OP_fbreg, or of the register that the base is in; DW_OP_deref may follow.
func frameOffset(x []byte, base int) (int64, bool) {
	if len(x) == 0 || x[0] != opFbreg && (base < 0 || int(x[0]) != opBreg0+base) {
		return 0, false
	}
	c := cursor.New(x[1:], 0, false)
	offset := sleb(&c)
	if c.Len() == 1 {
		return offset, c.U8() == opDeref
	}
	return offset, c.Err() == nil && c.Len() == 0
}
