package symbol

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/symtab"
	"hallmark/internal/testenv"
	"hallmark/reason"
)

// TestIndexOfThisKernel compares an index with what it was made from.
func TestIndexOfThisKernel(t *testing.T) {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	k, err := ReadKallsyms(f)
	if err != nil {
		t.Fatal(err)
	}
	testenv.Need(t, !k.Hidden(), "the addresses of kernel symbols: root, kernel.kptr_restrict of 0 or 1")
	x, err := k.Index(IndexOptions{Identity: "0123"})
	if err != nil {
		t.Fatal(err)
	}
	if x.Identity() != "0123" || !reflect.DeepEqual(x.Sources(), []Source{SourceKallsyms}) {
		t.Errorf("index of %q, from %v", x.Identity(), x.Sources())
	}
	size := uint64(k.Etext() - k.Text())
	r := random()
	for range 20000 {
		o := addr.Offset(r.Uint64N(size))
		got, want := x.LookupOffset(o), k.Lookup(k.Text()+addr.Abs(o))
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("offset %v is %+v in the index, and %+v in kallsyms", o, got, want)
		}
		if v := x.LookupVirt(addr.Virt(o)); !reflect.DeepEqual(v, want) {
			t.Fatalf("%v is %+v in the index, and %+v in kallsyms", o, v, want)
		}
	}
	if got := x.LookupOffset(addr.Offset(size)); got.Reason != reason.NotCode {
		t.Errorf("behind the code there is %+v", got)
	}
	t.Logf("%d bytes for %d ranges", len(x.Bytes()), k.Len())
}

// TestIndexOfKallsyms has two boots of one kernel, and a module.
func TestIndexOfKallsyms(t *testing.T) {
	var indexes []string
	for _, data := range []string{
		"ffffffff81000000 T _text\nffffffff81000000 T first\nffffffff81000100 t second\nffffffff81000200 T _etext\n" +
			"ffffffffc0000000 t inside\t[a_module]\nffffffffc0002000 t bpf_prog_0a1b2c3d4e5f6071_f\t[bpf]\n",
		"ffffffffc0014000 t inside\t[a_module]\nffffffffa7000000 T _text\nffffffffa7000000 T first\n" +
			"ffffffffa7000100 t second\nffffffffa7000200 T _etext\nffffffffa7000300 t behind\n",
	} {
		k, err := ReadKallsyms(strings.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		x, err := k.Index(IndexOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for o, want := range map[addr.Virt]string{0: "first", 0xff: "first", 0x100: "second", 0x1ff: "second", 0x200: "", 0x300: ""} {
			if got := linkage(x, o); got != want {
				t.Errorf("%v is %q, want %q", o, got, want)
			}
		}
		indexes = append(indexes, string(x.Bytes()))
	}
	if indexes[0] != indexes[1] {
		t.Error("the index depends on where the kernel lies")
	}
}

func TestIndexOfModule(t *testing.T) {
	k, err := ReadKallsyms(strings.NewReader(
		"ffffffffc0000010 t inside\t[a_module]\nffffffffc0000040 d table\t[a_module]\nffffffffc0000080 t last\t[a_module]\nffffffffc0000090 t other\t[another]\n"))
	if err != nil {
		t.Fatal(err)
	}
	x, err := k.IndexModule("a_module", 0xffffffffc0000000, 0xffffffffc0001000, IndexOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for o, want := range map[addr.Offset]string{0: "", 0x10: "inside", 0x3f: "inside", 0x40: "", 0x80: "last", 0x8f: "last", 0x90: ""} {
		got := x.LookupOffset(o)
		if name := linkage(x, addr.Virt(o)); name != want || len(got.Frames) == 1 != (want != "") {
			t.Errorf("offset %v is %+v, want %q", o, got, want)
		}
	}
}

// TestNoIndexOfKallsyms has kernels whose code cannot be found.
func TestNoIndexOfKallsyms(t *testing.T) {
	for _, data := range []string{
		"",
		"0000000000000000 T _text\n0000000000000000 T _etext\n",
		"ffffffff81000000 T first\n",
		"ffffffff81000000 T _text\nffffffff80000000 T _etext\n",
		"0000000000001000 T _text\nffffffff80000000 T _etext\n",
	} {
		k, err := ReadKallsyms(strings.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		var damaged *FormatError
		if x, err := k.Index(IndexOptions{}); !errors.As(err, &damaged) {
			t.Errorf("%q: %v, %v", data, x, err)
		}
	}
	k := new(Kallsyms)
	if x, err := k.IndexModule("a_module", 2, 1, IndexOptions{}); err == nil {
		t.Errorf("an empty module has an index: %v", x)
	}
}

// compareWithKallsyms compares the answers for an address of the kernel image.
func compareWithKallsyms(t *testing.T, x *Index, k *Kallsyms, a addr.Abs) {
	t.Helper()
	if part, ok := k.Module(a); !ok || part != "" || a < k.Text() || a >= k.Etext() {
		return
	}
	want := k.Lookup(a)
	if name := want.Frames[0].Linkage; symtab.Unversioned(name) != name {
		return // in an ELF file it would have a version
	}
	if got := x.LookupOffset(addr.Offset(a - k.Text())); !reflect.DeepEqual(got, want) {
		t.Errorf("%v is %+v in the index, and %+v in kallsyms", a, got, want)
	}
}
