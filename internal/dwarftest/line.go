package dwarftest

import (
	"fmt"
	"strings"
)

// lineTable is the line program of a compilation in the making.
type lineTable struct {
	g       *generator
	b       *buffer
	object  *object
	unit    *compilation
	version int
	offset  int
	dirs    []string
	files   []*source
	defined []*source // by the program itself

	minInst, maxOps  uint64
	lineBase         int
	lineRange        int
	opcodeBase       int
	lengths          []byte
	setFile, setLine int // registers
	column           int
	addr, op         uint64
}

// planLines numbers the files of a compilation and says which paths they have.
func (g *generator) planLines(c *compilation, o *object, version int) *lineTable {
	t := &lineTable{g: g, b: &o.line, object: o, unit: c, version: version, offset: 4}
	if version >= 3 && g.oneIn(4) {
		t.offset = 8
	}
	g.trait(fmt.Sprintf("line version %d", version))
	t.files = append(t.files, c.sources...)
	shuffle(g, t.files)
	first, own := 1, c.dir
	if version >= 5 {
		if first = 0; own == "" {
			own = "/gen/zero"
		}
		t.dirs = append(t.dirs, own)
	} else if n := len(t.files); n > 1 && g.oneIn(6) {
		g.trait("define_file")
		t.files, t.defined = t.files[:n-1], t.files[n-1:]
	}
	t.dirs = append(t.dirs, c.dirs...)
	if g.oneIn(20) {
		filler := &source{name: "filler.c", path: join(own, "filler.c")}
		for range g.IntN(300) {
			t.files = append([]*source{filler}, t.files...)
		}
	}
	for i, f := range append(t.files[:len(t.files):len(t.files)], t.defined...) {
		f.where = first + i
		f.path = f.name
		if f.name[0] != '/' {
			dir := own
			if f.dir > 0 {
				if dir = c.dirs[f.dir-1]; dir[0] != '/' {
					dir = join(own, dir)
				}
			}
			f.path = join(dir, f.name)
		}
	}
	return t
}

func join(dir, name string) string {
	if dir == "" || strings.HasSuffix(dir, "/") {
		return dir + name
	}
	return dir + "/" + name
}

// write writes the header and the program, and returns where it starts.
func (t *lineTable) write() int {
	g, b := t.g, t.b
	for range pick(g, 0, 0, 0, 3, 50, 3000) {
		b.u8(0) // padding
	}
	at := b.len()
	done := b.length(t.offset)
	b.num(uint64(t.version), 2)
	if t.version >= 5 {
		b.u8(g.word)
		b.u8(0)
	}
	doneHeader := b.headerLength(t.offset)
	t.minInst, t.maxOps = pick(g, 1, 1, g.align, 2, 3), 1
	b.u8(int(t.minInst))
	if t.version >= 4 {
		if g.oneIn(8) {
			t.maxOps = 1 + g.Uint64N(4)
			g.trait("max_ops")
		}
		b.u8(int(t.maxOps))
	}
	b.u8(g.IntN(2))
	t.lineBase, t.lineRange = pick(g, -5, -3, -1, 0, 1, -10), 1+g.IntN(20)
	t.opcodeBase = pick(g, 10, 10, 13, 13, 13, 14, 20, 60)
	b.u8(t.lineBase)
	b.u8(t.lineRange)
	b.u8(t.opcodeBase)
	t.lengths = []byte{0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1}
	for len(t.lengths) < t.opcodeBase-1 {
		t.lengths = append(t.lengths, byte(g.IntN(4)))
		g.trait("unknown opcodes")
	}
	t.lengths = t.lengths[:t.opcodeBase-1]
	b.bytes(t.lengths)
	if t.version >= 5 {
		t.tables5()
	} else {
		t.tables2()
	}
	doneHeader()
	t.program()
	done()
	return at
}

// headerLength appends the length of what follows without the mark of 64-bit DWARF.
func (b *buffer) headerLength(offset int) (done func()) {
	at := b.len()
	b.num(0, offset)
	return func() { b.set(at, uint64(b.len()-at-offset), offset) }
}

func (t *lineTable) tables2() {
	for _, d := range t.dirs {
		t.b.str(d)
	}
	t.b.u8(0)
	for _, f := range t.files {
		t.file2(t.b, f)
	}
	t.b.u8(0)
}

func (t *lineTable) file2(b *buffer, f *source) {
	b.str(f.name)
	b.uleb(uint64(f.dir))
	b.uleb(t.g.Uint64N(1000))
	b.uleb(t.g.Uint64N(1 << 20))
}

// part is a part of an entry in a table of files.
type part struct{ content, form uint64 }

// tables5 writes the tables of DWARF 5.
func (t *lineTable) tables5() {
	g := t.g
	dirParts := t.parts(g.oneIn(6))
	t.format(dirParts)
	t.b.uleb(uint64(len(t.dirs)))
	for _, d := range t.dirs {
		t.entry(dirParts, d, 0)
	}
	fileParts := append(t.parts(g.oneIn(2)), part{lnctDirectory, pick(g, uint64(formUdata), formUdata, formData1, formData2)})
	shuffle(g, fileParts)
	t.format(fileParts)
	t.b.uleb(uint64(len(t.files)))
	for _, f := range t.files {
		t.entry(fileParts, f.name, f.dir)
	}
}

// parts returns the parts of a table's entries: a path, and perhaps others.
func (t *lineTable) parts(more bool) []part {
	g := t.g
	forms := []uint64{formString, formLineStrp, formLineStrp, formStrp}
	if g.layout.sup != nil {
		forms = append(forms, formStrpSup)
	}
	path := part{lnctPath, pick(g, forms...)}
	g.trait(fmt.Sprintf("path %#x", path.form))
	if path.form == formStrpSup {
		g.trait("supplementary strings")
	}
	parts := []part{path}
	if !more {
		return parts
	}
	g.trait("more parts")
	for _, p := range []part{
		{lnctTime, pick(g, uint64(formUdata), formData4, formData8, formBlock)},
		{lnctSize, pick(g, uint64(formUdata), formData1, formData2, formData4, formData8)},
		{lnctMD5, formData16},
		{lnctVendor, pick(g, uint64(formString), formLineStrp, formUdata, formBlock, formData1)},
		{lnctVendor + 0x55, pick(g, uint64(formBlock), formData4, formData16, formBlock1, formSdata)},
	} {
		if g.oneIn(2) {
			parts = append(parts, p)
		}
	}
	shuffle(g, parts)
	return parts
}

func (t *lineTable) format(parts []part) {
	t.b.u8(len(parts))
	for _, p := range parts {
		t.b.uleb(p.content)
		t.b.uleb(p.form)
	}
}

// entry writes an entry of a table.
func (t *lineTable) entry(parts []part, path string, dir int) {
	g, b := t.g, t.b
	later := func(f func() uint64) {
		g.fixups = append(g.fixups, fixup{to: b, at: b.len(), size: t.offset, value: f})
		b.num(0, t.offset)
	}
	for _, p := range parts {
		n := g.Uint64N(200)
		if p.content == lnctDirectory {
			n = uint64(dir)
		}
		if p.content != lnctPath && p.form != formString && p.form != formLineStrp {
			t.number(p.form, n)
			continue
		}
		text := path
		if p.content != lnctPath {
			text = "source text"
		}
		switch p.form {
		case formString:
			b.str(text)
		case formLineStrp:
			later(t.object.lineStr.put(g, text))
		case formStrp:
			later(t.object.str.put(g, text))
		case formStrpSup:
			later(g.layout.sup.str.put(g, text))
		}
	}
}

func (t *lineTable) number(form, n uint64) {
	b := t.b
	switch form {
	case formUdata:
		b.uleb(n)
	case formSdata:
		b.sleb(-int64(n))
	case formData1:
		b.num(n, 1)
	case formData2:
		b.num(n, 2)
	case formData4:
		b.num(n, 4)
	case formData8:
		b.num(n, 8)
	case formData16:
		b.num(n, 16)
	case formBlock:
		b.uleb(n)
		b.bytes(make([]byte, n))
	case formBlock1:
		b.u8(int(n))
		b.bytes(make([]byte, n))
	}
}

// program writes the opcodes.
func (t *lineTable) program() {
	t.reset()
	for _, f := range t.defined {
		var b buffer
		b.u8(lneDefineFile)
		t.file2(&b, f)
		t.extended(b.b)
	}
	sequences := append([]*sequence(nil), t.unit.sequences...)
	if t.g.oneIn(2) {
		shuffle(t.g, sequences)
	}
	for _, q := range sequences {
		t.setAddress(q.low)
		for i := range q.rows {
			t.row(&q.rows[i])
		}
		t.moveTo(q.high, 0)
		t.extended([]byte{lneEndSequence})
		t.reset()
	}
}

func (t *lineTable) reset() {
	t.addr, t.op, t.setFile, t.setLine, t.column = 0, 0, 1, 1, 0
}

// extended writes an extended opcode, whose length can have padding.
func (t *lineTable) extended(b []byte) {
	t.b.u8(0)
	t.b.uleb(uint64(len(b)))
	t.b.bytes(b)
}

func (t *lineTable) setAddress(v uint64) {
	b := buffer{big: t.g.big}
	b.u8(lneSetAddress)
	b.num(v, t.g.word)
	t.extended(b.b)
	t.addr, t.op = v, 0
}

// clutter writes opcodes that say nothing of interest.
func (t *lineTable) clutter() {
	g, b := t.g, t.b
	switch g.IntN(12) {
	case 0:
		b.u8(lnsNegateStmt)
	case 1:
		b.u8(lnsSetBasicBlock)
	case 2:
		if t.opcodeBase > lnsSetISA {
			b.u8(pick(g, lnsPrologueEnd, lnsEpilogueBegin))
		}
	case 3:
		if t.opcodeBase > lnsSetISA {
			b.u8(lnsSetISA)
			b.uleb(g.Uint64N(300))
		}
	case 4:
		g.trait("discriminator")
		d := buffer{}
		d.u8(lneSetDiscriminator)
		d.uleb(g.Uint64N(1000))
		t.extended(d.b)
	case 5:
		g.trait("unknown extended opcode")
		t.extended(append([]byte{lneVendor}, make([]byte, g.IntN(20))...))
	case 6:
		if t.opcodeBase > 13 {
			opcode := 13 + g.IntN(t.opcodeBase-13)
			b.u8(opcode)
			for range t.lengths[opcode-1] {
				b.uleb(g.Uint64N(1000))
			}
		}
	}
}

// row writes what makes a row.
func (t *lineTable) row(r *row) {
	g, b := t.g, t.b
	t.clutter()
	if r.file.where != t.setFile || g.oneIn(20) {
		b.u8(lnsSetFile)
		b.uleb(uint64(r.file.where))
		t.setFile = r.file.where
	}
	if r.col != t.column {
		b.u8(lnsSetColumn)
		b.uleb(uint64(r.col))
		t.column = r.col
	}
	op := uint64(0)
	if t.maxOps > 1 {
		op = g.Uint64N(t.maxOps)
	}
	if !g.oneIn(4) && t.special(r, op) {
		return
	}
	t.moveTo(r.addr, op)
	if t.setLine != r.line {
		b.u8(lnsAdvanceLine)
		b.sleb(int64(r.line - t.setLine))
		t.setLine = r.line
	}
	t.clutter()
	b.u8(lnsCopy)
}

// operations returns how many operations it is to an address, false where it is none.
func (t *lineTable) operations(to, op uint64) (uint64, bool) {
	d := to - t.addr
	if to < t.addr || d%t.minInst != 0 {
		return 0, false
	}
	n := int64(d/t.minInst*t.maxOps) + int64(op) - int64(t.op)
	return uint64(n), n >= 0
}

// special writes a row as a special opcode, if one can make it.
func (t *lineTable) special(r *row, op uint64) bool {
	n, ok := t.operations(r.addr, op)
	line := r.line - t.setLine - t.lineBase
	if !ok || n > 255 || line < 0 || line >= t.lineRange {
		return false
	}
	if line+t.opcodeBase > 255 {
		return false
	}
	if most := uint64(255-t.opcodeBase) / uint64(t.lineRange); n >= most && !t.g.oneIn(3) {
		t.g.trait("const_add_pc")
		t.b.u8(lnsConstAddPC)
		n -= most
	}
	opcode := line + t.lineRange*int(n) + t.opcodeBase
	if opcode > 255 {
		t.b.u8(lnsAdvancePC)
		t.b.uleb(n)
		opcode = line + t.opcodeBase
	}
	t.b.u8(opcode)
	t.addr, t.op, t.setLine = r.addr, op, r.line
	return true
}

// moveTo writes what advances to an address. An operation other than the first one is
// reached only by opcodes that count operations.
func (t *lineTable) moveTo(v, op uint64) {
	g, b := t.g, t.b
	if t.addr == v && t.op == op {
		return
	}
	n, ok := t.operations(v, op)
	switch {
	case ok && !g.oneIn(4):
		b.u8(lnsAdvancePC)
		b.uleb(n)
		t.addr, t.op = v, op
	case v-t.addr < 1<<16 && v >= t.addr && !g.oneIn(3):
		g.trait("fixed_advance_pc")
		b.u8(lnsFixedAdvancePC)
		b.num(v-t.addr, 2)
		t.addr, t.op = v, 0
	default:
		t.setAddress(v)
	}
}
