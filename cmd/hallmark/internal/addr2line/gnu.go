package addr2line

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
	"syscall"

	"hallmark/addr"
	"hallmark/debuginfo"
	"hallmark/internal/regular"
	"hallmark/symbol"
)

// longestGNULine is how much of a line GNU addr2line reads at once.
const longestGNULine = 99

// runGNU is GNU addr2line.
func runGNU(ctx context.Context, name string, args []string, w World, out *output) int {
	opt, err := parseGNU(args)
	var usage gnuUsageError
	switch {
	case err != nil:
		w.complain(fmt.Sprintf("%s: %v", name, err))
		if errors.As(err, &usage) {
			fmt.Fprintf(w.Stderr, gnuHelp, name)
		}
		return 1
	case opt.help:
		out.buf = fmt.Appendf(out.buf, gnuHelp, name)
		return 0
	case opt.version:
		out.buf = fmt.Appendf(out.buf, "addr2line (Hallmark) %s\nIt stands in for GNU addr2line.\n", w.Version)
		return 0
	}
	g := &gnu{gnuOptions: opt, library: w.Library, out: out, names: newNameCache(nil)}
	if opt.demangle {
		g.names.readable = gnuDemangler(opt.demangleStyle, opt.unlimited)
	}
	defer g.close()
	g.library.Finder.Package = opt.splitUnits
	err = g.open(ctx)
	if err == nil {
		err = g.run(w)
	}
	if err == nil {
		return 0
	}
	if err != errEmpty {
		w.complain(fmt.Sprintf("%s: %v", name, err))
	}
	return 1
}

// errEmpty says that a file is empty, of which GNU addr2line says nothing.
var errEmpty = errors.New("file is empty")

// gnu answers in the form of GNU addr2line.
type gnu struct {
	gnuOptions
	library *debuginfo.Library
	out     *output
	names   *nameCache
	symbols debuginfo.Symbols
	digits  int              // of an address
	mask    uint64           // bits of an address
	within  []symbol.Section // what addresses are offsets in; nil if they are addresses
	table   *table           // nil until it is needed
	frames  []symbol.Frame
}

func (g *gnu) close() {
	if g.symbols != nil {
		g.symbols.Close()
	}
}

// open opens the file. Its errors have the words of GNU addr2line.
func (g *gnu) open(ctx context.Context) error {
	info, err := os.Stat(g.file)
	var number syscall.Errno
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("'%s': No such file", g.file)
	case errors.As(err, &number):
		return inTheirWords("Warning: could not locate '%s'.  reason: %s", g.file, strerror(number))
	case err != nil:
		return err
	case info.IsDir():
		return inTheirWords("Warning: '%s' is a directory", g.file)
	case !info.Mode().IsRegular():
		return inTheirWords("Warning: '%s' is not an ordinary file", g.file)
	case info.Size() == 0:
		return errEmpty
	case g.target != "" && !isTarget(g.target):
		return fmt.Errorf("%s: invalid bfd target", g.file)
	}
	g.symbols, err = g.library.OpenFile(ctx, g.file)
	switch {
	case errors.As(err, &number):
		return fmt.Errorf("%s: %s", g.file, strerror(number))
	case errors.Is(err, symbol.ErrNotELF) && isArchive(g.file):
		return fmt.Errorf("%s: cannot get addresses from archive", g.file)
	case errors.Is(err, symbol.ErrNotELF):
		return fmt.Errorf("%s: file format not recognized", g.file)
	case err != nil:
		return err
	}
	return g.readHeaders()
}

// theirError is an error in the words of the program that is stood in for.
type theirError string

func (e theirError) Error() string { return string(e) }

func inTheirWords(format string, args ...any) error { return theirError(fmt.Sprintf(format, args...)) }

// strerror returns the text of an error as C libraries have it, which starts with a
// capital letter.
func strerror(number syscall.Errno) string {
	text := number.Error()
	return strings.ToUpper(text[:1]) + text[1:]
}

// Machines that BFD has names of ELF files for, by the bits of addresses.
var targets = map[string][]string{
	"elf32-": {"little", "big", "i386", "iamcu", "x86-64", "littlearm", "bigarm", "littleaarch64", "bigaarch64", "littleriscv", "bigriscv",
		"powerpc", "powerpcle", "s390", "sparc", "m68k", "hppa-linux", "sh-linux", "shbig-linux", "loongarch", "littlemips", "bigmips",
		"tradlittlemips", "tradbigmips", "ntradlittlemips", "ntradbigmips"},
	"elf64-": {"little", "big", "x86-64", "littleaarch64", "bigaarch64", "littleriscv", "bigriscv", "powerpc", "powerpcle", "s390", "sparc",
		"alpha", "ia64-little", "ia64-big", "hppa-linux", "loongarch", "bpfle", "bpfbe", "tradlittlemips", "tradbigmips"},
}

// isTarget reports whether a name is one of BFD's for ELF files: elf64-x86-64,
// elf32-little … Which one it is does not matter: the file says so, to the original too.
func isTarget(name string) bool {
	for prefix, machines := range targets {
		if machine, ok := strings.CutPrefix(name, prefix); ok {
			return slices.Contains(machines, machine)
		}
	}
	return name == "default"
}

func isArchive(name string) bool {
	f, err := regular.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [8]byte
	_, err = f.ReadAt(magic[:], 0)
	return err == nil && (string(magic[:]) == "!<arch>\n" || string(magic[:]) == "!<thin>\n")
}

// readHeaders learns from the file how wide addresses are, and which sections they are
// offsets in. An index has no headers, and is of a file with 64-bit addresses.
func (g *gnu) readHeaders() error {
	g.digits, g.mask = 16, math.MaxUint64
	file, err := symbol.OpenFile(g.file)
	if errors.Is(err, symbol.ErrNotELF) && g.section == "" {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if file.AddressSize() == 4 {
		g.digits, g.mask = 8, math.MaxUint32
	}
	if g.section == "" {
		if file.Relocatable() {
			g.within = file.Sections()
		}
		return nil
	}
	for _, s := range file.Sections() {
		if s.Name == g.section {
			g.within = []symbol.Section{s}
			return nil
		}
	}
	return fmt.Errorf("%s: cannot find section %s", g.file, g.section)
}

// run answers for the addresses that were given, or for those on standard input.
func (g *gnu) run(w World) error {
	if len(g.numbers) > 0 {
		for _, s := range g.numbers {
			if err := g.answer(g.address([]byte(s))); err != nil {
				return err
			}
		}
		return nil
	}
	in := newLines(w.Stdin, g.out, longestGNULine)
	for {
		line, ok := in.next()
		if !ok {
			return in.failed()
		}
		if err := g.answer(g.address(line)); err != nil {
			return err
		}
	}
}

// address reads an address: a hexadecimal number, or SYMBOL, SYMBOL+OFFSET or +OFFSET.
// Of other text, the number that it starts with counts.
func (g *gnu) address(text []byte) uint64 {
	n, rest := parseHex(text)
	if len(bytes.TrimSpace(rest)) == 0 {
		return n
	}
	name, offset, hasOffset := strings.Cut(strings.TrimLeft(string(text), requestBlanks), "+")
	if end := strings.IndexAny(name, requestBlanks); end >= 0 {
		name = name[:end]
	}
	var start addr.Virt
	if name != "" {
		found := g.symbolTable().named(name)
		switch {
		case len(found) > 0:
			start = found[0]
		case hasOffset:
			return 0
		default:
			return n
		}
	}
	return uint64(start) + parseOffset(offset)
}

// parseOffset reads the number that a text starts with, whose prefix says its base, as
// strtoul does.
func parseOffset(text string) uint64 {
	text = strings.TrimLeft(text, requestBlanks)
	text, negative := strings.CutPrefix(text, "-")
	if !negative {
		text = strings.TrimPrefix(text, "+")
	}
	for end := min(len(text), len("0b")+64); end > 0; end-- {
		n, ok := parseNumber(text[:end], 0)
		switch {
		case ok && negative:
			return -n
		case ok:
			return n
		}
	}
	return 0
}

func (g *gnu) symbolTable() *table {
	if g.table == nil {
		g.table = readTable(openELF(g.library, g.file))
	}
	return g.table
}

// answer appends what is at an address to the output.
func (g *gnu) answer(v uint64) error {
	v &= g.mask
	b := g.out.buf
	if g.addresses {
		b = appendDigits(append(b, "0x"...), v, g.digits)
		b = g.appendAfter(b, ": ")
	}
	frames := g.find(v)
	if len(frames) == 0 {
		if g.functions {
			b = g.appendAfter(append(b, "??"...), " ")
		}
		b = append(b, "??:0\n"...)
	}
	for i := range frames {
		if i > 0 && g.pretty {
			b = append(b, " (inlined by) "...)
		}
		b = g.appendFrame(b, &frames[i])
		if !g.inlines {
			break
		}
	}
	g.out.buf = b
	return g.out.done()
}

// appendAfter ends a line, or puts what stands between two things on one line.
func (g *gnu) appendAfter(b []byte, pretty string) []byte {
	if g.pretty {
		return append(b, pretty...)
	}
	return append(b, '\n')
}

// find returns the frames at an address, or at an offset in one of the sections: the
// first one that has any.
func (g *gnu) find(v uint64) []symbol.Frame {
	if g.within == nil {
		return g.at(addr.Virt(v))
	}
	for _, s := range g.within {
		if v >= s.Size {
			continue
		}
		if frames := g.at(s.Virt + addr.Virt(v)); len(frames) > 0 {
			return frames
		}
	}
	return nil
}

// at returns the frames at an address. Where no line is known, the symbol table may
// know the file.
func (g *gnu) at(v addr.Virt) []symbol.Frame {
	g.frames, _ = g.symbols.AppendFrames(g.frames[:0], v)
	if n := len(g.frames); n > 0 && g.frames[n-1].File == "" {
		g.frames[n-1].File = g.symbolTable().fileOf(g.frames[n-1].Linkage, v)
	}
	if n := len(g.frames); n > 1 && g.frames[n-1].Local {
		g.frames[n-1].Linkage = shortName(g.frames[n-1].Linkage) // GNU looks for no symbol of callers
	}
	return g.frames
}

func (g *gnu) appendFrame(b []byte, f *symbol.Frame) []byte {
	if g.functions {
		b = g.appendAfter(append(b, cmp.Or(g.out.name(g.names.of(f.Linkage)), "??")...), " at ")
	}
	file := f.File
	if file == "" {
		file = "??"
	} else if g.basenames {
		file = file[strings.LastIndexByte(file, '/')+1:]
	}
	b = append(append(b, g.out.name(file)...), ':')
	if f.Line == 0 {
		return append(b, "?\n"...)
	}
	return append(appendDecimal(b, uint64(f.Line)), '\n')
}
