package symbol

import (
	"slices"

	"hallmark/addr"
	"hallmark/reason"
)

// Frame is one function at an address. An address inside inlined functions has
// several. One may have no name, only the line: of padding, of literals among the code, of
// assembler without a symbol, of a call whose function is described in a file that is not
// there, see Result.Named.
type Frame struct {
	Func    string // name for people: demangled, see Demangle; in Go without type arguments
	Linkage string // name that the linker saw, without a symbol version; the same as Func for C
	File    string // source file, as the compiler recorded it; "" when not known
	Line    int    // line of the instruction, for an outer frame of the call; 0 when not known
	Column  int    // in the line, counted from 1; 0 when not known
	Start   int    // line where the function starts; 0 when not known
	Symbol  string // ELF symbol at the address, if it has another name than Linkage: a part (.cold), a clone, an alias
	Lang    Lang   // language the function is written in
	Inlined bool   // inlined into the next frame
	Local   bool   // local to its file: Linkage is the ELF symbol's, the debug information has the last part only
}

// Readable returns the name for people that Linkage stands for.
func (f *Frame) Readable() string {
	if f.Lang == LangGo {
		return elideTypeArguments(f.Linkage)
	}
	return Demangle(f.Linkage)
}

// Source says which table gave an answer.
type Source uint8

// The sources of symbols. Where a file has several, the one listed first answers.
const (
	SourceUnknown   Source = iota
	SourceDWARF            // debug information, with lines, columns and inlined calls
	SourcePclntab          // Go's .gopclntab, with lines and inlined calls
	SourceSymtab           // ELF .symtab
	SourceMiniDebug        // .gnu_debugdata, a compressed .symtab of what is not in .dynsym
	SourceDynsym           // ELF .dynsym
	SourcePLT              // code and relocations of procedure linkage tables
	SourceKallsyms         // /proc/kallsyms
	SourcePerfMap          // /tmp/perf-PID.map, written by a runtime
)

var sourceNames = [...]string{"unknown", "dwarf", "pclntab", "symtab", "minidebug", "dynsym", "plt", "kallsyms", "perf-map"}

// String returns the source's name, "pclntab" for instance.
func (s Source) String() string {
	if int(s) < len(sourceNames) {
		return sourceNames[s]
	}
	return sourceNames[SourceUnknown]
}

// Result is what is known about one address. Either Frames is not empty or
// Reason says why.
type Result struct {
	Frames []Frame // innermost first
	Source Source
	Reason reason.Reason
}

// Named returns r with the frames that name a function, and a miss where none does. It is
// for those who have no use for a line without a name. The line of a frame that stays is
// that of the call of the one that was left out.
func (r Result) Named() Result {
	if len(r.Frames) == 0 || !slices.ContainsFunc(r.Frames, Frame.isNameless) {
		return r
	}
	r.Frames = slices.DeleteFunc(slices.Clone(r.Frames), Frame.isNameless)
	n := len(r.Frames)
	if n == 0 {
		return Miss(reason.NoSymbol)
	}
	r.Frames[n-1].Inlined = false
	return r
}

func (f Frame) isNameless() bool { return f.Func == "" && f.Linkage == "" }

// Miss returns the Result that has no frames, because of r.
func Miss(r reason.Reason) Result { return Result{Reason: r} }

// A Table answers for the addresses of one ELF file. The symbol tables of a
// file are one; an index prepared from its debug information is another. Its
// methods may be called by several goroutines at once.
type Table interface {
	// LookupOffset answers for the instruction at a file offset.
	LookupOffset(addr.Offset) Result
	// LookupVirt answers for the instruction at a virtual address.
	LookupVirt(addr.Virt) Result
}

// Lang is the language of a function's source.
type Lang uint8

// The languages that are distinguished.
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
