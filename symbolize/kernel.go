package symbolize

import (
	"cmp"
	"slices"
	"strings"

	"hallmark/buildid"
	"hallmark/reason"
	"hallmark/symbol"
)

// kernel knows what the Linux kernel prints with %pS and %pB (lib/vsprintf.c,
// kernel/kallsyms.c: sprint_symbol_build_id), in an oops, a warning or a stack:
//
//	CPU: 0 PID: 1 Comm: init Not tainted 6.1.0 #1 eb4fbcd037e7253717950bf2b93bd5566f47c56f
//	RIP: 0010:ext4_get_inode_loc+0x1f/0xa0 [ext4 721ba523aee7021d40001edd1e3ff5ceb9541d86]
//	 ? ext4_iget+0x12/0x34 [ext4 721ba523aee7021d40001edd1e3ff5ceb9541d86]
//	 do_syscall_64+0x58/0xc0
//
// Build IDs are there if it was built with CONFIG_STACKTRACE_BUILD_ID. A function is
// known by its name and its size, up to the next function, since several have the same
// name. Source lines follow it in parentheses, as by the kernel's
// scripts/decode_stacktrace.sh.
//
// The frames of a stack are return addresses; instruction pointers are not.
type kernel struct {
	*resolver
	running buildid.ID // of the kernel, zero if not known
	files   map[module]*functions
}

// kernelHead matches the line that says which kernel it is.
var kernelHead = pattern(`CPU: \d+ .*Comm: .* ([0-9a-f]{32,40})$`)

func (k *kernel) rewrite(line string) ([]string, bool) {
	f, ok := parseKernel(line)
	if !ok {
		if m := kernelHead().FindStringSubmatch(line); m != nil {
			k.running, _ = parseID(m[1])
		}
		return nil, false
	}
	if f.file == kernelFile {
		f.id = k.running
	}
	at, why := k.place(&f)
	if why != reason.None {
		k.tally.add(f.file, why)
		return []string{line}, true
	}
	r := k.lookup(place{module: f.file, id: f.id, at: at, caller: f.caller && f.offset > 0, kernel: true})
	if len(r.Frames) == 0 || sourceLine(&r.Frames[0]) == "" {
		return []string{line}, true
	}
	return f.lines(r.Frames), true
}

// kernelFile is the file that code of the kernel is from which is of no module; those of
// modules have the suffix.
const (
	kernelFile   = "vmlinux"
	moduleSuffix = ".ko"
)

// kernelFrame is a frame in a line.
type kernelFrame struct {
	before, function, text, after string // the line; text is with the offset
	offset, size                  uint64
	file                          string
	id                            buildid.ID
	caller                        bool
}

// parseKernel finds the first "function+0x12/0x34" in a line.
func parseKernel(line string) (f kernelFrame, ok bool) {
	for from := 0; ; {
		plus := strings.Index(line[from:], "+0x")
		if plus < 0 {
			return f, false
		}
		plus += from
		from = plus + 3
		offset, rest, ok := cutHex(line[from:])
		if !ok || !strings.HasPrefix(rest, "/0x") {
			continue
		}
		size, rest, ok := cutHex(rest[3:])
		start := functionBefore(line[:plus])
		if !ok || start == plus || offset > size {
			continue
		}
		f = kernelFrame{
			before: line[:start], function: line[start:plus],
			text: line[start : len(line)-len(rest)], after: rest, offset: offset, size: size,
		}
		f.file, f.id = parseKernelModule(rest)
		f.caller = !isInstruction(f.before)
		return f, true
	}
}

// functionBefore returns where the name of a function starts that s ends in.
func functionBefore(s string) int {
	start := len(s)
	for start > 0 && (isWord(s[start-1]) || s[start-1] == '.' || s[start-1] == '$') {
		start--
	}
	return start
}

// parseKernelModule reads " [ext4 721b…]" or " [ext4]".
func parseKernelModule(s string) (file string, id buildid.ID) {
	inside, ok := strings.CutPrefix(s, " [")
	if !ok {
		return kernelFile, id
	}
	inside, _, ok = strings.Cut(inside, "]")
	name, digits, told := strings.Cut(inside, " ")
	if !ok || name == "" {
		return kernelFile, id
	}
	if told {
		id, _ = parseID(digits)
	}
	return name + moduleSuffix, id
}

// isInstruction reports whether what follows is where the processor was, and no return
// address: "RIP: 0010:", "pc : ", "WARNING: CPU: 0 PID: 1 at fs/ext4/inode.c:12 ".
func isInstruction(before string) bool {
	return strings.Contains(before, "IP: ") || strings.HasSuffix(before, "pc : ") || strings.Contains(before, "PC is at ") ||
		strings.Contains(before, "WARNING: ")
}

// lines writes the functions at a frame, each in a line like it.
func (f *kernelFrame) lines(frames []symbol.Frame) []string {
	var lines []string
	for i := range frames {
		fn := &frames[i]
		line := f.before + f.text
		if fn.Inlined {
			line = f.before + clean(fn.Func)
		}
		if at := sourceLine(fn); at != "" {
			line += " (" + at + ")"
		}
		if fn.Inlined {
			line += " (inlined)"
		}
		lines = append(lines, line+f.after)
	}
	return lines
}

// functions are the functions of a file by their names, each with its size up to the
// next one, as the kernel has it.
type functions struct {
	named map[string][]symbol.Function
	why   reason.Reason // why there are none
}

// place returns the virtual address of a frame.
func (k *kernel) place(f *kernelFrame) (uint64, reason.Reason) {
	m := module{f.file, f.id, true}
	file := k.files[m]
	if file == nil {
		if k.files == nil || len(k.files) >= maxSources {
			k.files = map[module]*functions{}
		}
		file = k.functions(m)
		k.files[module{strings.Clone(m.name), m.id, true}] = file
	}
	if file.why != reason.None {
		return 0, file.why
	}
	return pick(file.named[f.function], f)
}

// pick returns the address in the function that a frame means.
func pick(candidates []symbol.Function, f *kernelFrame) (uint64, reason.Reason) {
	if len(candidates) > 1 {
		candidates = slices.DeleteFunc(slices.Clone(candidates), func(fn symbol.Function) bool { return fn.Size != f.size })
	}
	if len(candidates) != 1 {
		return 0, reason.NoSymbol
	}
	return uint64(candidates[0].Virt) + f.offset, reason.None
}

// functions reads the functions of a file.
func (k *kernel) functions(m module) *functions {
	file, why := k.openFile(m)
	if why != reason.None {
		return &functions{why: why}
	}
	defer file.Close()
	all, err := file.Functions()
	switch {
	case err != nil:
		return &functions{why: reason.BadSymbols}
	case len(all) == 0:
		return &functions{why: reason.NoSymbolTable}
	}
	return &functions{named: byName(all)}
}

// openFile opens a file whose symbol table is needed, which an index does not have.
func (k *kernel) openFile(m module) (*symbol.File, reason.Reason) {
	if len(m.name) > maxPath {
		return nil, reason.NoFile
	}
	if !m.id.IsZero() {
		file, err := k.library.Finder.Search(k.ctx, k.query(m))
		return file, reason.Of(err)
	}
	name, why := k.fileNamed(m.name)
	if why != reason.None {
		return nil, why
	}
	file, err := symbol.OpenFile(name)
	if err != nil {
		return nil, reason.NoFile
	}
	return file, reason.None
}

// byName returns functions by name, with the size up to the next one, which includes the
// padding.
func byName(all []symbol.Function) map[string][]symbol.Function {
	slices.SortFunc(all, func(a, b symbol.Function) int { return cmp.Compare(a.Virt, b.Virt) })
	named := map[string][]symbol.Function{}
	var end symbol.Function // the next function at another address
	for i, f := range slices.Backward(all) {
		if i+1 < len(all) && all[i+1].Virt != f.Virt {
			end = all[i+1]
		}
		if end.Virt > f.Virt {
			f.Size = uint64(end.Virt - f.Virt)
		}
		named[f.Name] = append(named[f.Name], f)
	}
	return named
}
