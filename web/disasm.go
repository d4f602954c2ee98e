package web

import (
	"fmt"

	"golang.org/x/arch/arm64/arm64asm"
	"golang.org/x/arch/x86/x86asm"

	"hallmark/addr"
)

// decoded is an instruction.
type decoded struct {
	offset addr.Offset
	virt   addr.Virt
	size   int
	text   string
}

// disassemble returns the instructions of a function, as the GNU assembler writes them. Bytes that
// are none have the text "?" with their value. Of other architectures than amd64 and arm64 there
// are none.
func disassemble(f *Function) []decoded {
	if f.Arch != "amd64" && f.Arch != "arm64" {
		return nil
	}
	var list []decoded
	for at := 0; at < len(f.Bytes) && len(list) < maxInstructions; {
		text, size := decode(f, at)
		list = append(list, decoded{f.Start + addr.Offset(at), f.Virt + addr.Virt(at), size, text})
		at += size
	}
	return list
}

// decode returns the text and the size of the instruction at a place of a function.
func decode(f *Function, at int) (text string, size int) {
	code, pc := f.Bytes[at:], uint64(f.Virt)+uint64(at)
	if f.Arch == "arm64" {
		return decodeARM64(f, code, pc)
	}
	in, err := x86asm.Decode(code, 64)
	if err != nil || in.Len == 0 {
		return fmt.Sprintf("? %02x", code[0]), 1
	}
	lookup := func(v uint64) (string, uint64) {
		name := f.callee(v)
		if name == "" {
			return "", 0
		}
		return name, v
	}
	return x86asm.GNUSyntax(in, pc, lookup), in.Len
}

func decodeARM64(f *Function, code []byte, pc uint64) (text string, size int) {
	if len(code) < 4 {
		return fmt.Sprintf("? % x", code), len(code)
	}
	in, err := arm64asm.Decode(code)
	if err != nil {
		return fmt.Sprintf("? % x", code[:4]), 4
	}
	text = arm64asm.GNUSyntax(in)
	for _, arg := range in.Args {
		by, ok := arg.(arm64asm.PCRel)
		if !ok {
			continue
		}
		target := pc + uint64(by)
		text += fmt.Sprintf("  // %#x", target)
		if name := f.callee(target); name != "" {
			text += " " + name
		}
	}
	return text, 4
}

// callee returns the name of the function at an address outside of this one.
func (f *Function) callee(v uint64) string {
	if f.Name == nil || v >= uint64(f.Virt) && v < uint64(f.Virt)+uint64(len(f.Bytes)) {
		return ""
	}
	return f.Name(addr.Virt(v))
}
