package unwind

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/elffile"
	"hallmark/internal/testenv"
)

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func build(t testing.TB, raw []byte, o BuildOptions) *Table {
	t.Helper()
	o.Warn = func(err error) { t.Errorf("damage: %v", err) }
	table, err := Build(bytes.NewReader(raw), o)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// vdso returns the image that the kernel maps into every process.
func vdso(t testing.TB) []byte {
	for line := range strings.Lines(string(readFile(t, "/proc/self/maps"))) {
		var start, end uint64
		if !strings.HasSuffix(line, "[vdso]\n") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x", &start, &end); err != nil {
			t.Fatal(err)
		}
		mem, err := os.Open("/proc/self/mem")
		if err != nil {
			t.Fatal(err)
		}
		defer mem.Close()
		raw := make([]byte, end-start)
		if _, err := mem.ReadAt(raw, int64(start)); err != nil {
			t.Fatal(err)
		}
		return raw
	}
	t.Skip("this process has no vdso")
	return nil
}

func TestVDSO(t *testing.T) {
	raw := vdso(t)
	name := filepath.Join(t.TempDir(), "vdso")
	if err := os.WriteFile(name, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWitness(t, raw, BuildOptions{})
	w.compareLLVM(t, name, ".eh_frame")
	if w.rows == 0 {
		t.Error("there are no rows")
	}
}

// TestWithoutSections takes the section headers away: .eh_frame says the same.
func TestWithoutSections(t *testing.T) {
	images := [][]byte{
		vdso(t),
		readFile(t, compile(t, "gcc -shared -fPIC -O2 $SRC/forms.c -o $OUT")),
		readFile(t, compile(t, "gcc -shared -fPIC -O2 $SRC/forms.c $SRC/forms.S -o $OUT")),
	}
	for _, raw := range images {
		want := build(t, raw, BuildOptions{})
		bare := bytes.Clone(raw)
		clear(bare[40:48]) // e_shoff
		got := build(t, bare, BuildOptions{})
		rows := 0
		for row := range want.All() {
			if row.Rule.Source() != EHFrame {
				continue
			}
			for _, off := range []addr.Offset{row.Start, row.End - 1} {
				if r := got.Lookup(off); r != row.Rule {
					t.Errorf("%v: %+v, with section headers %+v", off, r, row.Rule)
				}
			}
			rows++
		}
		if rows == 0 {
			t.Error("there are no rows")
		}
	}
}

// TestSigreturn asks for the place behind the system call of the C library's restorer of
// signals, where execution stands during it.
func TestSigreturn(t *testing.T) {
	const name = "/lib/x86_64-linux-gnu/libc.so.6"
	if _, err := os.Stat(name); err != nil {
		t.Skip(err)
	}
	raw := readFile(t, name)
	table := build(t, raw, BuildOptions{})
	restorer := []byte{0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05} // mov $__NR_rt_sigreturn, %rax; syscall
	at := bytes.Index(raw, restorer)
	if at < 0 {
		t.Skip("no restorer in " + name)
	}
	end := addr.Offset(at + len(restorer))
	for off := addr.Offset(at) - 1; off <= end; off++ {
		if r := table.Lookup(off); r.Kind != Signal {
			t.Errorf("%v: %+v", off, r)
		}
	}
	if r := table.Lookup(end + 1); r.Kind == Signal {
		t.Errorf("%v: %+v", end+1, r)
	}
}

// TestThreads makes tables with different numbers of threads, of a section that is
// divided into many chunks.
func TestThreads(t *testing.T) {
	raw := readFile(t, systemFiles(t)[0])
	want := build(t, raw, BuildOptions{Threads: 1})
	for threads := range 9 {
		for range 3 {
			if got := build(t, raw, BuildOptions{Threads: threads}); !bytes.Equal(got.Bytes(), want.Bytes()) {
				t.Fatalf("another table with %d threads", threads)
			}
		}
	}
}

func TestWithoutCFI(t *testing.T) {
	raw := readFile(t, compile(t, "gcc -shared -fPIC -O2 -fno-asynchronous-unwind-tables -nostdlib -Wl,--no-ld-generated-unwind-info $SRC/empty.c -o $OUT"))
	table := build(t, raw, BuildOptions{})
	if table.Rows() != 0 || table.granules != 0 {
		t.Errorf("%d rows in %d granules", table.Rows(), table.granules)
	}
	if r := table.Lookup(0x1000); r != (Rule{}) {
		t.Errorf("a rule: %+v", r)
	}
}

func TestOtherFiles(t *testing.T) {
	for _, c := range []struct {
		name string
		raw  []byte
		want error
	}{
		{"empty", nil, ErrNotELF},
		{"text", []byte("#!/bin/sh\n" + strings.Repeat("#", 100)), ErrNotELF},
		{"relocatable", readFile(t, compile(t, "gcc -c $SRC/forms.c -o $OUT")), ErrUnsupported},
		{"riscv64", readFile(t, compile(t, "clang-19 --target=riscv64-linux-gnu -c $SRC/empty.c -o $OUT.o && ld.lld-19 -shared $OUT.o -o $OUT")), ErrUnsupported},
		{"32 bits", readFile(t, compile(t, "clang-19 --target=i686-linux-gnu -c $SRC/empty.c -o $OUT.o && ld.lld-19 -shared $OUT.o -o $OUT")), ErrUnsupported},
		{"big-endian", readFile(t, compile(t, "clang-19 --target=aarch64_be-linux-gnu -c $SRC/empty.c -o $OUT.o && ld.lld-19 -shared $OUT.o -o $OUT")), ErrUnsupported},
	} {
		if _, err := Build(bytes.NewReader(c.raw), BuildOptions{}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// checkTable looks at what every table must be, and returns how many bytes of code have
// rows of each reason to say nothing, and how many have a rule.
func checkTable(t testing.TB, name string, table *Table) (why [4]uint64, known uint64) {
	t.Helper()
	last, rows := Row{}, 0
	for row := range table.All() {
		rows++
		if rows > 1 && (row.Start != last.End || row.Rule == last.Rule) || row.Start >= row.End {
			t.Errorf("%s: row %+v follows %+v", name, row, last)
		}
		last = row
		for _, off := range []addr.Offset{row.Start, row.End - 1} {
			if got := table.Lookup(off); got != row.Rule {
				t.Errorf("%s: %v: %+v, want %+v", name, off, got, row.Rule)
			}
		}
		checkRule(t, name, table.Machine(), &row)
		if row.Rule.Kind == None {
			why[row.Rule.Silence()] += uint64(row.End - row.Start)
		} else {
			known += uint64(row.End - row.Start)
		}
	}
	if rows != table.Rows() {
		t.Errorf("%s: %d rows of %d", name, rows, table.Rows())
	}
	if r := table.Lookup(last.End); table.rows > 0 && r != (Rule{}) {
		t.Errorf("%s: behind the end: %+v", name, r)
	}
	return why, known
}

func checkRule(t testing.TB, name string, m Machine, row *Row) {
	t.Helper()
	r := &row.Rule
	switch {
	case r.Kind > Goroutine, r.Kind == None && r.Silence() > Damaged, r.Kind == FP && r.Source() != Known:
	case r.Kind != None && int(r.Register) >= m.registers():
	case r.Kind != None && r.Source() == NoSource:
	case r.Kind == Goroutine && (r.Source() != Pclntab || m != X86_64 || slices.Min(r.Saved[:4]) < 0 || slices.Max(r.Saved[:4]) >= goroutineWords || r.Offset < 0):
	case (r.Kind == Reg || r.Kind == Deref || r.Kind == PLT) && (r.RA == Unknown || r.RA == Same && int(r.Link) >= m.registers()):
	default:
		return
	}
	t.Errorf("%s: %v: no rule can be %+v", name, row.Start, *r)
}

// TestSystem makes the tables of ELF files of this machine's packages, of every 16th or of
// all, and under the race detector of every 256th, and counts what they do not say.
func TestSystem(t *testing.T) {
	if testenv.Brief() {
		return // one after the other
	}
	if testenv.Emulated() {
		t.Skip("looks at files of /usr")
	}
	var why [4]uint64
	var known uint64
	var files, rows, size int
	for i, name := range testenv.ELFFiles(t, "/usr/lib", "/usr/bin") {
		if i%16 != 0 && !testenv.Thorough() || i%256 != 0 && testenv.Brief() {
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		table, err := Build(f, BuildOptions{Warn: func(err error) { t.Logf("%s: %v", name, err) }})
		f.Close()
		if errors.Is(err, ErrUnsupported) {
			continue
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		w, k := checkTable(t, name, table)
		for i := range w {
			why[i] += w[i]
		}
		known += k
		files, rows, size = files+1, rows+table.Rows(), size+len(table.Bytes())
	}
	if files == 0 {
		t.Skip("there are no files")
	}
	t.Logf("%d files, %d rows, %d bytes (%.2f a row); bytes of code with a rule: %d, in a gap: %d, expression: %d, unusual: %d, damaged: %d",
		files, rows, size, float64(size)/float64(rows), known, why[Gap], why[Expression], why[Unusual], why[Damaged])
	if not := why[Expression] + why[Unusual] + why[Damaged]; not*1000 > known {
		t.Errorf("%d bytes of code have call frame information that rules cannot say, %d have a rule", not, known)
	}
}

// TestRulesLimit has more distinct rules than a table can have: the rarest are left out.
func TestRulesLimit(t *testing.T) {
	b := newBuilder(&elfFile{Image: &elffile.Image{Reader: bytes.NewReader(nil)}, machine: X86_64, text: []segment{{size: 1 << 30}}}, BuildOptions{})
	p := b.layer(EHFrame).part()
	const n = 70000
	for i := range n {
		at := addr.Offset(16 * i)
		p.add(at, at+8, Rule{Kind: Reg, Register: RSP, Offset: int32(8 * i), RA: -1})
		if i%10 == 0 {
			p.add(at+8, at+16, Rule{Kind: Reg, Register: RSP, Offset: int32(8 * i), RA: -2})
			p.add(n*16+at, n*16+at+8, Rule{Kind: Reg, Register: RSP, Offset: int32(8 * i), RA: -2})
		}
	}
	table, err := b.table()
	if err != nil {
		t.Fatal(err)
	}
	if table.Rules() != maxRules {
		t.Errorf("%d rules", table.Rules())
	}
	lost := 0
	for i := range n {
		switch r := table.Lookup(addr.Offset(16 * i)); {
		case r == Rule{Kind: None, Register: Register(Unusual)}:
			lost++
		case r.Offset != int32(8*i) || r.RA != -1:
			t.Fatalf("%d: %+v", i, r)
		}
		if r := table.Lookup(addr.Offset(16*i + 8)); i%10 == 0 && (r.Offset != int32(8*i) || r.RA != -2) {
			t.Fatalf("%d: a rule that is used twice is left out: %+v", i, r)
		}
	}
	if want := 1 + n + n/10 - (maxRules - 1); lost != want {
		t.Errorf("%d rules are lost, want %d", lost, want)
	}
	checkTable(t, "built", table)
}

// damaged returns an ELF file's bytes with one number of 8 bytes changed.
func damaged(raw []byte, at int, n uint64) []byte {
	raw = bytes.Clone(raw)
	binary.LittleEndian.PutUint64(raw[at:], n)
	return raw
}

// TestHeadersLie changes numbers of the ELF header.
func TestHeadersLie(t *testing.T) {
	raw := readFile(t, compile(t, "gcc -shared -fPIC -O2 $SRC/forms.c -o $OUT"))
	for _, at := range []int{32, 40, 54, 56} {
		for _, n := range []uint64{0, 1, 1 << 20, 1 << 40, 1<<63 - 1, 1 << 63, ^uint64(0)} {
			table, err := Build(bytes.NewReader(damaged(raw, at, n)), BuildOptions{})
			if err == nil {
				checkTable(t, fmt.Sprintf("%d at %d", n, at), table)
			}
		}
	}
}
