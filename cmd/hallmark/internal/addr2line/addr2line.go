// Package addr2line answers as GNU addr2line, llvm-addr2line and llvm-symbolizer do:
// the same command lines, the same protocol on standard input, the same text, so that
// whatever runs one of them can run this one.
//
// Every option of theirs acts as theirs does, or is refused by name. Those that are about
// Mach-O and COFF change nothing about ELF files, here as there.
//
// Answers differ from the originals' where these are wrong or disagree:
//
//   - GNU addr2line prints discriminators. We print none in its place: an index has none,
//     and its readers (perf, flame graphs) cut them off.
//   - Code between functions has no name, but the line that the table of lines has. GNU
//     addr2line takes the name of the function before, llvm's programs take a symbol without
//     a size however far it is.
//   - A C++ function that is local to its file has the name of its symbol. GNU addr2line has
//     the last part of it where the function has several parts.
//   - The name of a function is that of the debug information, whatever the symbol table
//     says. llvm's programs take that of the symbol table for the outermost function, which
//     is done here as well. Among aliases the choice may differ. Where no entry names a
//     function, its short name is that of the symbol table; llvm's programs have none.
//   - Entries of procedure linkage tables have names.
//   - Sections of a file that is yet to be linked all begin at address 0. An address of code
//     is one in the first section with code that is long enough, an address of data one in
//     the first section with data that has a symbol there. llvm's programs mix the names of
//     all sections. A symbol by its name is right for all sections.
//   - llvm-symbolizer 19 loses a file whose number stands in an abbreviation (gcc, DWARF 5),
//     takes the bound of an array of 129 to 256 elements for a negative one (gcc), finds a
//     static member by its first byte alone, and no variables in .dwo files. We have these.
//   - DATA and FRAME take a symbol in place of an address, where llvm-symbolizer 19 answers
//     about address 0. Only code is found by CODE SYMBOL.
//   - Without debug information, as where an index alone is left, --relativenames has no
//     directory to leave out, and discriminators and the file where a function starts are
//     not known.
//   - Lines of source are those of the file, not of a copy in the debug information (clang's
//     -gembed-source).
//   - A symbol without a size names, for DATA, the address where it starts alone.
//   - Names have the bytes that the originals print, whatever they are, but for ends of lines,
//     which become "?": an answer has as many lines as its reader expects. A terminal gets
//     plain text (see package plaintext). JSON escapes as LLVM's does.
//   - A message comes behind the answers before it, where the originals write answers last.
package addr2line

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"hallmark/debuginfo"
	"hallmark/internal/plaintext"
)

// A Program is one of those that are stood in for.
type Program uint8

// The programs. Both of llvm's are one program with other defaults.
const (
	GNU Program = iota
	LLVMAddr2line
	LLVMSymbolizer
)

var programNames = [...]string{"addr2line", "llvm-addr2line", "llvm-symbolizer"}

// String returns the name that the program is installed under.
func (p Program) String() string { return programNames[p] }

// ProgramOf returns which program a file name calls for, as its path or its base name
// alone: addr2line, llvm-symbolizer-19 and x86_64-linux-gnu-addr2line are some.
func ProgramOf(name string) (p Program, ok bool) {
	base := filepath.Base(name)
	switch {
	case isNamed(base, "llvm-symbolizer"):
		return LLVMSymbolizer, true
	case isNamed(base, "llvm-addr2line"):
		return LLVMAddr2line, true
	case isNamed(base, "addr2line"):
		return GNU, true
	}
	return 0, false
}

// isNamed reports whether base is tool, as tools for a target or of a version are
// named: TARGET-tool, tool-19, tool-2.40.
func isNamed(base, tool string) bool {
	at := strings.LastIndex(base, tool)
	if at < 0 || at > 0 && base[at-1] != '-' {
		return false
	}
	version := base[at+len(tool):]
	return version == "" || version[0] == '-' && len(version) > 1 && strings.Trim(version[1:], "0123456789.") == ""
}

// World is what a program touches outside its arguments.
type World struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Terminal       bool // Stdout is one
	Getenv         func(string) string
	Version        string // of this program, for --version

	// Library has the symbols. Nil means the zero debuginfo.Library.
	Library *debuginfo.Library
}

// complain writes a message, of several lines maybe. It is plain text: who runs one of the
// programs has the names of files from elsewhere.
func (w *World) complain(msg string) { fmt.Fprintln(w.Stderr, plaintext.Text(msg)) }

// Run runs a program and returns its exit status. name is what it was called, for
// messages, and args are its arguments.
func Run(ctx context.Context, p Program, name string, args []string, w World) int {
	args = expandResponseFiles(args)
	if w.Library == nil {
		w.Library = new(debuginfo.Library)
	}
	out := &output{w: w.Stdout, isTerminal: w.Terminal}
	var status int
	if p == GNU {
		status = runGNU(ctx, name, args, w, out)
	} else {
		status = runLLVM(ctx, p, name, args, w, out)
	}
	if out.flush() != nil {
		return 1
	}
	return status
}
