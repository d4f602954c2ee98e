package dwarf

import (
	"math"
	"slices"

	"hallmark/internal/cursor"
)

// row says where the code from an address on comes from.
type row struct {
	addr         uint64
	file         uint32 // number in the unit's files
	line, column uint32
}

// sequence is rows of code without a gap, in ascending order.
type sequence struct {
	Range
	first, last int // rows
}

// program is a line program (DWARF 5, section 6.2).
type program struct {
	format
	data *Data
	c    cursor.Cursor
	end  uint64 // in .debug_line

	minInst    uint64
	maxOps     uint64
	lineBase   int8
	lineRange  uint8
	opcodeBase uint8
	lengths    []byte // numbers that standard opcodes take
	code       uint64 // where the opcodes start
}

// openProgram reads the header of the line program at an offset of .debug_line, and
// the tables of files into r.
func (r *Reader) openProgram(s *state) (*program, error) {
	d := r.main
	p := &program{format: format{offsetSize: 4, big: d.Big, addrSize: s.addrSize}, data: d}
	p.c = cursor.New(d.Line, 0, d.Big)
	c := &p.c
	c.SeekTo(s.lines)
	length := uint64(c.U32())
	if length == 0xffffffff {
		p.offsetSize = 8
		length = c.U64()
	}
	if length > uint64(c.Len()) {
		return nil, d.fail(".debug_line", s.lines, "program of %#x bytes, %#x left", length, c.Len())
	}
	p.end = uint64(c.Pos()) + length
	if p.version = c.U16(); p.version < 2 || p.version > 5 {
		return nil, d.fail(".debug_line", s.lines, "version %d is unknown", p.version)
	}
	p.readHeader(r, s)
	if c.Err() != nil || p.code > p.end || p.lineRange == 0 || p.opcodeBase == 0 {
		return nil, d.failAfter(c.Pos()-int(s.lines), ".debug_line", s.lines, "malformed header")
	}
	return p, d.spend(int(p.end - s.lines))
}

// readHeader reads what follows the version.
func (p *program) readHeader(r *Reader, s *state) {
	c := &p.c
	if p.version >= 5 {
		p.addrSize = c.U8()
		c.U8() // segment selector size
	}
	length := c.Word(int(p.offsetSize))
	p.code = uint64(c.Pos()) + length
	p.minInst, p.maxOps = uint64(c.U8()), 1
	if p.version >= 4 {
		p.maxOps = max(uint64(c.U8()), 1)
	}
	c.U8() // default_is_stmt
	p.lineBase, p.lineRange, p.opcodeBase = int8(c.U8()), c.U8(), c.U8()
	p.lengths = c.Bytes(uint64(max(p.opcodeBase, 1)) - 1)
	r.files.reset(s, p.version)
	if p.version >= 5 {
		r.files.read5(p, s)
	} else {
		r.files.read2(c)
	}
}

// machine is the state of a line program while it runs (DWARF 5, section 6.2.2).
type machine struct {
	row
	opIndex uint64
	began   int  // first row of the sequence
	keep    bool // the sequence is of code
	falls   bool // its addresses go backwards somewhere
}

// bytesOfRow is about how many bytes of a program make a row.
const bytesOfRow = 4

// run appends the rows of the program to r.
func (p *program) run(r *Reader) error {
	b := p.data.Line[:p.end]
	m := machine{row: row{file: 1, line: 1}, began: len(r.rows), keep: p.data.isText(0)}
	most := r.mostRows()
	r.rows = slices.Grow(r.rows, min((len(b)-int(p.code))/bytesOfRow, most))
	most += len(r.rows)
	r.specials.make(p)
	addrs, lines := &r.specials.addrs, &r.specials.lines
	simple := p.maxOps == 1
	for at := int(p.code); at < len(b); {
		opcode := b[at]
		at++
		if opcode >= p.opcodeBase {
			if simple {
				m.addr += addrs[opcode]
			} else {
				p.advance(&m, uint64(opcode-p.opcodeBase)/uint64(p.lineRange))
			}
			m.line += lines[opcode]
			if r.emit(&m); len(r.rows)+len(r.sequences) > most {
				return p.data.fail(".debug_line", uint64(at), "rows take more memory than is left for them")
			}
			continue
		}
		operands := at
		var operand uint64
		if opcode >= lnsAdvancePC && opcode <= lnsSetColumn {
			if operand, at = uleb(b, at); at == overrun {
				return p.data.fail(".debug_line", p.code, "program does not end")
			}
		}
		if len(r.rows)+len(r.sequences) > most {
			return p.data.fail(".debug_line", uint64(at), "rows take more memory than is left for them")
		}
		switch opcode {
		case lnsCopy:
			r.emit(&m)
		case lnsAdvancePC:
			p.advance(&m, operand)
		case lnsAdvanceLine:
			n, _ := sleb(b, operands)
			m.line += uint32(n)
		case lnsSetFile:
			m.file = uint32(min(operand, math.MaxUint32))
		case lnsSetColumn:
			if r.Columns {
				m.column = uint32(min(operand, math.MaxUint16))
			}
		case lnsNegateStmt, lnsSetBasicBlock, lnsPrologueEnd, lnsEpilogueBegin:
		default:
			if at = p.rare(r, &m, b, at, opcode); at == overrun || at > len(b) {
				return p.data.fail(".debug_line", p.code, "program does not end")
			}
		}
	}
	r.rows = r.rows[:m.began] // of a sequence without end
	return r.hold(rowCost*(len(r.rows)+len(r.sequences)), ".debug_line", p.code)
}

// mostRows is for how many rows there is memory.
func (r *Reader) mostRows() int {
	return int(max(0, r.main.budget.memory.Load())) / (rowCost + pieceCost)
}

// emit appends a row. Of several at one address the last one counts.
func (r *Reader) emit(m *machine) {
	if !m.keep {
		return
	}
	if n := len(r.rows); n > m.began {
		last := &r.rows[n-1]
		if last.addr == m.addr {
			*last = m.row
			return
		}
		m.falls = m.falls || last.addr > m.addr
	}
	r.rows = append(r.rows, m.row)
}

// specials are what special opcodes add to the address and to the line. They are those of the
// program before, too, as a rule.
type specials struct {
	by    specialsKey
	addrs [256]uint64
	lines [256]uint32
}

type specialsKey struct {
	minInst               uint64
	lineBase              int8
	lineRange, opcodeBase uint8 // not 0 in a program
}

// make makes the specials of a program.
func (t *specials) make(p *program) {
	by := specialsKey{p.minInst, p.lineBase, p.lineRange, p.opcodeBase}
	if t.by == by {
		return
	}
	t.by = by
	for i := int(p.opcodeBase); i < 256; i++ {
		n := i - int(p.opcodeBase)
		t.addrs[i] = uint64(n/int(p.lineRange)) * p.minInst
		t.lines[i] = uint32(int(p.lineBase) + n%int(p.lineRange))
	}
}

// advance moves the address by n operations, several of which can be in one
// instruction.
func (p *program) advance(m *machine, n uint64) {
	if p.maxOps == 1 {
		m.addr += n * p.minInst
		return
	}
	n += m.opIndex
	m.addr += n / p.maxOps * p.minInst
	m.opIndex = n % p.maxOps
}

// rare carries out a standard opcode that is not often used, or an unknown one, whose
// operands are at at.
func (p *program) rare(r *Reader, m *machine, b []byte, at int, opcode uint8) int {
	switch opcode {
	case lnsExtended:
		return p.extended(r, m, b, at)
	case lnsConstAddPC:
		p.advance(m, uint64(255-p.opcodeBase)/uint64(p.lineRange))
	case lnsFixedAdvancePC:
		if len(b)-at < 2 {
			return overrun
		}
		m.addr += p.fixed(b[at:], 2)
		m.opIndex = 0
		return at + 2
	default:
		for range p.lengths[opcode-1] {
			if _, at = uleb(b, at); at == overrun {
				return overrun
			}
		}
	}
	return at
}

// extended carries out an extended opcode.
func (p *program) extended(r *Reader, m *machine, b []byte, at int) int {
	n, at := uleb(b, at)
	end := pass(b, at, n)
	if end == overrun || n == 0 {
		return end
	}
	switch b[at] {
	case lneEndSequence:
		r.endSequence(m)
		*m = machine{row: row{file: 1, line: 1}, began: len(r.rows), keep: p.data.isText(0)}
	case lneSetAddress:
		size := uint32(n - 1)
		if size == 0 || size > 8 {
			return overrun
		}
		m.addr, m.opIndex = p.fixed(b[at+1:], size), 0
		if len(r.rows) == m.began {
			m.keep = p.data.isText(m.addr)
		}
	case lneDefineFile:
		r.files.define(b[at+1 : end])
	}
	return end
}

// endSequence keeps the rows since m.began as a sequence. One that is not in
// ascending order is of no use.
func (r *Reader) endSequence(m *machine) {
	rows := r.rows[m.began:]
	if m.falls || len(rows) == 0 || r.main.clip(m.addr) <= rows[0].addr {
		r.rows = r.rows[:m.began]
		return
	}
	r.sequences = append(r.sequences, sequence{Range{rows[0].addr, r.main.clip(m.addr)}, m.began, len(r.rows)})
}
