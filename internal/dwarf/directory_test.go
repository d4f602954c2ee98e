package dwarf

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestDirectoryAt compares what a Directory finds with a look at every span.
func TestDirectoryAt(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, spans := range []int{0, 1, 2, 3, 100, 1000} {
		dir := new(Directory)
		for unit := range spans {
			low := r.Uint64N(1000)
			dir.add([]Range{{low, low + r.Uint64N(10)}, {low + 5, low + 5 + r.Uint64N(3)}}, unit)
		}
		all := slices.Clone(dir.spans)
		dir.finish()
		for v := range uint64(1020) {
			var want []int32
			for _, s := range all {
				if s.Low <= v && v < s.High {
					want = append(want, s.unit)
				}
			}
			want = slices.Compact(want)
			if got := dir.At(v, nil); !slices.Equal(got, want) {
				t.Fatalf("%d is in units %d of %d, want %d", v, got, spans, want)
			}
		}
	}
}

// TestDirectoryOfMany has more units that claim the same code than are looked at: the
// first of them count.
func TestDirectoryOfMany(t *testing.T) {
	dir := new(Directory)
	for unit := range 4 * maxClaims {
		dir.add([]Range{{0x1000, 0x1000 + uint64(1+unit%7)}}, unit)
	}
	dir.finish()
	for i, unit := range dir.At(0x1000, nil) {
		if int(unit) != i {
			t.Fatalf("claim %d is of unit %d", i, unit)
		}
	}
}

// TestClaimsOfUnits has a unit that says where its code begins, and one behind it with
// ranges that are relative to nothing.
func TestClaimsOfUnits(t *testing.T) {
	var abbrev, entry, info, ranges bytesOf
	abbrev.put(uint8(1), leb(tagCompileUnit), uint8(0), leb(atLowPC), leb(FormAddr), leb(atHighPC), leb(FormData4), uint16(0))
	abbrev.put(uint8(2), leb(tagCompileUnit), uint8(0), leb(atRanges), leb(FormSecOffset), uint16(0), uint8(0))
	for _, e := range []*bytesOf{entry.put(uint8(1), uint64(0x1100), uint32(0x10)), new(bytesOf).put(uint8(2), uint32(0))} {
		info.put(uint32(headerSize-4+len(*e)), uint16(4), uint32(0), uint8(8), *e)
	}
	ranges.put(uint64(0x1000), uint64(0x1010), uint64(0), uint64(0))
	d := &Data{AddrSize: 8, Abbrev: abbrev, Info: info, Ranges: ranges, Text: []Range{{0x1000, 0x2000}}}
	if _, err := d.Units(); err != nil {
		t.Fatal(err)
	}
	dir, err := d.NewReader().Directory()
	if err != nil {
		t.Fatal(err)
	}
	for v, want := range map[uint64][]int32{0x1000: {1}, 0x1010: nil, 0x1100: {0}, 0x1110: nil, 0x2100: nil} {
		if got := dir.At(v, nil); !slices.Equal(got, want) {
			t.Errorf("%#x is in units %d, want %d", v, got, want)
		}
	}
}

// TestSharedTablesAreBounded has many units that refer to one long table each time: to its last
// abbreviation, or to damage at its end.
func TestSharedTablesAreBounded(t *testing.T) {
	const units, long = 2000, 20_000
	unitOf := func(abbrev *bytesOf, attributes ...any) *Data {
		entry := new(bytesOf).put(attributes...)
		unit := new(bytesOf).put(uint32(headerSize-4+len(*entry)), uint16(4), uint32(0), uint8(8), *entry)
		return &Data{AddrSize: 8, Abbrev: *abbrev, Info: bytes.Repeat(*unit, units), Text: []Range{{0x1000, 0x2000}}}
	}
	passed := bytes.Repeat(*new(bytesOf).put(uint8(2), leb(tagSubprogram), uint8(0), uint16(0)), long)
	own := func(code uint8, attrs ...leb) *bytesOf {
		b := new(bytesOf).put(code, leb(tagCompileUnit), uint8(0))
		for _, a := range attrs {
			b.put(a)
		}
		return b.put(uint16(0))
	}
	tests := map[string]*Data{
		"abbreviations passed over": unitOf(new(bytesOf).put(bytesOf(passed), *own(1, atLowPC, FormAddr, atHighPC, FormData4), uint8(0)),
			uint8(1), uint64(0x1100), uint32(0x10)),
		"abbreviations without an end": unitOf(own(1).put(bytesOf(passed)), uint8(1)),
		"ranges without an end":        unitOf(own(1, atRanges, FormSecOffset).put(uint8(0)), uint8(1), uint32(0)),
		"a list of files without an end": unitOf(own(1, atStmtList, FormSecOffset).put(uint8(0)),
			uint8(1), uint32(0)),
	}
	tests["ranges without an end"].Ranges = bytes.Repeat(*new(bytesOf).put(uint64(0x1000), uint64(0x1010)), long)
	files := bytes.Repeat(*new(bytesOf).put("a", uint8(0), uint8(0), uint8(0)), long)
	header := new(bytesOf).put(uint8(1), uint8(1), uint8(1), uint8(0xfb), uint8(14), uint8(1), uint8(0), bytesOf(files))
	program := new(bytesOf).put(uint16(4), uint32(len(*header)), *header)
	tests["a list of files without an end"].Line = *new(bytesOf).put(uint32(len(*program)), *program)
	for name, d := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := d.Units(); err != nil {
				t.Fatal(err)
			}
			if _, err := d.NewReader().Directory(); err == nil || !d.isSpent() {
				t.Errorf("got %v, and work is left", err)
			}
		})
	}
}
