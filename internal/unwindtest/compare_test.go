package unwindtest

import (
	"slices"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/unwind"
)

func TestParseScript(t *testing.T) {
	told, err := ParseScript(strings.NewReader("16584  1361.598131491: \n" +
		"\tffffffff81000000 do_syscall_64 ([kernel.kallsyms])\n" +
		"\t            1286 leaf (int) (/opt/a_(b)/program)\n" +
		"\tffff [unknown] ([unknown])\n" +
		"\n" +
		"   -1  1361.000000001: \n"))
	if err != nil {
		t.Fatal(err)
	}
	frames := []Site{{0x1286, "/opt/a_(b)/program", "leaf (int)"}, {0xffff, "", "[unknown]"}}
	keys := []Key{{16584, 1361_598131491}, {^uint32(0), 1361_000000001}}
	if len(told) != 2 || told[0].Key != keys[0] || told[1].Key != keys[1] || len(told[1].Frames) != 0 || !slices.Equal(told[0].Frames, frames) {
		t.Errorf("got %v, want %v with %v", told, keys, frames)
	}
	for _, bad := range []string{"\t12 x (y)\n", "12 34: \n", "12 34.000000001: \n\tx y (z)\n"} {
		if _, err := ParseScript(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestMaps(t *testing.T) {
	m := (&Maps{}).with(Map{0x1000, 0x5000, 0, "/a", true}).with(Map{0x2000, 0x3000, 0x9000, "/b", false}).with(Map{0x8000, 0x9000, 0, "", true})
	want := []Map{{0x1000, 0x2000, 0, "/a", true}, {0x2000, 0x3000, 0x9000, "/b", false}, {0x3000, 0x5000, 0x2000, "/a", true}, {0x8000, 0x9000, 0, "", true}}
	if !slices.Equal(m.list, want) {
		t.Errorf("got %v", m.list)
	}
	for a, code := range map[addr.Abs]bool{0xfff: false, 0x1000: true, 0x2fff: false, 0x3000: true, 0x4fff: true, 0x5000: false, 0x8000: true, 0x9000: false} {
		if m.Code(a) != code {
			t.Errorf("code at %v: %v", a, !code)
		}
	}
}

// stackOf returns a case of frames at these addresses of a file at 0x10000, found by the methods.
func stackOf(methods []unwind.Method, at ...addr.Abs) Case {
	maps := (&Maps{}).with(Map{0x10000, 0x20000, 0x1000, "/bin/x", true}).with(Map{0x30000, 0x40000, 0, "//anon", false})
	c := Case{Sample: &Sample{Maps: maps}}
	for i, a := range at {
		f := Frame{Frame: unwind.Frame{At: a, Method: methods[i]}, Map: maps.At(a)}
		f.Offset = addr.Offset(a - 0x10000 + 0x1000)
		c.Ours.Frames = append(c.Ours.Frames, f)
	}
	return c
}

func TestVerdicts(t *testing.T) {
	calls := []unwind.Method{unwind.ByRegs, unwind.ByCFI, unwind.ByCFI}
	signal := []unwind.Method{unwind.ByRegs, unwind.ByCFI, unwind.BySignal}
	ours := []addr.Abs{0x10100, 0x10200, 0x10300}
	for _, test := range []struct {
		name    string
		methods []unwind.Method
		theirs  []uint64
		want    Verdict
	}{
		{"offsets", calls, []uint64{0x1100, 0x1200, 0x1300}, Verdict{3, 3, 3}},
		{"addresses", calls, []uint64{0x10100, 0x10200, 0x10300}, Verdict{3, 3, 3}},
		{"one byte on", calls, []uint64{0x1100, 0x1201, 0x1300}, Verdict{1, 3, 3}},
		{"one byte on at a signal", signal, []uint64{0x1100, 0x1201, 0x12ff}, Verdict{3, 3, 3}},
		{"two bytes on at a signal", signal, []uint64{0x1100, 0x1202, 0x12ff}, Verdict{1, 3, 3}},
		{"theirs is shorter", calls, []uint64{0x1100, 0x1200}, Verdict{2, 3, 2}},
		{"theirs is longer", calls, []uint64{0x1100, 0x1200, 0x1300, 0x1400}, Verdict{3, 4, 4}},
		{"theirs leaves the code", calls, []uint64{0x1100, 0x1200, 0x1300, 0x30010, 0x1400}, Verdict{3, 3, 3}},
		{"another frame", calls, []uint64{0x1100, 0x1240, 0x1300}, Verdict{1, 3, 3}},
	} {
		c := stackOf(test.methods, ours...)
		for _, a := range test.theirs {
			c.Perf = append(c.Perf, Site{Address: a, File: "/bin/x"})
		}
		if got := c.WithPerf(); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}
