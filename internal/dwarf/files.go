package dwarf

import (
	"math"

	"hallmark/internal/cursor"
)

// Files are the source files that a unit speaks of, by number.
type Files struct {
	compDir []byte
	dirs    [][]byte
	files   []file
	first   uint32 // number of the first file: 1 before DWARF 5
}

// maxFiles bounds the files of a unit, and their directories. Those of the largest units,
// which are whole programs, have thousands.
const maxFiles = 1 << 19

// noFile is the number of no file. From DWARF 5 on 0 is the number of one.
const noFile = math.MaxUint32

type file struct {
	name []byte
	dir  uint64
}

func (f *Files) reset(s *state, version uint16) {
	f.compDir = s.dir
	f.dirs, f.files = f.dirs[:0], f.files[:0]
	f.first = 0
	if version < 5 {
		f.first = 1
	}
}

// AppendPath appends the path of a file as the compiler recorded it, joined with
// its directories, and nothing for a file that is not known.
func (f *Files) AppendPath(path []byte, number uint32) []byte {
	i := uint64(number) - uint64(f.first)
	if i >= uint64(len(f.files)) {
		return path
	}
	file := &f.files[i]
	if string(file.name) == "?" {
		return path // Go's compiler has it for code that comes from no file
	}
	if isAbsolute(file.name) {
		return append(path, file.name...)
	}
	own := f.ownDir()
	if dir := f.dir(file.dir); len(dir) > 0 {
		if !isAbsolute(dir) && string(dir) != string(own) {
			path = appendDir(path, own)
		}
		path = appendDir(path, dir)
	} else {
		path = appendDir(path, own)
	}
	return append(path, file.name...)
}

// ownDir returns the directory of the compilation: what the unit says, or else, from
// DWARF 5 on, the first directory of the table.
func (f *Files) ownDir() []byte {
	if len(f.compDir) == 0 && f.first == 0 && len(f.dirs) > 0 {
		return f.dirs[0]
	}
	return f.compDir
}

// dir returns a directory. Before DWARF 5 number 0 was the unit's own, and not in
// the table.
func (f *Files) dir(number uint64) []byte {
	i := number - uint64(f.first)
	if i >= uint64(len(f.dirs)) {
		return nil
	}
	return f.dirs[i]
}

func isAbsolute(path []byte) bool { return len(path) > 0 && path[0] == '/' }

func appendDir(path, dir []byte) []byte {
	if len(dir) == 0 {
		return path
	}
	path = append(path, dir...)
	if dir[len(dir)-1] != '/' {
		path = append(path, '/')
	}
	return path
}

// read2 reads the tables as they were up to DWARF 4.
func (f *Files) read2(c *cursor.Cursor) {
	for {
		dir := c.CString()
		if len(f.dirs) >= maxFiles {
			c.Fail("more than %d directories", maxFiles)
		}
		if len(dir) == 0 || c.Err() != nil {
			break
		}
		f.dirs = append(f.dirs, dir)
	}
	for f.define1(c) {
	}
}

// define1 reads one file, and reports whether there was one.
func (f *Files) define1(c *cursor.Cursor) bool {
	name := c.CString()
	if len(name) == 0 {
		return false
	}
	if len(f.files) >= maxFiles {
		c.Fail("more than %d files", maxFiles)
		return false
	}
	f.files = append(f.files, file{name, c.Uvarint()})
	c.Uvarint() // time
	c.Uvarint() // length
	return c.Err() == nil
}

// define adds the file that a line program defines, by the operands of the opcode.
func (f *Files) define(b []byte) {
	if f.first == 1 {
		c := cursor.New(b, 0, false)
		f.define1(&c)
	}
}

// read5 reads the tables of DWARF 5.
func (f *Files) read5(p *program, s *state) {
	f.readTable(p, s, func(name []byte, _ uint64) { f.dirs = append(f.dirs, name) })
	f.readTable(p, s, func(name []byte, dir uint64) { f.files = append(f.files, file{name, dir}) })
}

// readTable reads a table whose entries have the parts that a list before it names.
func (f *Files) readTable(p *program, s *state, add func(name []byte, dir uint64)) {
	var parts [32]op
	c := &p.c
	count := int(c.U8())
	for i := range count {
		content, form := c.Uvarint(), c.Uvarint()
		kind, size, ok := p.shape(form)
		if !ok || kind == opIndirect || i >= len(parts) {
			c.Fail("form %#x in a table of files", form)
			return
		}
		parts[i] = op{kind: kind, form: uint16(form), size: size}
		switch content {
		case lnctPath:
			parts[i].slot = slotName
		case lnctDirectoryIndex:
			parts[i].slot = slotCallFile
		}
	}
	b := p.data.Line[:p.end]
	at := state{Unit: &Unit{data: p.data, format: p.format, end: uint64(len(p.data.Line))}, root: s.root, strBase: s.strBase}
	var v values
	entries := c.Uvarint()
	if entries > maxFiles {
		c.Fail("more than %d files", maxFiles)
	}
	for range entries {
		if c.Err() != nil {
			return
		}
		next := p.read(b, c.Pos(), parts[:count], &v)
		if next == overrun || next == c.Pos() {
			c.Fail("table of files does not end")
			return
		}
		var name String
		if form, place := v.get(slotName); form == FormString {
			name = stringAt(b, place) // it is in the table, not in .debug_info
		} else {
			name = at.str(&v, slotName)
		}
		_, dir := v.get(slotCallFile)
		add(name.Bytes(), dir)
		c.SeekTo(uint64(next))
	}
}

// Len returns how many numbers of files there are, with 0 where that is no file.
func (f *Files) Len() int { return len(f.files) + int(f.first) }
