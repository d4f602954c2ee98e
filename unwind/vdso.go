package unwind

import (
	"encoding/binary"
	"strings"

	"hallmark/addr"
	"hallmark/internal/cursor"
	"hallmark/internal/elffile"
)

// The kernel's vdso for arm64 has no call frame information: its linker script throws
// away what compilers write, and the directives at the code that signal handlers return to
// are commented out (arch/arm64/kernel/vdso/vdso.lds.S and sigreturn.S). All that there is to
// know of it is in its instructions.

// sigreturnName is the function that handlers return to: only the vdso exports it.
const sigreturnName = "__kernel_rt_sigreturn"

// vdsoARM64 is the source of rules for the vdso of arm64, where it is sure by its name what
// handlers return to, even if nothing were before it, and which functions have no frames.
func (b *builder) vdsoARM64() error {
	if b.file.machine != ARM64 {
		return nil
	}
	functions, err := b.file.functions()
	if err != nil {
		return b.damaged(err)
	}
	for _, f := range functions {
		if f.name != sigreturnName {
			continue
		}
		if code, err := b.file.read(uint64(f.start), uint64(len(armRestorer))); err != nil || string(code) != armRestorer {
			return b.damaged(err)
		}
		// The handler's return address is the first instruction, so the last byte before
		// it is where a call would have been.
		b.layer(Known).part().add(f.start-1, f.start+addr.Offset(len(armRestorer)), signalRule(ARM64))
		return b.leaves(functions)
	}
	return nil
}

// leaves says of functions that call nothing and keep nothing on the stack where their
// caller is.
func (b *builder) leaves(functions []function) error {
	p := b.layer(Known).part()
	for _, f := range functions {
		code, err := b.file.read(uint64(f.start), uint64(f.end-f.start))
		if err != nil {
			return b.damaged(err)
		}
		if isLeaf(code) {
			p.add(f.start, f.end, Rule{Kind: Reg, Register: SP, RA: Same, Link: X30, Saved: [6]int8{Same}})
		}
	}
	return nil
}

// A function is one that a file exports, in offsets of the file.
type function struct {
	name       string
	start, end addr.Offset
}

// functions returns the functions that a file exports, if it does not export very much.
func (f *elfFile) functions() ([]function, error) {
	symbols, names := f.Section(".dynsym"), f.Section(".dynstr")
	if symbols == nil || names == nil || symbols.Size > 1<<12 || names.Size > 1<<12 {
		return nil, nil // that is not the vdso
	}
	text, err := f.ReadString(names.Offset, names.Size)
	if err != nil {
		return nil, err
	}
	var found []function
	err = f.EachEntry(symbols, f.Size(16, 24), func(c *cursor.Cursor) {
		s := f.ParseSymbol(c.Bytes(f.Size(16, 24)))
		from, to, ok := f.code(s.Value, s.Value+s.Size)
		isCode := s.Type() == elffile.STT_FUNC || s.Type() == elffile.STT_NOTYPE // code in assembly
		if isCode && ok && uint64(to-from) == s.Size && uint64(s.Name) < uint64(len(text)) {
			name, _, _ := strings.Cut(text[s.Name:], "\x00")
			found = append(found, function{name, from, to})
		}
	})
	return found, err
}

// isLeaf reports whether code for arm64 is a whole function in which the stack pointer
// and the register with the return address are what they were at its first instruction.
// Code that it does not know for sure is none.
func isLeaf(code []byte) bool {
	for ; len(code) >= 4; code = code[4:] {
		w := binary.LittleEndian.Uint32(code)
		if w>>26 == 0b000101 {
			continue // b: a jump, elsewhere perhaps, with everything as it is
		}
		if calls(w) || writesSP(w) || writesLink(w) {
			return false
		}
	}
	return len(code) == 0
}

// calls reports whether an instruction is a call or may be: bl, and branches to
// registers but for a return.
func calls(w uint32) bool {
	const ret, mayCall = 0xd65f03c0, 0x94000000
	return w&0xfc000000 == mayCall || w&0xfe000000 == 0xd6000000 && w != ret
}

// writesSP reports whether an instruction writes the stack pointer, which is register 31
// only in some of them (Arm Architecture Reference Manual, C4.1), or may do so.
func writesSP(w uint32) bool {
	to, base := w&31 == 31, w>>5&31 == 31
	flagsOnly := w>>29&1 == 1 // what adds and subtracts and writes register 31 is a comparison
	switch {
	case w>>27&3 == 0: // reserved, and vectors of any length, whose size moves it
		return true
	case w>>24&0b11111 == 0b10001: // add, sub of an immediate value, of tags
		return to && !flagsOnly
	case w>>21&0b11111111 == 0b01011001: // add, sub of an extended register
		return to && !flagsOnly
	case w>>23&0b111111 == 0b100100: // and, orr, eor with an immediate value; ands is a comparison
		return to && w>>29&3 != 3
	case w>>25&0b1111 == 0b1101: // of two registers, some of which write tags
		return to
	case isLoadStore(w):
		pair := w>>28&1 == 0 // and structures of vectors
		tags := w>>24 == 0xd9
		return base && (tags || pair && w>>23&1 == 1 || !pair && w>>24&1 == 0 && w>>10&1 == 1)
	}
	return false
}

// isLoadStore reports whether an instruction loads or stores.
func isLoadStore(w uint32) bool { return w>>25&0b0101 == 0b0100 }

// writesLink reports whether an instruction writes register 30, or may do so.
func writesLink(w uint32) bool {
	two := isLoadStore(w) && w>>28&1 == 0 // of registers may be loaded, or exchanged
	return w&31 == 30 || two && (w>>10&31 == 30 || w>>16&31 == 30)
}
