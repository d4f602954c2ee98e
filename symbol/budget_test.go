package symbol

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"hallmark/addr"
	"hallmark/internal/elftest"
	"hallmark/reason"
)

// sparse writes a program whose last sections, as many as are given, are holes of 1 GiB less a
// page each, one behind the other, and opens it.
func sparse(t *testing.T, machine elf.Machine, holes ...elftest.Section) *File {
	t.Helper()
	const size = 1<<30 - 4096
	sections := append([]elftest.Section{
		{Name: ".text", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: 0x1000, Offset: 0x1000, Data: make([]byte, 0x100)},
		{Name: ".plt", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: 0x2000, Offset: 0x2000, Data: make([]byte, 0x100)},
		{Name: ".strtab", Type: elf.SHT_STRTAB, Data: []byte("\x00name\x00")},
	}, holes...)
	end := int64(1 << 20)
	data := elftest.File{
		Machine: machine,
		Segments: []elftest.Segment{
			{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, From: ".text", To: ".plt", Vaddr: 0x1000, Align: 0x1000},
		},
		Sections: sections,
		Damage: func(_ *elf.Header64, _ []elf.Prog64, all []elf.Section64) {
			for i := range holes {
				s := &all[len(sections)-len(holes)+1+i]
				s.Off, s.Size = uint64(end), size
				end += size
			}
		},
	}.Build()
	name := filepath.Join(t.TempDir(), "sparse")
	if err := errors.Join(os.WriteFile(name, data, 0o666), os.Truncate(name, end)); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFile(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestHolesAreNotRead asks files for symbols whose tables are holes.
func TestHolesAreNotRead(t *testing.T) {
	for name, holes := range map[string][]elftest.Section{
		"relocations": {
			{Name: ".rela.plt", Type: elf.SHT_RELA, Flags: elf.SHF_ALLOC, Addr: 1 << 40, Link: 4},
			{Name: ".rela.dyn", Type: elf.SHT_RELA, Flags: elf.SHF_ALLOC, Addr: 1 << 41, Link: 4},
		},
		"symbols":        {{Name: ".symtab", Type: elf.SHT_SYMTAB, Link: 3}},
		"names":          {{Name: ".str", Type: elf.SHT_STRTAB}, {Name: ".symtab", Type: elf.SHT_SYMTAB, Link: 4}},
		"dynamic":        {{Name: ".dynsym", Type: elf.SHT_DYNSYM, Link: 3}},
		"code of tables": {{Name: ".plt.sec", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: 1 << 20}},
		"Go":             {{Name: ".gopclntab", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC, Addr: 1 << 40}},
		"DWARF":          {{Name: ".debug_info", Type: elf.SHT_PROGBITS}, {Name: ".debug_abbrev", Type: elf.SHT_PROGBITS}},
	} {
		f := sparse(t, elf.EM_X86_64, holes...)
		for range 3 {
			if got := f.LookupVirt(0x2010); got.Reason != reason.Excess {
				t.Errorf("%s: %+v, want %v", name, got, reason.Excess)
			}
		}
		if got := f.LookupVirts([]addr.Virt{0x2010, 0x2020}); got[1].Reason != reason.Excess {
			t.Errorf("%s, several at once: %+v", name, got[1])
		}
		if err := f.Damage(); !errors.Is(err, ErrTooMuch) {
			t.Errorf("%s: damage %v", name, err)
		}
		if _, err := f.Index(IndexOptions{}); !errors.Is(err, ErrTooMuch) {
			t.Errorf("%s: the index: %v", name, err)
		}
	}
	f := sparse(t, elf.EM_X86_64, elftest.Section{Name: ".eh_frame", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC, Addr: 1 << 40})
	if _, err := f.Starts([]addr.Offset{0x1000}); !errors.Is(err, ErrTooMuch) {
		t.Errorf("frames: %v", err)
	}
}

// TestSharedTablesAreNotReadForEver has very many tables in the same place.
func TestSharedTablesAreNotReadForEver(t *testing.T) {
	const tables, size = 2000, 240 << 10
	f := elftest.File{
		Type: elf.ET_REL,
		Sections: []elftest.Section{
			{Name: ".text", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Data: make([]byte, 0x100)},
			{Name: ".strtab", Type: elf.SHT_STRTAB, Data: []byte("\x00name\x00")},
			{Name: ".symtab", Type: elf.SHT_SYMTAB, Data: make([]byte, 48), Link: 2, Align: 8},
			{Name: ".debug_info", Type: elf.SHT_PROGBITS, Data: make([]byte, 64)},
			{Name: ".rela.debug_info", Type: elf.SHT_RELA, Data: make([]byte, size), Link: 3, Info: 4, Align: 8},
		},
	}
	for range tables {
		f.Sections = append(f.Sections, elftest.Section{Name: ".rela.debug_info", Type: elf.SHT_RELA, Link: 3, Info: 4, Align: 8})
	}
	f.Damage = func(_ *elf.Header64, _ []elf.Prog64, all []elf.Section64) {
		for i := range tables {
			all[6+i].Off, all[6+i].Size = all[5].Off, all[5].Size
		}
	}
	file, err := NewFile(bytes.NewReader(f.Build()), "shared")
	if err != nil {
		t.Fatal(err)
	}
	if got := file.LookupVirt(0x10); got.Reason != reason.Excess {
		t.Errorf("%+v, damage %v", got, file.Damage())
	}
}

// TestTablesAreReadAgain asks a file that is one table of symbols for many addresses, in all ways.
func TestTablesAreReadAgain(t *testing.T) {
	const n = 20_000
	f := elftest.File{Type: elf.ET_EXEC, Sections: []elftest.Section{
		{Name: ".text", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: 0x1000, Offset: 0x1000, Data: make([]byte, n)},
	}}
	for i := range uint64(n) {
		s := elf.Symbol{Name: "s", Info: 0x12, Section: 1, Value: 0x1000 + i, Size: 1}
		f.Symbols, f.DynSymbols = append(f.Symbols, s), append(f.DynSymbols, s)
	}
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, f.Build(), 0o666); err != nil {
		t.Fatal(err)
	}
	file, err := OpenFile(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for i := range addr.Virt(2 * oneByOne) {
		if got := file.LookupVirt(0x1000 + i); len(got.Frames) != 1 {
			t.Fatalf("address %d: %+v: %v", i, got, file.Damage())
		}
	}
	for i := range addr.Virt(300) {
		if got := file.LookupVirts([]addr.Virt{0x1000 + i})[0]; len(got.Frames) != 1 {
			t.Fatalf("address %d of a list: %+v: %v", i, got, file.Damage())
		}
		if _, err := file.Functions(); err != nil {
			t.Fatalf("functions, %d times: %v", i, err)
		}
	}
}

// TestEndWith ends the reading of a file before it begins.
func TestEndWith(t *testing.T) {
	f, err := OpenFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	f.EndWith(ctx)
	cancel()
	v := addr.Virt(0)
	for _, s := range f.Segments() {
		if s.Executable() {
			v = s.Virt + addr.Virt(s.FileSize/2)
		}
	}
	if got := f.LookupVirt(v); got.Reason != reason.NotLookedUp {
		t.Errorf("%+v", got)
	}
}

// TestEndWithUnits ends the reading of a file whose debug information is mapped: no more units are read.
func TestEndWithUnits(t *testing.T) {
	f, err := OpenFile(compile(t, "-g"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var starts []addr.Virt
	functions, err := f.Functions()
	if err != nil || len(functions) == 0 {
		t.Fatalf("%d functions, %v", len(functions), err)
	}
	for _, one := range functions {
		starts = append(starts, one.Virt)
	}
	if err := f.Load(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	f.EndWith(ctx)
	cancel()
	for i, got := range f.LookupVirts(starts) {
		if got.Reason != reason.NotLookedUp {
			t.Errorf("%v: %+v", starts[i], got)
		}
	}
}

// TestSharedNamesAreNotCopiedForEver has symbols whose names all end in the same bytes.
func TestSharedNamesAreNotCopiedForEver(t *testing.T) {
	const name, symbols = 1 << 20, 1000 // 0.5 GB of names
	var table bytes.Buffer
	addresses := make([]addr.Virt, symbols)
	binary.Write(&table, binary.LittleEndian, elf.Sym64{})
	for i := range uint32(symbols) {
		addresses[i] = addr.Virt(0x1000 + 4*i)
		binary.Write(&table, binary.LittleEndian, elf.Sym64{
			Name: 1 + i*(name/symbols), Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Shndx: 1, Value: uint64(addresses[i]), Size: 4,
		})
	}
	data := elftest.File{
		Machine:  elf.EM_X86_64,
		Segments: []elftest.Segment{{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, From: ".text", Vaddr: 0x1000, Align: 0x1000}},
		Sections: []elftest.Section{
			{Name: ".text", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: 0x1000, Offset: 0x1000, Data: make([]byte, 4*symbols)},
			{Name: ".strtab", Type: elf.SHT_STRTAB, Data: append(append([]byte{0}, bytes.Repeat([]byte("a"), name)...), 0)},
			{Name: ".symtab", Type: elf.SHT_SYMTAB, Data: table.Bytes(), Link: 2, Align: 8, Entsize: 24},
		},
	}.Build()
	f, err := NewFile(bytes.NewReader(data), "shared")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Index(IndexOptions{}); !errors.Is(err, errLongNames) {
		t.Errorf("the index: %v", err)
	}
	for _, got := range f.LookupVirts(addresses) {
		if got.Reason != reason.BadSymbols {
			t.Fatalf("all at once: %v, want %v", got.Reason, reason.BadSymbols)
		}
	}
	if got := f.LookupVirts(addresses[:2]); len(got[1].Frames) != 1 || len(got[1].Frames[0].Linkage) != name-name/symbols {
		t.Errorf("two at once: %v, %d frames", got[1].Reason, len(got[1].Frames))
	}
}

// TestSharedNamesOfDebugInformation asks for very many functions whose names all end in the same
// bytes.
func TestSharedNamesOfDebugInformation(t *testing.T) {
	const name, functions = 60_000, 6000 // 270 MB of names
	abbrev := []byte("\x01\x11\x01\x11\x01\x12\x07\x00\x00" + "\x02\x2e\x00\x03\x0e\x11\x01\x12\x06\x00\x00\x00")
	var info bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			binary.Write(&info, binary.LittleEndian, v)
		}
	}
	put(uint32(11-4+17+17*functions+1), uint16(4), uint32(0), uint8(8))
	put(uint8(1), uint64(0x1000), uint64(4*functions))
	addresses := make([]addr.Virt, functions)
	for i := range uint32(functions) {
		addresses[i] = addr.Virt(0x1000 + 4*i)
		put(uint8(2), i*(name/2/functions), uint64(addresses[i]), uint32(4))
	}
	put(uint8(0))
	data := elftest.File{
		Machine:  elf.EM_X86_64,
		Segments: []elftest.Segment{{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, From: ".text", Vaddr: 0x1000, Align: 0x1000}},
		Sections: []elftest.Section{
			{Name: ".text", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: 0x1000, Offset: 0x1000, Data: make([]byte, 4*functions)},
			{Name: ".debug_abbrev", Type: elf.SHT_PROGBITS, Data: abbrev},
			{Name: ".debug_info", Type: elf.SHT_PROGBITS, Data: info.Bytes()},
			{Name: ".debug_str", Type: elf.SHT_PROGBITS, Data: append(bytes.Repeat([]byte("a"), name), 0)},
		},
	}.Build()
	f, err := NewFile(bytes.NewReader(data), "shared")
	if err != nil {
		t.Fatal(err)
	}
	if got := f.LookupVirts(addresses[:2]); len(got[1].Frames) != 1 || len(got[1].Frames[0].Linkage) != name-name/2/functions {
		t.Errorf("two at once: %v, %d frames", got[1].Reason, len(got[1].Frames))
	}
	for _, got := range f.LookupVirts(addresses) {
		if got.Reason != reason.BadSymbols {
			t.Fatalf("all at once: %v, want %v", got.Reason, reason.BadSymbols)
		}
	}
}
