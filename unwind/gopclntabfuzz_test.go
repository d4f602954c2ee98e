package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"

	"hallmark/internal/elftest"
	"hallmark/internal/pclntab"
)

// Where the fuzzed program has its parts.
const (
	fuzzText    = 0x1000
	fuzzPclntab = 0x10000
	fuzzData    = 0x40000
)

// goFile is a program with this code, pclntab and moduledata.
func goFile(code, table, moduledata []byte, arm64 bool) []byte {
	machine := elf.EM_X86_64
	if arm64 {
		machine = elf.EM_AARCH64
	}
	data := elf.SHF_ALLOC | elf.SHF_WRITE
	return elftest.File{
		Type: elf.ET_EXEC, Machine: machine,
		Sections: []elftest.Section{
			{Name: ".text", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: fuzzText, Align: 16, Data: code},
			{Name: ".gopclntab", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC, Addr: fuzzPclntab, Align: 16, Data: table},
			{Name: ".data", Type: elf.SHT_PROGBITS, Flags: data, Addr: fuzzData, Align: 16, Data: moduledata},
		},
		Segments: []elftest.Segment{
			{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, From: ".text", Vaddr: fuzzText},
			{Type: elf.PT_LOAD, Flags: elf.PF_R, From: ".gopclntab", Vaddr: fuzzPclntab},
			{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_W, From: ".data", Vaddr: fuzzData},
		},
	}.Build()
}

// goParts returns the parts of a program with one function, of these flags, name and list
// of stack depths.
func goParts(code []byte, flags uint8, name string, list []byte) (table, moduledata []byte) {
	order := binary.LittleEndian
	names := append([]byte(name), 0)
	const header = 8 + 8*8
	cus := header + len(names)
	pcs := cus + 4
	functab := pcs + 1 + len(list)
	table = order.AppendUint32(nil, pclntab.Go120)
	table = append(table, 0, 0, 1, 8)
	for _, n := range []int{1, 1, 0, header, cus, cus + 4, pcs, functab} {
		table = order.AppendUint64(table, uint64(n))
	}
	table = append(append(table, names...), 0, 0, 0, 0)
	table = append(append(table, 0), list...)
	record := 12
	for _, n := range []uint32{0, uint32(record), uint32(len(code))} {
		table = order.AppendUint32(table, n)
	}
	for _, n := range []uint32{0, 0, 0, 0, 1, 0, 0, 0, 0, 0, uint32(flags) << 8} {
		table = order.AppendUint32(table, n)
	}
	md := make([]uint64, pclntab.MDWords)
	md[pclntab.MDPCHeader] = fuzzPclntab
	for i, at := range []int{pclntab.MDNames, pclntab.MDCUs, pclntab.MDFiles, pclntab.MDPCs, pclntab.MDRecords, pclntab.MDFunctab} {
		md[at] = fuzzPclntab + []uint64{header, uint64(cus), uint64(cus + 4), uint64(pcs), uint64(functab), uint64(functab)}[i]
	}
	md[pclntab.MDFunctabN] = 2
	md[pclntab.MDText], md[pclntab.MDMinPC] = fuzzText, fuzzText
	md[pclntab.MDMaxPC], md[pclntab.MDEtext] = fuzzText+uint64(len(code)), fuzzText+uint64(len(code))
	for _, w := range md {
		moduledata = order.AppendUint64(moduledata, w)
	}
	return table, moduledata
}

// Code of a function that switches stacks, and its list: push, up to pop.
var (
	switchingCode = []byte("\x55\x48\x89\xe5\x48\x8b\x62\x38\xff\xd7\x48\x8b\x60\x38\x5d\xc3")
	switchingList = []byte{2, 1, 16, 14, 15, 1, 0}
)

// TestGoRowsOfFunction has one function that switches stacks.
func TestGoRowsOfFunction(t *testing.T) {
	table, moduledata := goParts(switchingCode, pclntab.SPWrite|pclntab.Asm, "runtime.systemstack", switchingList)
	got := onlySource(t, goFile(switchingCode, table, moduledata, false), (*builder).pclntab)
	f, err := elf.NewFile(bytes.NewReader(goFile(switchingCode, table, moduledata, false)))
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[uint64]Rule{
		0:  {Kind: Reg, Register: RSP, Offset: 8, Saved: [6]int8{Unknown, Same, Unknown, Unknown, Same, Unknown}},
		1:  {Kind: Reg, Register: RSP, Offset: 16, Saved: [6]int8{Unknown, -2, Unknown, Unknown, Same, Unknown}},
		8:  {Kind: Reg, Register: RBP, Offset: 16, Flags: OtherStack, Saved: [6]int8{Unknown, -2, Unknown, Unknown, Unknown, Unknown}},
		14: {Kind: Reg, Register: RBP, Offset: 16, Flags: OtherStack, Saved: [6]int8{Unknown, -2, Unknown, Unknown, Unknown, Unknown}},
		15: {Kind: Reg, Register: RSP, Offset: 8, Saved: [6]int8{Unknown, Same, Unknown, Unknown, Same, Unknown}},
	} {
		r := got.Lookup(off(f.Section(".text").Offset + at))
		want.RA = -1
		want.Flags |= uint8(Pclntab) << sourceShift
		if r != want {
			t.Errorf("%d: %+v, want %+v", at, r, want)
		}
	}
}

// TestGoFrameBeforeEntry has one function whose table says that the stack pointer was moved before
// its first instruction.
func TestGoFrameBeforeEntry(t *testing.T) {
	for _, arm64 := range []bool{false, true} {
		table, moduledata := goParts(switchingCode, 0, "main.main", []byte{18, 16, 0})
		raw := goFile(switchingCode, table, moduledata, arm64)
		got := onlySource(t, raw, (*builder).pclntab)
		f, err := elf.NewFile(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		r := got.Lookup(off(f.Section(".text").Offset))
		if !arm64 && (r.Kind != Reg || r.Offset != 16 || r.Saved[1] != Unknown) {
			t.Errorf("%+v, want the caller's frame pointer unknown", r)
		}
	}
}

// FuzzGoRows takes any code, pclntab and moduledata.
func FuzzGoRows(f *testing.F) {
	for _, name := range []string{"runtime.systemstack", "runtime.mcall", "main.main", "runtime.sigreturn__sigaction"} {
		table, moduledata := goParts(switchingCode, pclntab.SPWrite|pclntab.Asm, name, switchingList)
		f.Add(switchingCode, table, moduledata, false)
		f.Add(switchingCode, table, moduledata, true)
	}
	f.Fuzz(func(t *testing.T, code, table, moduledata []byte, arm64 bool) {
		if len(code) == 0 || len(code)+len(table)+len(moduledata) > 1<<16 {
			return
		}
		raw := goFile(code, table, moduledata, arm64)
		got, err := Build(bytes.NewReader(raw), BuildOptions{Threads: 1})
		if err != nil {
			return
		}
		for i := range got.Rules() {
			r := got.rule(uint16(i))
			if r.Kind > FP || r.Kind == Reg && r.Source() == Pclntab && r.Register != RSP && r.Register != RBP && r.Register != SP && r.Register != X29 {
				t.Errorf("%+v", r)
			}
		}
		if got.Rows() > 4*len(raw)+16 {
			t.Errorf("%d rows of %d bytes", got.Rows(), len(raw))
		}
	})
}

// FuzzInstructions takes any code.
func FuzzInstructions(f *testing.F) {
	f.Add(switchingCode)
	f.Add([]byte("\x62\xf1\x7c\x48\x10\x44\x24\x01\xc4\xe2\xfb\xf6\xc1\xc5\xf8\x77"))
	f.Fuzz(func(t *testing.T, code []byte) {
		for len(code) > 0 {
			i := decodeX86(code)
			if i.size < 0 || i.size > len(code) {
				t.Fatalf("%d bytes of %d: % x", i.size, len(code), code)
			}
			i.writes(x86RBP)
			code = code[max(i.size, 1):]
		}
	})
}
