package symbol

// Lang is the language of a function's source.
type Lang uint8

// The languages that are told apart.
const (
	LangUnknown Lang = iota
	LangC
	LangCPlusPlus
	LangGo
	LangRust
	LangAssembler
	LangFortran
	LangD
	LangSwift
	LangZig
	LangOther // known to the compiler, and not in this list
)

var langNames = [...]string{"", "C", "C++", "Go", "Rust", "assembler", "Fortran", "D", "Swift", "Zig", "other"}

// String returns the language's name, "C++" for instance, "" where it is not known.
func (l Lang) String() string {
	if int(l) < len(langNames) {
		return langNames[l]
	}
	return langNames[LangOther]
}

// dwarfLangs are the numbers that DWARF has for languages and their versions
// (DWARF 5, section 7.12, and https://dwarfstd.org/languages.html).
var dwarfLangs = map[uint64]Lang{
	0:    LangUnknown,
	0x01: LangC, 0x02: LangC, 0x0c: LangC, 0x1d: LangC, 0x2c: LangC, 0x3e: LangC,
	0x04: LangCPlusPlus, 0x1a: LangCPlusPlus, 0x21: LangCPlusPlus, 0x2b: LangCPlusPlus, 0x3a: LangCPlusPlus,
	0x07: LangFortran, 0x08: LangFortran, 0x0e: LangFortran, 0x22: LangFortran, 0x23: LangFortran, 0x2d: LangFortran,
	0x13: LangD, 0x16: LangGo, 0x1c: LangRust, 0x1e: LangSwift, 0x27: LangZig,
	0x31: LangAssembler, 0x8001: LangAssembler,
}

func langOf(dwarf uint64) Lang {
	if l, ok := dwarfLangs[dwarf]; ok {
		return l
	}
	return LangOther
}
