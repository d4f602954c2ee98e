package dwarf

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func function(name string, low uint64, size uint32) bytesOf {
	var b bytesOf
	b.put(codeFunction, name, uint8(7), low, size)
	return b
}

func inlined(origin uint32, low uint64, size uint32) bytesOf {
	var b bytesOf
	b.put(codeInlined, origin, uint8(1), uint8(9), low, size)
	return b
}

const end = uint8(0) // of a list of children

func TestScopes(t *testing.T) {
	const origin = firstChild
	abstract := new(bytesOf).put(codeAbstract, "callee", uint8(3))
	for _, test := range []struct {
		name     string
		children *bytesOf
		want     map[uint64]string
	}{
		{
			"an inlined call",
			new(bytesOf).put(*abstract, function("caller", 0x1000, 0x100), inlined(origin, 0x1010, 0x10), end, end, end),
			map[uint64]string{0xfff: "", 0x1000: "caller ", 0x1010: "callee caller ", 0x101f: "callee caller ", 0x1020: "caller ", 0x1100: ""},
		},
		{
			"a call that reaches beyond its caller belongs to it all the same",
			new(bytesOf).put(*abstract, function("caller", 0x1000, 0x10), inlined(origin, 0x1008, 0x10), end, end, end),
			map[uint64]string{0x1007: "caller ", 0x1008: "callee caller ", 0x1017: "callee caller ", 0x1018: ""},
		},
		{
			"of functions that overlap the later one has the address",
			new(bytesOf).put(*abstract, function("first", 0x1000, 0x20), end, function("second", 0x1010, 0x20), end, end),
			map[uint64]string{0x100f: "first ", 0x1010: "second ", 0x102f: "second "},
		},
		{
			"and so it is within a function",
			new(bytesOf).put(*abstract, function("first", 0x1000, 0x20), end, function("second", 0x1008, 8), end, end),
			map[uint64]string{0x1007: "first ", 0x1008: "second ", 0x1010: "first "},
		},
		{
			"what the linker threw away starts at 0",
			new(bytesOf).put(*abstract, function("gone", 0, 0x1800), end, function("here", 0x1000, 0x10), end, end),
			map[uint64]string{0: "", 0x1000: "here ", 0x1010: ""},
		},
		{
			"or at the last address",
			new(bytesOf).put(*abstract, function("gone", 1<<64-1, 0x1800), end, end),
			map[uint64]string{0x1000: ""},
		},
		{
			"types are passed over",
			new(bytesOf).put(*abstract, codeEnum, uint32(firstChild+len(*abstract)+9), uint32(0xffffffff), function("after", 0x1000, 0x10), end, end),
			map[uint64]string{0x1000: "after "},
		},
		{
			"a name that leads in a circle is none",
			new(bytesOf).put(codeOrigin, uint32(firstChild), function("caller", 0x1000, 0x10), inlined(firstChild, 0x1000, 8), end, end, end),
			map[uint64]string{0x1000: " caller "},
		},
		{
			"a name that leads nowhere is none",
			new(bytesOf).put(function("caller", 0x1000, 0x10), inlined(0xfffffff0, 0x1000, 8), end, end, end),
			map[uint64]string{0x1000: " caller "},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := read(t, data(test.children))
			if err != nil {
				t.Fatal(err)
			}
			for addr, want := range test.want {
				if got := r.chain(addr); got != want {
					t.Errorf("%#x is %q, want %q", addr, got, want)
				}
			}
		})
	}
}

func TestRangeLists(t *testing.T) {
	var ranges bytesOf
	ranges.put(uint64(0x1000), uint64(0x1010), // relative to the unit, which starts at 0
		uint64(1<<64-1), uint64(0x1100), uint64(0), uint64(0x10), // relative to a base
		uint64(1<<64-1), uint64(0x10), uint64(0x1000), uint64(0x1010), // to one that was thrown away
		uint64(0), uint64(0))
	d := data(new(bytesOf).put(codeRanges, "f", uint32(0), end, end))
	d.Ranges = ranges
	r, err := read(t, d)
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[uint64]string{0x1000: "f ", 0x1010: "", 0x1100: "f ", 0x110f: "f ", 0x1110: ""} {
		if got := r.chain(addr); got != want {
			t.Errorf("%#x is %q, want %q", addr, got, want)
		}
	}
}

func TestDamage(t *testing.T) {
	deep := new(bytesOf).put(function("f", 0x1000, 0x10))
	for range maxDepth + 1 {
		deep.put(inlined(firstChild, 0x1000, 8))
	}
	for _, test := range []struct {
		name, want string
		data       *Data
	}{
		{"a unit longer than the section", ".debug_info offset 0x0: unit of 0x", func() *Data {
			d := data(new(bytesOf))
			d.Info[0] = 0xff
			return d
		}()},
		{"a unit too short for its header", "too short", &Data{Info: []byte{2, 0, 0, 0, 4, 0}}},
		{"addresses of an odd size", "addresses of 3 bytes", func() *Data {
			d := data(new(bytesOf))
			d.Info[10] = 3
			return d
		}()},
		{"an unknown abbreviation", "abbreviation 99 is unknown", data(new(bytesOf).put(uint8(99)))},
		{"an entry cut off", "entry does not end", data(new(bytesOf).put(codeFunction, "name"))},
		{"a sibling before the entry", "entry does not end", data(new(bytesOf).put(codeEnum, uint32(1)))},
		{"calls nested without end", "nested deeper", data(deep)},
		{"abbreviations cut off", ".debug_abbrev", &Data{Info: unit(new(bytesOf)), Abbrev: []byte{1, 0x11}}},
		{"a range list cut off", ".debug_ranges", data(new(bytesOf).put(codeRanges, "f", uint32(0)))},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := read(t, test.data)
			var damage *Error
			if !errors.As(err, &damage) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// TestWorkIsBounded builds a file in which every entry refers to the same long list
// of ranges.
func TestWorkIsBounded(t *testing.T) {
	children := new(bytesOf)
	for range 20_000 {
		children.put(codeRanges, "f", uint32(0), end)
	}
	d := data(children.put(end))
	for range 20_000 {
		d.Ranges = (*bytesOf)(&d.Ranges).bytes(uint64(0x3000), uint64(0x3001))
	}
	d.Ranges = (*bytesOf)(&d.Ranges).bytes(uint64(0), uint64(0))
	if _, err := read(t, d); err == nil || !strings.Contains(err.Error(), "too often") {
		t.Errorf("got %v", err)
	}
}

func (b *bytesOf) bytes(values ...any) []byte { return *b.put(values...) }

func FuzzReader(f *testing.F) {
	abstract := new(bytesOf).put(codeAbstract, "callee", uint8(3))
	seed := data(new(bytesOf).put(*abstract, function("caller", 0x1000, 0x100), inlined(firstChild, 0x1010, 0x10), end, end, end))
	f.Add(seed.Info, seed.Abbrev, []byte(nil), []byte("name\x00"), []byte(nil), []byte(nil), false)
	f.Fuzz(func(t *testing.T, info, abbrev, line, str, ranges, addr []byte, big bool) {
		d := &Data{
			Big: big, AddrSize: 8, Info: info, Abbrev: abbrev, Line: line, Str: str, LineStr: str,
			StrOffsets: addr, Addr: addr, Ranges: ranges, Rnglists: ranges, Text: []Range{{0x1000, 0x2000}},
		}
		size := len(info) + len(abbrev) + len(line) + len(ranges)
		units, err := d.Units()
		if err != nil {
			return
		}
		r := d.NewReader()
		for _, u := range units {
			if err := r.Read(u); err != nil {
				continue
			}
			if len(r.Scopes) > len(info) || len(r.rows) > len(line) {
				t.Fatalf("%d scopes and %d rows in %d bytes", len(r.Scopes), len(r.rows), size)
			}
			checkPieces(t, r)
		}
	})
}

// checkPieces checks that pieces are in order and refer to what there is.
func checkPieces(t *testing.T, r *Reader) {
	t.Helper()
	for i, p := range r.Pieces {
		if i > 0 && p.Start <= r.Pieces[i-1].Start {
			t.Errorf("piece %d starts at %#x, after %#x", i, p.Start, r.Pieces[i-1].Start)
		}
		if int(p.Scope) >= len(r.Scopes) {
			t.Errorf("scope %d of %d", p.Scope, len(r.Scopes))
		}
		if r.Files.AppendPath(nil, p.File) == nil && p.Scope < -1 {
			t.Errorf("scope %d", p.Scope)
		}
	}
	for i, s := range r.Scopes {
		if int(s.Parent) >= i || int(s.Func) >= len(r.Funcs) {
			t.Errorf("scope %d is %+v", i, s)
		}
	}
}

func TestSortSpans(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, reach := range []uint64{1, 100, 1 << 20, 1 << 29, 1 << 40} {
		spans := make([]span, 5000)
		for i := range spans {
			spans[i] = span{low: 0x1000 + random.Uint64N(reach), scope: int32(i)}
		}
		want := slices.Clone(spans)
		slices.SortStableFunc(want, func(a, b span) int { return cmp.Compare(a.low, b.low) })
		if got := new(Reader).sortSpans(spans); !slices.Equal(got, want) {
			t.Errorf("starts within %#x are not in order", reach)
		}
	}
}

// TestPaint compares with asking every span for every address. Spans that are nested
// make a stack, and those that overlap a heap.
func TestPaint(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		const reach = 64
		spans := make([]span, 1+random.IntN(12))
		for i := range spans {
			low := random.Uint64N(reach)
			spans[i] = span{low, low + 1 + random.Uint64N(reach-low), int32(i)}
		}
		var want [reach + 1]int32
		for v := range uint64(len(want)) {
			want[v] = -1
			for _, s := range spans {
				if s.low <= v && v < s.high {
					want[v] = s.scope
				}
			}
		}
		pieces := new(Reader).paint(nil, slices.Clone(spans))
		for v := range uint64(len(want)) {
			got := int32(-1)
			for _, p := range pieces {
				if p.Start <= v {
					got = p.Scope
				}
			}
			if got != want[v] {
				t.Fatalf("%d belongs to %d, want %d: %v", v, got, want[v], spans)
			}
		}
	}
}
