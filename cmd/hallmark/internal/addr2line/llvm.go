package addr2line

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/cmd/hallmark/internal/dwarfentry"
	"hallmark/debuginfo"
	"hallmark/symbol"
)

// longestLLVMLine is how much of a line llvm-symbolizer reads at once.
const longestLLVMLine = 1023

// optionsFrom are the environment variables with initial options.
var optionsFrom = map[Program]string{
	LLVMAddr2line:  "LLVM_ADDR2LINE_OPTS",
	LLVMSymbolizer: "LLVM_SYMBOLIZER_OPTS",
}

// runLLVM is llvm-addr2line or llvm-symbolizer.
func runLLVM(ctx context.Context, p Program, name string, args []string, w World, out *output) int {
	opt, err := parseLLVM(p, append(splitWords(w.Getenv(optionsFrom[p])), args...))
	switch {
	case opt.help:
		out.buf = fmt.Appendf(out.buf, llvmHelp, p)
		return 0
	case opt.version:
		out.buf = fmt.Appendf(out.buf, "%s\n  Hallmark %s\n  It stands in for that of LLVM version 19.\n", p, w.Version)
		return 0
	case err != nil:
		for line := range strings.SplitSeq(err.Error(), "\n") { // one for each argument
			w.complain(line)
		}
		return 1
	}
	for _, warning := range opt.warnings {
		w.complain(warning)
	}
	l := newLLVM(p, name, opt, w, out)
	defer l.close()
	if opt.markup {
		if err := l.filterMarkup(ctx); err != nil {
			w.complain(fmt.Sprintf("%s: error: %v", name, err))
			return 1
		}
		return 0
	}
	if opt.hasFile && !l.check(ctx) {
		return 1
	}
	if err := l.run(ctx); err != nil {
		w.complain(fmt.Sprintf("%s: error: %v", name, err))
		return 1
	}
	return 0
}

// llvm answers requests of llvm-symbolizer's protocol.
type llvm struct {
	llvmOptions
	name    string // of the program, for messages
	base    int    // of numbers
	world   World
	out     *output
	library *debuginfo.Library
	modules map[string]*module // nil for what could not be opened
	printer *printer
	frames  []symbol.Frame
	shown   []frame
}

// A module is a file that was asked about.
type module struct {
	symbols debuginfo.Symbols
	path    string // "" if it is known by its identity alone
	id      buildid.ID
	content buildid.Content  // that symbols are of, as far as it is known
	within  []symbol.Section // what addresses are offsets in; nil if they are addresses
	table   *table           // nil until it is needed

	debug   *symbol.File // with the debug information that entries are read from, or nil
	isAsked bool         // debug was opened, if it can be
	entries *dwarfentry.File
}

func (m *module) close() {
	m.symbols.Close()
	if m.debug != nil {
		m.debug.Close()
	}
}

// maxModules is how many files are open at once. A process of a browser maps some 200.
const maxModules = 512

func newLLVM(p Program, name string, opt llvmOptions, w World, out *output) *llvm {
	l := &llvm{llvmOptions: opt, name: name, world: w, library: w.Library, out: out, modules: map[string]*module{}}
	l.library.Finder.Dirs, l.library.Finder.Package = opt.dirs(), opt.dwp
	if opt.noServers {
		l.library.Finder.Servers = nil
	}
	if p == LLVMAddr2line {
		l.base = 16
	}
	l.printer = newPrinter(&l.llvmOptions, out)
	return l
}

// run answers the requests that were given, or those on standard input.
func (l *llvm) run(ctx context.Context) error {
	if len(l.requests) > 0 {
		l.printer.begin()
		for _, text := range l.requests {
			l.answer(ctx, text)
		}
		l.printer.end()
		return nil
	}
	in := newLines(l.world.Stdin, l.out, longestLLVMLine)
	for {
		line, ok := in.next()
		if !ok {
			return in.failed()
		}
		line, _, _ = bytes.Cut(line, []byte{0}) // as C strings end
		l.answer(ctx, strings.TrimRight(string(line), "\r"))
		if err := l.out.done(); err != nil {
			return err
		}
	}
}

// close closes all modules.
func (l *llvm) close() {
	for _, m := range l.modules {
		if m != nil {
			m.close()
		}
	}
	clear(l.modules)
}

// check reports whether the file of all addresses can be opened, and says why not.
func (l *llvm) check(ctx context.Context) bool {
	r := request{file: l.file, isParsed: true}
	m, err := l.module(ctx, &r)
	if err != nil {
		l.fail(&r, err)
	}
	return m != nil
}

// fail says what is wrong with a file. It reports whether an empty answer is due.
func (l *llvm) fail(r *request, err error) bool {
	if l.style == styleJSON {
		l.printer.failure(r, err.Error())
		return false
	}
	l.complain(r.moduleName(), err)
	return true
}

// complain writes a message, behind all answers before it.
func (l *llvm) complain(what string, err error) {
	l.out.flush()
	l.world.complain(fmt.Sprintf("%s: error: '%s': %v", l.name, what, err))
}

// errNoBuildID says that no file with a build ID is found.
var errNoBuildID = errors.New("could not find build ID")

// nothing stands for a place of which nothing is known.
var nothing = []frame{{}}

// answer answers a request.
func (l *llvm) answer(ctx context.Context, text string) {
	r := request{file: l.file, identity: l.identity}
	if err := r.parse(text, l.base); err != nil {
		if text != "" {
			l.complain(text, err)
		}
		l.printer.code(&r, nothing)
		return
	}
	m, err := l.module(ctx, &r)
	if err != nil && !l.fail(&r, err) {
		return
	}
	switch {
	case r.command != commandCode && r.symbol != "":
		l.aboutNamed(&r, m)
	case r.command == commandData:
		l.data(&r, m)
	case r.command == commandFrame:
		l.frame(&r, m)
	case r.symbol != "":
		l.symbolNamed(&r, m)
	default:
		l.printer.code(&r, l.find(m, addr.Virt(r.number-l.adjust)))
	}
}

// symbolNamed answers with the code at a symbol, or so many bytes behind it, where its
// file is known.
func (l *llvm) symbolNamed(r *request, m *module) {
	var found []frame
	for _, v := range l.tableOf(m).named(r.symbol) {
		frames := l.find(m, v+addr.Virt(r.number))
		if len(frames) > 0 && frames[0].File != "" {
			l.printer.nameAfter(&frames[0], &frames[len(frames)-1])
			found = append(found, frames[0])
		}
	}
	l.printer.symbol(r, found)
}

// aboutNamed answers DATA and FRAME about a symbol by its name, or so many bytes behind
// it: of several with the name it is the first.
func (l *llvm) aboutNamed(r *request, m *module) {
	found := l.tableOf(m).named(r.symbol)
	switch {
	case r.command == commandData && len(found) == 0:
		l.printer.data(r, symbol.ELFSymbol{}, 0)
	case r.command == commandData:
		l.dataIn(r, m, l.tableOf(m), found[0]+addr.Virt(r.number), 0)
	case len(found) == 0:
		l.printer.frame(r, nil)
	default:
		l.frameAt(r, m, found[0]+addr.Virt(r.number))
	}
}

// find returns the frames at an address, or nothing; none at all without a module.
// Where no line is known, the symbol table may know the file.
func (l *llvm) find(m *module, v addr.Virt) []frame {
	if m == nil {
		return nil
	}
	v, base := m.place(v)
	var source symbol.Source
	l.frames, source = m.symbols.AppendFrames(l.frames[:0], v)
	n := len(l.frames)
	if n == 0 && l.functions == linkageNames {
		if s, ok := l.tableOf(m).label(v); ok {
			l.shown = append(l.shown[:0], frame{Frame: symbol.Frame{Linkage: s.Name, File: s.File}, start: s.Virt - base, hasStart: true})
			return l.shown
		}
	}
	if n == 0 || source != symbol.SourceDWARF && l.functions != linkageNames {
		return nothing // symbol tables know nothing but linkage names
	}
	if l.frames[n-1].File == "" && l.functions == linkageNames {
		l.frames[n-1].File = l.tableOf(m).fileOf(l.frames[n-1].Linkage, v)
	}
	l.shown = l.shown[:0]
	for _, f := range l.frames {
		l.shown = append(l.shown, frame{Frame: f})
	}
	if l.needsDetail() {
		l.detail(m, l.shown, v, base)
		l.setStart(m, &l.shown[n-1], v, base)
	}
	return l.shown
}

// setStart puts where the function at an address starts, by the symbol table, into its
// frame. It is the symbol table that names it, too.
func (l *llvm) setStart(m *module, f *frame, v, base addr.Virt) {
	if l.functions != linkageNames {
		return
	}
	if s, ok := l.tableOf(m).holding(v, f.Linkage); ok {
		f.start, f.hasStart = s.Virt-base, true
	}
}

// module returns the module that a request is about, nil if it cannot be opened; the
// first time with the reason.
func (l *llvm) module(ctx context.Context, r *request) (*module, error) {
	key := r.moduleName()
	if m, ok := l.modules[key]; ok {
		return m, nil
	}
	if len(l.modules) >= maxModules {
		l.close()
	}
	if !r.identity.IsZero() {
		symbols, _ := l.library.Open(ctx, r.identity)
		if symbols == nil {
			return nil, errNoBuildID
		}
		m := &module{symbols: symbols, id: r.identity}
		if x, ok := symbols.(*symbol.Index); ok {
			m.content = debuginfo.OriginOf(x).Content
		}
		l.modules[key] = m
		return l.modules[key], nil
	}
	m, err := l.openFile(ctx, r.file)
	l.modules[key] = m
	return m, err
}

// openFile opens a module by the path of its file, which may have the name of an
// architecture behind it.
func (l *llvm) openFile(ctx context.Context, path string) (*module, error) {
	if colon := strings.LastIndexByte(path, ':'); colon > 0 && isArchitecture(path[colon+1:]) {
		path = path[:colon]
	}
	symbols, err := l.open(ctx, path)
	if err != nil {
		return nil, llvmError(path, err)
	}
	m := &module{symbols: symbols, path: path}
	if file, err := symbol.OpenFile(path); err == nil {
		if file.Relocatable() {
			m.within = file.Sections()
		}
		file.Close()
	}
	return m, nil
}

// open returns the symbols of a file. With a .dwp file that was named they are the
// file's own: an index may be of another one.
func (l *llvm) open(ctx context.Context, path string) (debuginfo.Symbols, error) {
	if l.dwp == "" {
		return l.library.OpenFile(ctx, path)
	}
	file, err := symbol.OpenFile(path)
	if err != nil {
		return nil, err
	}
	return l.complete(file), nil
}

// complete returns a file joined with its debug file.
func (l *llvm) complete(file *symbol.File) *symbol.File {
	id, err := debuginfo.Identify(file)
	if err != nil && !errors.Is(err, buildid.ErrFormat) {
		return file
	}
	return l.library.Finder.Complete(id, file)
}

// llvmError puts the reason why a file could not be opened in llvm-symbolizer's words
// where it has some.
func llvmError(path string, err error) error {
	var number syscall.Errno
	var damaged *symbol.FormatError
	info, statErr := os.Stat(path)
	switch {
	case statErr == nil && info.IsDir():
		return theirError("Is a directory")
	case errors.As(err, &number):
		return errors.New(strerror(number))
	case errors.Is(err, symbol.ErrNotELF) && isArchive(path):
		return theirError("No object file for requested architecture")
	case errors.Is(err, symbol.ErrNotELF):
		return theirError("The file was not recognized as a valid object file")
	case errors.As(err, &damaged):
		return damaged.Err
	}
	return err
}

// isArchitecture reports whether a name is one of an ELF machine, as LLVM calls them.
func isArchitecture(name string) bool {
	switch name {
	case "x86_64", "amd64", "i386", "i486", "i586", "i686", "arm64", "aarch64", "aarch64_be", "arm", "armv7", "thumb",
		"mips", "mipsel", "mips64", "mips64el", "powerpc", "powerpc64", "powerpc64le", "ppc64le", "riscv32", "riscv64",
		"s390x", "loongarch64", "sparc", "sparcv9":
		return true
	}
	return false
}

// tableOf returns the symbol table of a module, which is read once. Without a module,
// or if it is damaged, it is empty.
func (l *llvm) tableOf(m *module) *table {
	if m == nil {
		return new(table)
	}
	if m.table == nil {
		m.table = readTable(l.openELF(m))
		if l.untag {
			m.table.untag()
		}
	}
	return m.table
}

// openELF opens the file of a module for what its tables say, or returns nil.
func (l *llvm) openELF(m *module) *symbol.File {
	if m.path == "" {
		file, _ := l.library.Finder.Search(context.Background(), debuginfo.Query{ID: m.id, Content: m.content, Local: true})
		return file
	}
	file, err := symbol.OpenFile(m.path)
	if err != nil {
		return nil
	}
	return l.complete(file)
}
