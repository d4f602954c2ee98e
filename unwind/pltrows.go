package unwind

import (
	"encoding/binary"
)

// plt makes rows of procedure linkage tables: not every linker writes call frame
// information for them. What their code does to the stack follows from its instructions, of
// which there are few.
func (b *builder) plt() error {
	var part *part
	left := uint64(maxPLT)
	for s := range b.file.filled() {
		switch s.Name {
		case ".plt", ".plt.sec", ".plt.got", ".plt.bnd", ".iplt":
		default:
			continue
		}
		start, end, ok := b.file.code(s.Addr, s.Addr+s.Size)
		if !ok || uint64(start) != s.Offset || uint64(end-start) > left {
			continue
		}
		left -= uint64(end - start)
		code, err := b.file.read(uint64(start), uint64(end-start))
		if err != nil {
			return b.damaged(err)
		}
		if part == nil {
			part = b.layer(PLTCode).part()
		}
		if b.file.machine == ARM64 {
			part.pltARM64(start, code)
		} else {
			part.pltX86(start, s.Addr, code)
		}
	}
	return nil
}

// pltEntry is how many bytes the entries of x86-64 have, or two of those that push nothing.
const pltEntry = 16

// pltX86 makes rows of the entries in code, which is at a virtual address.
func (p *part) pltX86(start off, virt uint64, code []byte) {
	if onlyJumpsX86(code) {
		p.add(start, start+off(len(code)), stackX86(8))
		return
	}
	if virt%pltEntry != 0 || !p.begin(start, start+off(len(code))) {
		return
	}
	for at := 0; at < len(code); {
		e := readPLTX86(code[at:])
		for i, r := range e.rules {
			p.row(start+off(at+e.at[i]), r)
		}
		at += e.size
	}
}

// onlyJumpsX86 reports whether code does nothing but jump, as the entries of static programs
// for functions that are chosen when they start: there are 8 or 16 bytes of each.
func onlyJumpsX86(code []byte) bool {
	for len(code) > 0 {
		i := decodeX86(code)
		if i.size == 0 || !i.isNop() && !isJumpX86(&i) {
			return false
		}
		code = code[i.size:]
	}
	return true
}

// pltX86Entry is what an entry does to the stack.
type pltX86Entry struct {
	size  int
	at    []int // where each rule begins
	rules []Rule
}

// readPLTX86 reads the entry at the start of code: of 16 bytes, or of 32 if it does not
// jump away in the first half, as mold's first one. Entries push a number and jump to the
// first one, which pushes another; mold's leave both to the first one.
func readPLTX86(code []byte) pltX86Entry {
	e := pltX86Entry{size: min(pltEntry, len(code))}
	var pushes []int
	first, jumps := false, false
	for at := 0; at < e.size; {
		i := decodeX86(code[at:])
		switch end := at + i.size; {
		case i.size == 0:
			return e.unknown()
		case isJumpX86(&i):
			jumps = true
		case isPushX86(&i):
			first = first || at == 0 && i.op == 0xff
			pushes = append(pushes, end)
		case i.isNop() || i.table == 0 && i.op&0xf8 == 0xb8 && i.rm == 11: // mov $n, %r11d
		default:
			return e.unknown()
		}
		at += i.size
		if at == pltEntry && !jumps {
			e.size = min(2*pltEntry, len(code))
		}
	}
	if !jumps {
		return e.unknown()
	}
	depth := int32(8)
	if first { // the entry that jumped here has pushed
		depth = 16
	} else if len(pushes) == 1 && e.size == pltEntry {
		r := stackX86(0)
		r.Kind, r.Offset = PLT, int32(pushes[0])
		e.at, e.rules = []int{0}, []Rule{r}
		return e
	}
	e.at, e.rules = []int{0}, []Rule{stackX86(depth)}
	for i, at := range pushes {
		e.at, e.rules = append(e.at, at), append(e.rules, stackX86(depth+8*int32(i+1)))
	}
	return e
}

func (e pltX86Entry) unknown() pltX86Entry {
	e.at, e.rules = []int{0}, []Rule{{}}
	return e
}

// isJumpX86 reports whether an instruction is "jmp", to an address or through a slot.
func isJumpX86(i *x86Instruction) bool {
	return i.table == 0 && (i.op == 0xe9 || i.op == 0xff && i.modrm == 0x25)
}

// isPushX86 reports whether an instruction pushes a number, a slot or a register.
func isPushX86(i *x86Instruction) bool {
	return i.table == 0 && (i.op == 0x68 || i.op == 0xff && i.modrm == 0x35 || i.op&0xf8 == 0x50)
}

// isNop reports whether an instruction does nothing: nop, endbr64, int3 as padding.
func (i *x86Instruction) isNop() bool {
	return !i.vector && (i.table == 0 && (i.op == 0x90 && i.rm == 0 || i.op == 0xcc) || i.table == 1 && (i.op == 0x1f || i.op == 0x1e))
}

// stackX86 is the rule of code that has done nothing but push.
func stackX86(depth int32) Rule {
	return Rule{Kind: Reg, Register: RSP, Offset: depth, RA: -1, Saved: [6]int8{Same, Same, Same, Same, Same, Same}}
}

// Instructions of the entries for arm64, each with a mask.
var pltARM64 = [][2]uint32{
	{0x90000010, 0x9f00001f}, // adrp x16, PAGE
	{0xf9400211, 0xffc003ff}, // ldr x17, [x16, #OFFSET]
	{0x91000210, 0xffc003ff}, // add x16, x16, #OFFSET
	{0xd503201f, 0xffffffff}, // nop
	{0xd503245f, 0xffffffff}, // bti c
	{0xd503219f, 0xffffffff}, // autia1716
}

const (
	pltPushARM64 = 0xa9bf7bf0 // stp x16, x30, [sp, #-16]!
	pltJumpARM64 = 0xd61f0220 // br x17
)

// pltARM64 makes rows of the entries in code. The first entry of a table, to which the
// others jump, pushes two registers.
func (p *part) pltARM64(start off, code []byte) {
	if !p.begin(start, start+off(len(code))) {
		return
	}
	none := [6]int8{Same, Unknown, Unknown, Unknown, Unknown, Unknown}
	entry := Rule{Kind: Reg, Register: SP, RA: Same, Link: X30, Saved: none}
	pushed := Rule{Kind: Reg, Register: SP, Offset: 16, RA: -1, Saved: none}
	now := entry
	for at := 0; at+4 <= len(code); at += 4 {
		w := binary.LittleEndian.Uint32(code[at:])
		if w == pltPushARM64 {
			p.row(start+off(at), now)
			now = pushed
			continue
		}
		if w == pltJumpARM64 {
			p.row(start+off(at), now)
			now = entry
			continue
		}
		if known := knownARM64(w); known {
			p.row(start+off(at), now)
		} else {
			p.row(start+off(at), Rule{})
		}
	}
}

func knownARM64(w uint32) bool {
	for _, form := range pltARM64 {
		if w&form[1] == form[0] {
			return true
		}
	}
	return false
}
