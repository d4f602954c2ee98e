package kernelcode

import (
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/perfdata"
	"hallmark/symbol"
)

// TestLinesOfPrograms names code of BPF programs: one that is loaded, one that is gone
// and one that came while recording; and code that is of none.
func TestLinesOfPrograms(t *testing.T) {
	symbols, err := symbol.ReadKallsyms(strings.NewReader("ffffffff81000000 T _text\nffffffff81000200 T _etext\n" +
		"ffffffffc0000000 t bpf_prog_1_loaded\t[bpf]\nffffffffc0001000 t bpf_prog_2_new\t[bpf]\nffffffffc0002000 t bpf_prog_3_other\t[bpf]\n" +
		"ffffffffc0003000 t inside\t[a_module]\n"))
	if err != nil {
		t.Fatal(err)
	}
	k := &Kernel{symbols: symbols, programs: loaded{0xffffffffc0000000: "bpf_prog_1_loaded", 0xffffffffc0004000: "bpf_prog_5_not_listed"}}
	for _, r := range []perfdata.Ksymbol{
		{Addr: 0xffffffffc0001000, Size: 0x100, Name: "bpf_prog_2_new"},
		{Addr: 0xffffffffc0002000, Size: 0x100, Name: "bpf_prog_4_gone"},
	} {
		k.Learn(&r)
	}
	for a, want := range map[addr.Abs]symbol.Frame{
		0xffffffffc0000010: {Linkage: "bpf_prog_1_loaded", File: "./prog.c", Line: 0x10},
		0xffffffffc0001020: {Linkage: "bpf_prog_2_new", File: "./prog.c", Line: 0x20},
		0xffffffffc0002020: {Linkage: "bpf_prog_4_gone"},
		0xffffffffc0003020: {Linkage: "inside"},
		0xffffffffc0004030: {Linkage: "bpf_prog_5_not_listed", File: "./prog.c", Line: 0x30},
		0xffffffff81000020: {Linkage: "_text"},
	} {
		want.Func = want.Linkage
		if got := k.name(a); len(got) != 1 || got[0] != want {
			t.Errorf("%v is %+v, want %+v", a, got, want)
		}
	}
}

// loaded are the names of programs by the addresses of their pages.
type loaded map[addr.Abs]string

func (l loaded) Name(a addr.Abs) (string, bool) {
	name, ok := l[a&^0xfff]
	return name, ok
}

func (l loaded) Line(a addr.Abs) (string, int, bool) { return "./prog.c", int(a & 0xff), true }
