package unwind

import (
	"bufio"
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/testenv"
)

// A witness is what another program says of an ELF file: the rule of each row, for
// virtual addresses. The first function that covers an address is the one that counts.
type witness struct {
	file    *elf.File
	machine Machine
	table   *Table
	rows    int
	seen    map[Kind]int
}

func newWitness(t *testing.T, raw []byte, o BuildOptions) *witness {
	t.Helper()
	file, err := elf.NewFile(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	o.Warn = func(err error) { t.Errorf("damage: %v", err) }
	table, err := Build(bytes.NewReader(raw), o)
	if err != nil {
		t.Fatal(err)
	}
	return &witness{file: file, machine: table.Machine(), table: table, seen: map[Kind]int{}}
}

// offset returns where an address is in the file, if it is code there.
func (w *witness) offset(virt uint64) (addr.Offset, bool) {
	for _, p := range w.file.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && virt >= p.Vaddr && virt-p.Vaddr < p.Filesz {
			return addr.Offset(virt - p.Vaddr + p.Off), true
		}
	}
	return 0, false
}

// check compares the table with a row of another program's, for the first and the last
// address of it.
func (w *witness) check(t *testing.T, start, end uint64, line string, want Rule) {
	if start >= end {
		return
	}
	for _, virt := range []uint64{start, end - 1} {
		off, ok := w.offset(virt)
		if !ok {
			return
		}
		got := w.table.Lookup(off)
		got.Flags &= SavedAtRegister | SavedAtFramePointer
		if got != want {
			t.Errorf("%#x: %+v, want %+v: %s", virt, got, want, line)
		}
	}
	w.rows++
	w.seen[want.Kind]++
}

var registerNumbers = map[Machine]map[string]Register{
	X86_64: {"RAX": 0, "RDX": 1, "RCX": 2, "RBX": 3, "RSI": 4, "RDI": 5, "RBP": 6, "RSP": 7, "R8": 8, "R9": 9, "R10": 10,
		"R11": 11, "R12": 12, "R13": 13, "R14": 14, "R15": 15, "RIP": 16},
	ARM64: arm64Registers(),
}

func arm64Registers() map[string]Register {
	m := map[string]Register{"WSP": 31, "SP": 31, "LR": 30, "FP": 29}
	for i := range 31 {
		m[fmt.Sprintf("W%d", i)] = Register(i)
		m[fmt.Sprintf("X%d", i)] = Register(i)
	}
	return m
}

var (
	llvmFunction = regexp.MustCompile(`^[0-9a-f]+ [0-9a-f]+ [0-9a-f]+ FDE cie=([0-9a-f]+) pc=([0-9a-f]+)\.\.\.([0-9a-f]+)`)
	llvmColumn   = regexp.MustCompile(`^  Return address column: ([0-9]+)$`)
	llvmRow      = regexp.MustCompile(`^  0x([0-9a-f]+): CFA=(.*)$`)
	llvmAt       = regexp.MustCompile(`^([A-Z0-9]+)([+-][0-9]+)?$`)
	llvmBReg     = regexp.MustCompile(`^DW_OP_breg([0-9]+) [A-Z0-9]+([+-][0-9]+)$`)
)

// compareLLVM compares a file's table with every row that llvm-dwarfdump prints.
func (w *witness) compareLLVM(t *testing.T, name, section string) {
	cmd := exec.Command(testenv.Tool(t, "llvm-dwarfdump-19"), "--eh-frame", name)
	if section == ".debug_frame" {
		cmd.Args[1] = "--debug-frame"
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.readLLVM(t, out, section)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

func (w *witness) readLLVM(t *testing.T, out io.Reader, section string) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	var end, at uint64
	row, here := "", false
	cie, columns, column := "", map[string]string{}, ""
	flush := func(next uint64) {
		switch {
		case row == "":
		case column == fmt.Sprint(w.machine.returnColumn()):
			w.check(t, at, next, row, w.llvmRule(t, row))
		default: // rawmemchr of glibc for arm64 keeps the return address in another register
			w.check(t, at, next, row, Rule{Kind: None, Register: Register(Unusual)})
		}
		row = ""
	}
	for lines.Scan() {
		line := lines.Text()
		if strings.HasSuffix(line, " contents:") {
			flush(end)
			here = line == section+" contents:"
		}
		if m := llvmFunction.FindStringSubmatch(line); m != nil {
			flush(end)
			start := number(t, m[2])
			end, column = number(t, m[3]), columns[m[1]]
			if start == 0 {
				end = 0
			}
		} else if strings.Contains(line, " CIE") {
			flush(end)
			end = 0
			cie, _, _ = strings.Cut(line, " ")
		} else if m := llvmColumn.FindStringSubmatch(line); m != nil {
			columns[cie] = m[1]
		} else if m := llvmRow.FindStringSubmatch(line); m != nil && here && end != 0 {
			next := number(t, m[1])
			flush(next)
			at, row = next, m[2]
		}
	}
	flush(end)
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

func number(t *testing.T, s string) uint64 {
	n, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func signedNumber(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// llvmRule says with a Rule what stands behind "CFA=": rules are made anew here, from
// text, with none of the code that makes tables.
func (w *witness) llvmRule(t *testing.T, row string) Rule {
	cfa, registers, _ := strings.Cut(row, ": ")
	places := map[Register]string{}
	for registers != "" {
		name, rest, _ := strings.Cut(registers, "=")
		value := rest
		if strings.HasPrefix(rest, "[") {
			value, registers, _ = strings.Cut(rest, "]")
			value += "]"
			registers = strings.TrimPrefix(registers, ", ")
		} else {
			value, registers, _ = strings.Cut(rest, ", ")
		}
		n, ok := registerNumbers[w.machine][name]
		if ok {
			places[n] = value
		}
	}
	return w.ruleOf(t, row, cfa, places)
}

func (w *witness) ruleOf(t *testing.T, row, cfa string, places map[Register]string) Rule {
	ra := w.machine.returnColumn()
	if places[ra] == "undefined" {
		return Rule{Kind: Outermost}
	}
	if strings.Contains(row, "RIP=[DW_OP_breg7 RSP+168]") && strings.HasPrefix(cfa, "DW_OP_breg7 RSP+160, DW_OP_deref") {
		return Rule{Kind: Signal, Register: RSP}
	}
	r := w.cfaOf(cfa)
	if r.Kind == None {
		return r
	}
	if w.machine == ARM64 && r.Register < 8 {
		return Rule{Kind: None, Register: Register(Unusual)} // longjmp's buffer is no stack
	}
	if v, ok := places[w.machine.StackPointer()]; ok && v != "CFA" {
		return Rule{Kind: None, Register: Register(Unusual)} // setcontext, longjmp
	}
	switch v, ok := places[ra]; {
	case strings.HasPrefix(v, "[CFA") && w.machine == ARM64 && r.Kind == Reg:
		return pairOf(r, signedNumber(strings.Trim(v, "[CFA]")), places[X29])
	case strings.HasPrefix(v, "[CFA"):
		r.RA = int8(signedNumber(strings.Trim(v, "[CFA]")) / 8)
	case !ok && w.machine == ARM64:
		r.RA, r.Link = Same, X30
	case ok:
		if n, ok := registerNumbers[w.machine][v]; ok {
			r.RA, r.Link = Same, n
		} else {
			return Rule{Kind: None, Register: Register(Unusual)}
		}
	}
	fp := Register(RBP)
	if w.machine == ARM64 {
		fp = X29
	}
	at := func(reg Register) string { return fmt.Sprintf("[DW_OP_breg%d ", reg) }
	from := ""
	switch byCFA, own := at(r.Register), at(fp); {
	case strings.HasPrefix(places[fp], "[CFA"):
	case strings.HasPrefix(places[fp], byCFA), !strings.HasPrefix(places[fp], own) && strings.Contains(row, byCFA):
		r.Flags, from = SavedAtRegister, byCFA
	case strings.Contains(row, "="+own):
		r.Flags, from = SavedAtFramePointer, own
	}
	for i, reg := range w.machine.Saved() {
		r.Saved[i] = savedOf(places[reg], from, from != "")
	}
	return r
}

// pairOf completes a rule for arm64 whose return address lies at CFA + ra: relative to the
// CFA if that is near enough for a byte, and else to the register, x29 likewise.
func pairOf(r Rule, ra int64, x29 string) Rule {
	shift := int64(0)
	if ra < -127*8 {
		r.Flags, shift = SavedAtRegister, int64(r.Offset)
	}
	if ra += shift; ra%8 != 0 || ra > 126*8 || ra < -127*8 {
		return Rule{Kind: None, Register: Register(Unusual)}
	}
	r.RA, r.Saved[0] = int8(ra/8), Same
	if x29 != "" && x29 != "same" {
		r.Saved[0] = Unknown
		if n := signedNumber(strings.Trim(x29, "[CFA]")) + shift; strings.HasPrefix(x29, "[CFA") && n%8 == 0 && n <= 126*8 && n >= -127*8 {
			r.Saved[0] = int8(n / 8)
		}
	}
	return r
}

// savedOf returns what a rule has for a register whose place is v.
func savedOf(v, at string, relative bool) int8 {
	n := int64(0)
	switch {
	case v == "" || v == "same":
		return Same
	case !relative && strings.HasPrefix(v, "[DW_OP_plus_uconst 0x"):
		n, _ = strconv.ParseInt(strings.TrimPrefix(strings.TrimSuffix(v, "]"), "[DW_OP_plus_uconst 0x"), 16, 64)
	case !relative && strings.HasPrefix(v, "[CFA"):
		n = signedNumber(strings.Trim(v, "[CFA]"))
	case relative && strings.HasPrefix(v, at):
		v = strings.Trim(v, "[]")
		n = signedNumber(v[strings.IndexAny(v, "+-"):])
	default:
		return Unknown
	}
	if n%8 != 0 || n/8 > 126 || n/8 < -127 {
		return Unknown
	}
	return int8(n / 8)
}

// cfaOf returns the part of a rule that says how the CFA is found.
func (w *witness) cfaOf(cfa string) Rule {
	none := Rule{Kind: None, Register: Register(Expression)}
	if m := llvmAt.FindStringSubmatch(cfa); m != nil {
		return Rule{Kind: Reg, Register: registerNumbers[w.machine][m[1]], Offset: int32(signedNumber(m[2]))}
	}
	ops := strings.Split(strings.TrimSuffix(cfa, ", DW_OP_nop"), ", ")
	m := llvmBReg.FindStringSubmatch(ops[0])
	if m == nil {
		return none
	}
	r := Rule{Kind: Reg, Register: Register(signedNumber(m[1])), Offset: int32(signedNumber(m[2]))}
	switch rest := strings.Join(ops[1:], ", "); {
	case rest == "DW_OP_deref":
		r.Kind = Deref
	case strings.HasPrefix(rest, "DW_OP_deref, DW_OP_plus_uconst 0x") && len(ops) == 3:
		n, _ := strconv.ParseInt(strings.TrimPrefix(ops[2], "DW_OP_plus_uconst 0x"), 16, 64)
		if n%8 != 0 {
			return Rule{Kind: None, Register: Register(Unusual)}
		}
		r.Kind, r.Addend = Deref, int8(n/8)
	case r.Register == RSP && r.Offset == 8 && strings.HasPrefix(rest, "DW_OP_breg16 RIP+0, DW_OP_lit15, DW_OP_and, DW_OP_lit"):
		n, _ := strconv.Atoi(strings.TrimPrefix(ops[4], "DW_OP_lit"))
		r = Rule{Kind: PLT, Register: RSP, Offset: int32(n)}
	default:
		return none
	}
	return r
}

// systemFiles are files of this machine in which there is everything that compilers and
// people write.
func systemFiles(t *testing.T) []string {
	var found []string
	for _, pattern := range []string{
		"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
		"/usr/lib/x86_64-linux-gnu/libcrypto.so.3", "/usr/lib/x86_64-linux-gnu/libgcc_s.so.1", "/usr/lib/x86_64-linux-gnu/libm.so.6",
		"/usr/bin/python3", "/usr/bin/gdb", "/usr/bin/perf", "/usr/lib/x86_64-linux-gnu/libffi.so.8", "/usr/bin/bash",
	} {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, matches...)
	}
	if len(found) == 0 {
		t.Skip("none of the files is on this machine")
	}
	if testenv.Brief() {
		first := found[0] // which TestThreads looks at
		found = slices.DeleteFunc(found, func(name string) bool { return name != first && !isSmall(t, name) })
	}
	return found
}

// isSmall reports whether the race detector lets tests look at a whole file in seconds.
func isSmall(t *testing.T, name string) bool {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size() < 1<<20
}

func TestRowsAreLLVMs(t *testing.T) {
	for _, name := range systemFiles(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			w := newWitness(t, raw, BuildOptions{})
			w.compareLLVM(t, name, ".eh_frame")
			if w.rows == 0 {
				t.Error("there are no rows")
			}
			t.Logf("%d rows: %v", w.rows, w.seen)
		})
	}
}

var readelfFunction = regexp.MustCompile(`^[0-9a-f]+ [0-9a-f]+ [0-9a-f]+ FDE (?:cie=[0-9a-f]+ )?pc=([0-9a-f]+)\.\.([0-9a-f]+)`)

var readelfRegister = regexp.MustCompile(`\br[0-9]+ \(([a-z0-9]+)\)`)

// compareReadelf compares a file's table with the rows that readelf prints, which says
// of expressions only that they are some.
func (w *witness) compareReadelf(t *testing.T, name string) {
	out, err := exec.Command(testenv.Tool(t, "readelf"), "--debug-dump=frames-interp", name).Output()
	if len(out) == 0 { // it also fails because it does not find debug links
		t.Fatal(err)
	}
	var columns []string
	var row []string
	var at, end uint64
	flush := func(next uint64) {
		if row != nil && at < next {
			w.checkReadelf(t, at, next, columns, row)
		}
		row = nil
	}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(readelfRegister.ReplaceAllString(line, "$1"))
		switch m := readelfFunction.FindStringSubmatch(line); {
		case m != nil:
			flush(end)
			end, columns = number(t, m[2]), nil
			if number(t, m[1]) == 0 {
				end = 0
			}
		case strings.Contains(line, " CIE "):
			flush(end)
			end = 0
		case len(words) > 1 && words[0] == "LOC":
			columns = words[1:]
		case end != 0 && columns != nil && len(words) == len(columns)+1 && len(words[0]) == 16:
			next := number(t, words[0])
			flush(next)
			at, row = next, words[1:]
		}
	}
	flush(end)
}

// checkReadelf compares a rule with a row of readelf's.
func (w *witness) checkReadelf(t *testing.T, start, end uint64, columns, row []string) {
	for _, virt := range []uint64{start, end - 1} {
		off, ok := w.offset(virt)
		if !ok {
			return
		}
		r := w.table.Lookup(off)
		for i, name := range columns {
			if got := w.readelfCell(&r, name, row[i]); got != row[i] {
				t.Errorf("%#x: %s is %s, want %s: %+v", virt, name, got, row[i], r)
			}
		}
	}
	w.rows++
}

// readelfCell says with readelf's words what a rule has for a column, and repeats those
// that it says less precisely, or that the rule cannot say.
func (w *witness) readelfCell(r *Rule, column, want string) string {
	name := strings.ToUpper(column)
	switch {
	case r.Kind == Outermost && column == "ra":
		return "u"
	case r.Kind != Reg && r.Kind != Deref || want == "exp" || want == "vexp":
		return want
	case column == "CFA":
		for readelfName, n := range registerNumbers[w.machine] {
			if cell := fmt.Sprintf("%s%+d", strings.ToLower(readelfName), r.Offset); n == r.Register && r.Kind == Reg && cell == want {
				return cell
			}
		}
		return "another"
	case column == "ra" && r.RA == Same:
		return want
	case column == "ra":
		return fmt.Sprintf("c%+d", 8*int(r.RA))
	}
	for i, reg := range w.machine.Saved() {
		if n, ok := registerNumbers[w.machine][name]; ok && n == reg && r.Saved[i] == Same && want != "s" {
			return "u" // not known to be anywhere
		} else if ok && n == reg && r.Saved[i] != Unknown && want != "s" && r.Flags&(SavedAtRegister|SavedAtFramePointer) == 0 {
			return fmt.Sprintf("c%+d", 8*int(r.Saved[i]))
		}
	}
	return want
}

func TestRowsAreReadelfs(t *testing.T) {
	for _, name := range systemFiles(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			w := newWitness(t, raw, BuildOptions{})
			w.compareReadelf(t, name)
			if w.rows == 0 {
				t.Error("there are no rows")
			}
			t.Logf("%d rows", w.rows)
		})
	}
}
