package dwarfentry

import (
	"path"
	"sort"

	"hallmark/internal/cursor"
	"hallmark/internal/dwarf"
)

// A Path is that of a source file, in the parts that the compiler recorded.
type Path struct {
	compDir string // of the compilation
	dir     string
	name    string
	isComp  bool // dir is the directory of the compilation
}

// Absolute returns the whole path, as far as the compiler recorded it.
func (p Path) Absolute() string {
	switch {
	case path.IsAbs(p.name) || p.name == "":
		return p.name
	case p.isComp || path.IsAbs(p.dir):
		return join(p.dir, p.name)
	}
	return join(p.compDir, p.dir, p.name)
}

// Relative returns the path from the directory of the compilation.
func (p Path) Relative() string {
	if path.IsAbs(p.name) || p.isComp {
		return p.name
	}
	return join(p.dir, p.name)
}

// Base returns the name of the file without directories.
func (p Path) Base() string {
	if p.name == "" {
		return ""
	}
	return path.Base(p.name)
}

// join puts a slash between parts that are not empty. It cleans nothing.
func join(parts ...string) string {
	joined := ""
	for _, p := range parts {
		if joined != "" && p != "" && joined[len(joined)-1] != '/' {
			joined += "/"
		}
		joined += p
	}
	return joined
}

// lineTable is the line program of a unit.
type lineTable struct {
	version   uint16
	unit      *unit // with the form of its numbers
	dirs      []value
	files     []lineFile
	sequences []sequence
}

type lineFile struct {
	name value
	dir  uint64
}

// sequence is code without holes. Its last row is its end.
type sequence struct{ rows []row }

type row struct {
	address uint64
	file    uint64
	line    uint64
	column  uint64
	discr   uint64
}

// lines returns the line table of a unit.
func (u *unit) lines() *lineTable {
	s := u.skeleton
	if s.table == nil {
		s.table = new(lineTable)
		if v := s.root.find(atStmtList); v.form != 0 {
			s.readLines(v.u)
		}
	}
	return s.table
}

// path returns a file of a unit by its number.
func (u *unit) path(number uint64) Path {
	t := u.lines()
	if t.version < 5 {
		number--
	}
	if number >= uint64(len(t.files)) {
		return Path{}
	}
	f := t.files[number]
	p := Path{compDir: u.skeleton.dir, name: t.unit.string(f.name)}
	switch {
	case t.version >= 5:
		p.isComp = f.dir == 0
		if f.dir < uint64(len(t.dirs)) {
			p.dir = t.unit.string(t.dirs[f.dir])
		}
	case f.dir > 0 && f.dir <= uint64(len(t.dirs)):
		p.dir = t.unit.string(t.dirs[f.dir-1])
	}
	return p
}

// readLines reads the line table at an offset of .debug_line, up to damage.
func (u *unit) readLines(off uint64) {
	c := cursor.New(u.Line, 0, u.Big)
	c.SeekTo(off)
	h := &unit{data: u.data, offSize: 4, addrSize: u.addrSize, strBase: u.strBase}
	length := uint64(c.U32())
	if length == 0xffffffff {
		h.offSize, length = 8, c.U64()
	}
	if c.Err() != nil || length > uint64(c.Len()) {
		return
	}
	from := uint64(c.Pos())
	c = cursor.New(u.Line[:from+length], 0, u.Big)
	c.SeekTo(from)
	h.version = c.U16()
	if h.version < 2 || h.version > 5 {
		return
	}
	if h.version == 5 {
		h.addrSize = int(c.U8())
		c.U8()
	}
	rest := c.Word(h.offSize)
	start := uint64(c.Pos()) + rest
	p := program{t: u.table, addrSize: h.addrSize}
	p.minInst = uint64(c.U8())
	if h.version >= 4 {
		c.U8()
	}
	c.U8()
	p.lineBase, p.lineRange, p.opcodeBase = int64(int8(c.U8())), c.U8(), c.U8()
	if p.opcodeBase > 0 {
		p.lengths = c.Bytes(uint64(p.opcodeBase) - 1)
	}
	u.table.version, u.table.unit = h.version, h
	if h.version == 5 {
		for _, f := range h.files5(&c) {
			u.table.dirs = append(u.table.dirs, f.name)
		}
		u.table.files = h.files5(&c)
	} else {
		u.table.names(&c)
	}
	if c.Err() != nil || h.addrSize != 4 && h.addrSize != 8 {
		return
	}
	c.SeekTo(start)
	p.run(&c)
}

// names reads directories and files before DWARF 5.
func (t *lineTable) names(c *cursor.Cursor) {
	for c.Err() == nil {
		dir := c.CString()
		if len(dir) == 0 {
			break
		}
		t.dirs = append(t.dirs, value{form: dwarf.FormString, b: dir})
	}
	for c.Err() == nil {
		f := lineFile{name: value{form: dwarf.FormString, b: c.CString()}}
		if len(f.name.b) == 0 {
			break
		}
		f.dir = c.Uvarint()
		c.Uvarint()
		c.Uvarint()
		t.files = append(t.files, f)
	}
}

// files5 reads a list of directories or of files of DWARF 5.
func (u *unit) files5(c *cursor.Cursor) []lineFile {
	const contentPath, contentDir = 1, 2
	var formats [][2]uint16
	for range c.U8() {
		formats = append(formats, [2]uint16{uint16(c.Uvarint()), uint16(c.Uvarint())})
	}
	var files []lineFile
	for range c.Uvarint() {
		before := c.Pos()
		var f lineFile
		for _, format := range formats {
			switch v := u.value(c, format[1], 0); format[0] {
			case contentPath:
				f.name = v
			case contentDir:
				f.dir = v.u
			}
		}
		if c.Err() != nil || c.Pos() == before {
			c.Fail("entry without bytes")
			return files
		}
		files = append(files, f)
	}
	return files
}

// program runs a line program.
type program struct {
	t          *lineTable
	addrSize   int
	minInst    uint64
	lineBase   int64
	lineRange  uint8
	opcodeBase uint8
	lengths    []byte
	row
	rows  []row
	total int // of rows
}

func (p *program) reset() { p.row, p.rows = row{file: 1, line: 1}, nil }

func (p *program) emit() {
	p.rows = append(p.rows, p.row)
	p.total++
	p.discr = 0
}

func (p *program) run(c *cursor.Cursor) {
	if p.lineRange == 0 {
		return
	}
	p.reset()
	for c.Len() > 0 && c.Err() == nil && p.total < maxRows {
		op := c.U8()
		switch {
		case op >= p.opcodeBase:
			adjusted := op - p.opcodeBase
			p.address += uint64(adjusted/p.lineRange) * p.minInst
			p.line = uint64(int64(p.line) + p.lineBase + int64(adjusted%p.lineRange))
			p.emit()
		case op == 0:
			p.extended(c)
		default:
			p.standard(op, c)
		}
	}
}

func (p *program) standard(op uint8, c *cursor.Cursor) {
	switch op {
	case 1: // DW_LNS_copy
		p.emit()
	case 2: // DW_LNS_advance_pc
		p.address += c.Uvarint() * p.minInst
	case 3: // DW_LNS_advance_line
		p.line = uint64(int64(p.line) + sleb(c))
	case 4: // DW_LNS_set_file
		p.file = c.Uvarint()
	case 5: // DW_LNS_set_column
		p.column = c.Uvarint()
	case 8: // DW_LNS_const_add_pc
		p.address += uint64((255-p.opcodeBase)/p.lineRange) * p.minInst
	case 9: // DW_LNS_fixed_advance_pc
		p.address += uint64(c.U16())
	default:
		if int(op) <= len(p.lengths) {
			for range p.lengths[op-1] {
				c.Uvarint()
			}
		}
	}
}

func (p *program) extended(c *cursor.Cursor) {
	length := c.Uvarint()
	end := uint64(c.Pos()) + length
	if length == 0 || c.Err() != nil || length > uint64(c.Len()) {
		c.Fail("extended operation outside the table")
		return
	}
	switch c.U8() {
	case 1: // DW_LNE_end_sequence
		p.emit()
		if p.rows[0].address < p.address {
			p.t.sequences = append(p.t.sequences, sequence{p.rows})
		}
		p.reset()
	case 2: // DW_LNE_set_address
		if length-1 == 4 || length-1 == 8 {
			p.address = c.Word(int(length - 1))
		}
	case 4: // DW_LNE_set_discriminator
		p.discr = c.Uvarint()
	}
	c.SeekTo(end)
}

// at returns the row of an address.
func (t *lineTable) at(v uint64) (row, bool) {
	for _, s := range t.sequences {
		if v < s.rows[0].address || v >= s.rows[len(s.rows)-1].address {
			continue
		}
		if i := sort.Search(len(s.rows), func(i int) bool { return s.rows[i].address > v }); i > 0 {
			return s.rows[i-1], true
		}
	}
	return row{}, false
}
