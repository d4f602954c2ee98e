package dwarf

import (
	"errors"
	"slices"
	"testing"
)

// lineProgram returns a Data whose line program has these opcodes. Of its standard opcodes
// the last one, 13, is not known, and has two operands.
func lineProgram(opcodes bytesOf) *Data {
	var header, b bytesOf
	header.put(uint8(1), uint8(1), uint8(1), uint8(0xfb), uint8(14), uint8(14)) // lines from -5 on, 14 of them
	header.put(bytesOf{0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 2})
	header.put(uint8(0), "a.c", leb(0), leb(0), leb(0), uint8(0))
	b.put(uint32(2+4+len(header)+len(opcodes)), uint16(4), uint32(len(header)), header, opcodes)
	d := data(new(bytesOf).put(end))
	d.Line = slices.Clip(b)
	return d
}

// runLines runs the line program of d.
func runLines(t *testing.T, d *Data) (*Reader, error) {
	t.Helper()
	units, err := d.Units()
	if err != nil {
		t.Fatal(err)
	}
	r := d.NewReader()
	p, err := r.openProgram(&state{Unit: units[0]})
	if err != nil {
		t.Fatal(err)
	}
	return r, p.run(r)
}

// TestLineOpcodes wants of each opcode what DWARF 5 says in section 6.2.5, and of a program
// that is cut off anywhere an error or no rows.
func TestLineOpcodes(t *testing.T) {
	var opcodes bytesOf
	opcodes.put(uint8(lnsExtended), leb(9), uint8(lneSetAddress), uint64(0x1000))
	opcodes.put(uint8(14 + 5 + 1)) // a line on
	opcodes.put(uint8(lnsAdvancePC), leb(4), uint8(lnsAdvanceLine), uint8(10), uint8(lnsCopy))
	opcodes.put(uint8(lnsConstAddPC), uint8(14+5+14)) // 17 bytes, and one more
	opcodes.put(uint8(lnsFixedAdvancePC), uint16(0x101), uint8(13), leb(0x81), leb(5))
	opcodes.put(uint8(lnsSetFile), leb(7), uint8(lnsSetColumn), leb(0x83), uint8(lnsAdvanceLine), uint8(0x7e), uint8(lnsCopy))
	opcodes.put(uint8(lnsNegateStmt), uint8(lnsSetBasicBlock), uint8(lnsPrologueEnd), uint8(lnsEpilogueBegin), uint8(lnsSetISA), leb(1))
	opcodes.put(uint8(255)) // 17 bytes, two lines back
	opcodes.put(uint8(lnsAdvancePC), leb(8), uint8(lnsExtended), leb(1), uint8(lneEndSequence))
	want := []row{
		{addr: 0x1000, file: 1, line: 2},
		{addr: 0x1004, file: 1, line: 12},
		{addr: 0x1016, file: 1, line: 12},
		{addr: 0x1117, file: 7, line: 10},
		{addr: 0x1128, file: 7, line: 8},
	}
	r, err := runLines(t, lineProgram(opcodes))
	if err != nil || !slices.Equal(r.rows, want) || len(r.sequences) != 1 || r.sequences[0].Range != (Range{0x1000, 0x1130}) {
		t.Errorf("rows %+v in %+v, %v, want %+v", r.rows, r.sequences, err, want)
	}
	for n := range opcodes {
		r, err := runLines(t, lineProgram(opcodes[:n]))
		var damage *Error
		if err == nil && len(r.rows) > 0 || err != nil && !errors.As(err, &damage) {
			t.Errorf("cut off after %d bytes: %+v, %v", n, r.rows, err)
		}
	}
}
