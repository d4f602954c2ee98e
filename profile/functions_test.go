package profile

import (
	"math"
	"testing"

	"hallmark/internal/proftest"
)

func TestNameUnknown(t *testing.T) {
	p := proftest.Mixed()
	NameUnknown(p)
	if err := p.CheckValid(); err != nil {
		t.Fatal(err)
	}
	want := map[uint64]string{
		0x401000:           "main",
		0x7f0000002abc:     "[libz.so.1]",
		0xffffffff81002000: "[kernel]",
		0xdead0000:         "[not-mapped]",
		0x123:              "[file-gone] old",
	}
	for _, l := range p.Location {
		if w := want[l.Address]; w != "" && l.Line[0].Function.Name != w {
			t.Errorf("%#x is %q, want %q", l.Address, l.Line[0].Function.Name, w)
		}
	}
}

// TestFunctionIDsAreFree has functions numbered as nobody does.
func TestFunctionIDsAreFree(t *testing.T) {
	p := proftest.Mixed()
	p.Function[0].ID, p.Function[1].ID, p.Function[2].ID = math.MaxUint64, 7, 1
	Symbolize(p, &fakeSymbols{names: map[string]string{proftest.LibID: "lib", proftest.KernelID: "kernel"}})
	NameUnknown(p)
	if err := p.CheckValid(); err != nil {
		t.Error(err)
	}
}
