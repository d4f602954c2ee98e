package profile

import (
	"context"
	"math"
	"slices"
	"testing"

	"hallmark/addr"
	"hallmark/internal/proftest"
	"hallmark/symbol"
)

func TestNameUnknown(t *testing.T) {
	p := proftest.Mixed()
	NameUnknown(p)
	if err := p.CheckValid(); err != nil {
		t.Fatal(err)
	}
	want := map[uint64]string{
		0x401000:           "main",
		0x7f0000002abc:     "libz.so.1 [unknown]",
		0xffffffff81002000: "[kernel] [unknown]",
		0xdead0000:         "[not-mapped]",
		0x123:              "[file-gone] old",
	}
	for _, l := range p.Location {
		if w := want[l.Address]; w != "" && l.Line[0].Function.Name != w {
			t.Errorf("%#x is %q, want %q", l.Address, l.Line[0].Function.Name, w)
		}
	}
}

// TestNameUnknownKeepsStarts wants functions whose start is known to keep that name, none
// of them to count as symbolized, and symbols to replace both.
func TestNameUnknownKeepsStarts(t *testing.T) {
	m := proftest.New()
	lib := m.Mapping("/lib/libz.so.1", proftest.LibID, 0x400000)
	a, b := m.Location(lib, 0x401000), m.Location(lib, 0x402000)
	m.Sample("", 0, 1, a, b)
	NameStarts(t.Context(), m.Profile, oneStart{})
	NameUnknown(m.Profile)
	if first, second := a.Line[0].Function, b.Line[0].Function; first.Name != "libz.so.1+0x1000" || second.Name != "libz.so.1 [unknown]" ||
		!IsUnnamed(first) || !IsUnnamed(second) {
		t.Errorf("%v and %v", first, second)
	}
	if n := MeasureCoverage(m.Profile, nil).Symbolized; n != 0 {
		t.Errorf("%d frames count as symbolized", n)
	}
	_, _ = Symbolize(t.Context(), m.Profile, &fakeSymbols{names: map[string]string{proftest.LibID: "lib"}})
	if !symbolized(a) || !symbolized(b) || IsUnnamed(a.Line[0].Function) || IsUnnamed(b.Line[0].Function) {
		t.Errorf("symbols left %v and %v", a.Line, b.Line)
	}
}

// oneStart knows the first of the functions that it is asked for.
type oneStart struct{}

func (oneStart) Starts(_ context.Context, _ *Binary, offsets []addr.Offset) []addr.Offset {
	starts := slices.Repeat([]addr.Offset{symbol.NoStart}, len(offsets))
	starts[0] = 0x1000
	return starts
}

// TestFunctionIDsAreFree has functions numbered as nobody does.
func TestFunctionIDsAreFree(t *testing.T) {
	p := proftest.Mixed()
	p.Function[0].ID, p.Function[1].ID, p.Function[2].ID = math.MaxUint64, 7, 1
	_, _ = Symbolize(t.Context(), p, &fakeSymbols{names: map[string]string{proftest.LibID: "lib", proftest.KernelID: "kernel"}})
	NameUnknown(p)
	if err := p.CheckValid(); err != nil {
		t.Error(err)
	}
}
