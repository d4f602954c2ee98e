// Package symbol turns an address of a file, of the kernel or of generated code
// into functions and lines.
//
// Every source of symbols answers in the same form, a Result: the frames at the
// address, innermost first, where they come from, or the reason why there are
// none. File answers for an ELF file, on disk or in memory as the vdso is, by
// file offset or by virtual address. Index gives the same answers faster, for a file
// that was prepared. Kallsyms answers for the kernel, and PerfMap for code that a
// process generated. Nothing that is read is trusted.
//
// # Which source names an address
//
// A function of the debug information is the best answer, with all calls that were
// inlined there. Else Go's pclntab may have one. Where neither does, as in code that
// was written in assembler, the symbol's name stands with the line that the debug
// information has, if any. Where no symbol covers the address either, as in the padding
// between functions, the line stands alone, without any name: that of a neighbour would be
// a guess. If several units claim an address, the first in the file
// has it, even if it knows only the line. Another one may describe a function that the
// linker threw away, in place of what the linker kept there, a thunk for instance. If the symbol
// has another name than the function, the frame has both.
//
// # Which symbol names an address
//
// A symbol table can have several candidates, and none. A wrong name is worse than
// none, so what lies between symbols stays without, however near the next one is:
// it is padding, or code whose symbol was stripped. In detail:
//
//   - Only symbols of code count, each within its own executable section. Data in
//     the midst of code is a hole.
//   - The smallest symbol that covers the address wins.
//   - Among equals: a function before a symbol without type, one that is visible to
//     other files before a local one, fewer leading underscores, the shorter name,
//     the first in the alphabet. Weak or not says nothing: the names that libc
//     documents are weak, and their aliases with underscores are not.
//   - A symbol without a size that lies in one with a size is a label, and does not
//     count. Elsewhere it reaches to the next symbol or the end of the section; not
//     so in .dynsym, where the next symbol is not the neighbour.
//   - Symbols of sections and source files (STT_SECTION, STT_FILE) name no code.
//   - What .gnu_debugdata and .dynsym have is settled as if it were one table, which it
//     was before the file was stripped.
//   - An entry of a procedure linkage table is NAME@plt, unless a table names it.
package symbol

import (
	"hallmark/addr"
	"hallmark/reason"
)

// Frame is one function at an address. An address inside inlined functions has
// several. One that is alone may have no name, only the line: of padding, of literals
// among the code, of assembler without a symbol, see Result.Named.
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

// Named returns r where it names a function, and otherwise a miss. It is for those who
// have no use for a line without a name.
func (r Result) Named() Result {
	if n := len(r.Frames); n > 0 && r.Frames[n-1].Func == "" && r.Frames[n-1].Linkage == "" {
		return Miss(reason.NoSymbol)
	}
	return r
}

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
