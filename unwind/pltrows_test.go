package unwind

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/testenv"
)

// onlySource builds a file's table from some sources alone.
func onlySource(t *testing.T, raw []byte, from ...func(*builder) error) *Table {
	t.Helper()
	f, err := openELF(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	b := newBuilder(f, BuildOptions{Warn: func(err error) { t.Error(err) }})
	for _, source := range from {
		if err := source(b); err != nil {
			t.Fatal(err)
		}
	}
	table, err := b.table()
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// linkPLT links a program that calls C by each kind of entry.
func linkPLT(t *testing.T, flags ...string) string {
	t.Helper()
	gcc := testenv.Tool(t, "gcc")
	dir := t.TempDir()
	source, name := filepath.Join(dir, "plt.c"), filepath.Join(dir, "plt")
	if err := os.WriteFile(source, []byte(`
		#include <stdio.h>
		#include <stdlib.h>
		void (*kept)(const void *, int, int);
		int main(int n, char **v) { int (*p)(const char *) = puts; free(malloc(n)); return p(v[0]) + puts("") + atoi(v[0]); }
	`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, linker := range []string{"ld.lld", "ld.lld-19"} {
		if path, err := exec.LookPath(linker); err == nil { // gcc knows it by the first name only
			flags = append([]string{"-B" + dir}, flags...)
			if err := os.Symlink(path, filepath.Join(dir, "ld.lld")); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if out, err := exec.Command(gcc, append(flags, "-o", name, source)...).CombinedOutput(); err != nil {
		t.Skipf("%v: %s", err, out)
	}
	return name
}

// TestPLTRowsAreObjdumps follows objdump's disassembly of procedure linkage tables of
// linkers, and counts what is pushed.
func TestPLTRowsAreObjdumps(t *testing.T) {
	for _, flags := range [][]string{
		{"-fuse-ld=bfd", "-no-pie", "-Wl,-z,lazy"},
		{"-fuse-ld=bfd", "-pie", "-Wl,-z,lazy", "-Wl,-z,ibtplt"},
		{"-fuse-ld=bfd", "-pie", "-Wl,-z,now"},
		{"-fuse-ld=gold", "-pie", "-Wl,-z,lazy"},
		{"-fuse-ld=lld", "-no-pie", "-Wl,-z,lazy"},
		{"-fuse-ld=lld", "-pie", "-Wl,-z,now"},
		{"-fuse-ld=mold", "-pie", "-Wl,-z,lazy"},
		{"-fuse-ld=lld", "-pie", "-Wl,-z,force-ibt", "-fcf-protection", "-Wl,-z,lazy"},
	} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			comparePLT(t, linkPLT(t, flags...))
		})
	}
}

func comparePLT(t *testing.T, name string) {
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	w := newWitness(t, raw, BuildOptions{})
	w.table = onlySource(t, raw, (*builder).plt)
	out, err := exec.Command(testenv.Tool(t, "objdump"), "-d", "-j.plt", "-j.plt.sec", "-j.plt.got", "-j.iplt", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	depth := int32(8)
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		at, code, ok := strings.Cut(strings.TrimSpace(lines.Text()), ":\t")
		_, mnemonic, ok2 := strings.Cut(code, "\t")
		virt, err := strconv.ParseUint(at, 16, 64)
		if !ok || !ok2 || err != nil {
			continue
		}
		if virt%16 == 0 {
			depth = 8
		}
		if strings.Contains(mnemonic, "nop") || strings.HasPrefix(mnemonic, "xchg") || strings.HasPrefix(mnemonic, "int3") {
			continue
		}
		first := depth == 8 && strings.HasPrefix(mnemonic, "push") && strings.Contains(mnemonic, "(%rip)")
		if first {
			depth = 16 // the entry that jumped here has pushed
		}
		off, _ := w.offset(virt)
		r := w.table.Lookup(off)
		if got := pltDepth(&r, virt); got != depth {
			t.Errorf("%#x: %d bytes, want %d: %+v: %s", virt, got, depth, r, mnemonic)
		}
		w.rows++
		if strings.HasPrefix(mnemonic, "push") {
			depth += 8
		}
	}
	if w.rows < 4 {
		t.Errorf("only %d instructions", w.rows)
	}
	sameAsCFI(t, w, raw)
}

// pltDepth returns how far the CFA is from the stack pointer.
func pltDepth(r *Rule, virt uint64) int32 {
	switch {
	case r.Kind == Reg && r.Register == RSP:
		return r.Offset
	case r.Kind == PLT && virt&15 >= uint64(r.Offset):
		return 16
	case r.Kind == PLT:
		return 8
	}
	return 0
}

// sameAsCFI compares with the call frame information of procedure linkage tables, where
// the linker wrote it.
func sameAsCFI(t *testing.T, w *witness, raw []byte) {
	cfi, compared := onlySource(t, raw, (*builder).ehFrame), 0
	for _, s := range w.file.Sections {
		if !strings.HasPrefix(s.Name, ".plt") {
			continue
		}
		for virt := s.Addr; virt < s.Addr+s.Size; virt++ {
			off, _ := w.offset(virt)
			want, got := cfi.Lookup(off), w.table.Lookup(addr.Offset(off))
			if want.Kind == None {
				continue
			}
			compared++
			if pltDepth(&got, virt) != pltDepth(&want, virt) && !isPadding(raw[off]) {
				t.Errorf("%#x in %s: %+v, and %+v by .eh_frame", virt, s.Name, got, want)
			}
		}
	}
	t.Logf("%d bytes have call frame information", compared)
}

func isPadding(b byte) bool { return b == 0x90 || b == 0xcc || b == 0 }
