package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/elffile"
	"hallmark/internal/elftest"
	"hallmark/internal/testenv"
)

// frames writes a section of call frame information.
type frames struct {
	bytes.Buffer
	eh, wide bool
	cieAt    int
}

func (f *frames) entry(id uint64, body []byte) int {
	at := f.Len()
	le := binary.LittleEndian
	if f.wide {
		f.Write(le.AppendUint64(le.AppendUint64(le.AppendUint32(nil, 0xffffffff), uint64(len(body)+8)), id))
	} else {
		f.Write(le.AppendUint32(le.AppendUint32(nil, uint32(len(body)+4)), uint32(id)))
	}
	f.Write(body)
	return at
}

func (f *frames) cie(body ...byte) {
	id := ^uint64(0)
	if f.eh {
		id = 0
	}
	f.cieAt = f.entry(id, body)
}

func (f *frames) fde(body ...byte) {
	id := uint64(f.cieAt)
	if f.eh {
		id = uint64(f.Len() + 4 - f.cieAt)
		if f.wide {
			id += 8
		}
	}
	f.entry(id, body)
}

// absolute returns the addresses of a function as 64-bit numbers.
func absolute(start, size uint64, rest ...byte) []byte {
	le := binary.LittleEndian
	return append(le.AppendUint64(le.AppendUint64(nil, start), size), rest...)
}

// plain is a common entry without augmentation: CFA rsp+8, return address at CFA-8.
var plain = []byte{1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1}

// codeAt is where the code of tests is, in memory and in the file.
const codeAt, codeSize = 0x1000, 0x4000

// tableOf makes a table of a section for code at codeAt.
func tableOf(t testing.TB, f *frames, m Machine, o BuildOptions) *Table {
	t.Helper()
	b := newBuilder(&elfFile{Image: &elffile.Image{Reader: bytes.NewReader(nil)}, machine: m, text: []segment{{off: codeAt, virt: codeAt, size: codeSize}}}, o)
	if err := b.rows(&cfiSection{data: f.Bytes(), eh: f.eh, virt: 0x10000}, EHFrame); err != nil {
		t.Fatal(err)
	}
	table, err := b.table()
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// text writes a table for people to compare.
func text(table *Table) string {
	var b strings.Builder
	for row := range table.All() {
		r := row.Rule
		fmt.Fprintf(&b, "%x-%x ", uint64(row.Start), uint64(row.End))
		switch r.Kind {
		case None:
			fmt.Fprintf(&b, "none %d\n", r.Silence())
		default:
			fmt.Fprintf(&b, "kind %d r%d%+d ra %d saved %d add %d link %d flags %d\n", r.Kind, r.Register, r.Offset, r.RA, r.Saved, r.Addend, r.Link, r.Flags&15)
		}
	}
	return b.String()
}

const plainRule = "kind 2 r7+8 ra -1 saved [-128 -128 -128 -128 -128 -128] add 0 link 0 flags 0\n"

func TestSections(t *testing.T) {
	one := plainRule
	for _, c := range []struct {
		name string
		make func(f *frames)
		want string
	}{
		{"a function", func(f *frames) {
			f.cie(plain...)
			f.fde(absolute(0x1000, 0x100)...)
		}, "1000-1100 " + one},
		{"64 bits", func(f *frames) {
			f.wide = true
			f.cie(plain...)
			f.fde(absolute(0x1000, 0x100)...)
		}, "1000-1100 " + one},
		{"gap behind", func(f *frames) {
			f.cie(plain...)
			f.fde(absolute(0x1000, 0x80)...)
		}, "1000-1080 " + one + "1080-1100 none 0\n"},
		{"thrown away", func(f *frames) {
			f.cie(plain...)
			f.fde(absolute(0, 0x2000)...)
			f.fde(absolute(^uint64(0), 0x100)...)
			f.fde(absolute(0x8000, 0x100)...)
		}, ""},
		{"beyond the segment", func(f *frames) {
			f.cie(plain...)
			f.fde(absolute(0x4f00, ^uint64(0)>>1)...)
		}, "4f00-5000 " + one},
		{"overlapping", func(f *frames) {
			f.cie(plain...)
			f.fde(absolute(0x1080, 0x80, 0x0e, 24)...)
			f.fde(absolute(0x1000, 0x100, 0x0e, 16)...)
			f.fde(absolute(0x1000, 0x100, 0x0e, 32)...)
		}, "1000-1100 " + strings.ReplaceAll(one, "+8", "+16")},
		{"version 4", func(f *frames) {
			f.cie(append([]byte{4, 0, 8, 0}, plain[2:]...)...)
			f.fde(absolute(0x1000, 0x100)...)
		}, "1000-1100 " + one},
		{"the eh augmentation", func(f *frames) {
			f.cie(append([]byte{1, 'e', 'h', 0, 1, 2, 3, 4, 5, 6, 7, 8}, plain[2:]...)...)
			f.fde(absolute(0x1000, 0x100)...)
		}, "1000-1100 " + one},
		{"unknown version", func(f *frames) {
			f.cie(append([]byte{7}, plain[1:]...)...)
			f.fde(absolute(0x1000, 0x100)...)
		}, ""},
		{"unknown augmentation", func(f *frames) {
			f.cie(append([]byte{1, 'z', 'X', 0}, plain[2:]...)...)
			f.fde(absolute(0x1000, 0x100)...)
		}, ""},
		{"addresses of 32 bits", func(f *frames) {
			f.cie(append([]byte{1, 'z', 'P', 'L', 'R', 0, 1, 0x78, 16, 7, 0x1b, 1, 2, 3, 4, 0xff, 3}, plain[5:]...)...)
			f.fde(0, 0x10, 0, 0, 0, 1, 0, 0, 0)
		}, "1000-1100 " + one},
		{"addresses of 16 bits", func(f *frames) {
			f.cie(append([]byte{1, 'z', 'R', 0, 1, 0x78, 16, 1, 2}, plain[5:]...)...)
			f.fde(0, 0x10, 0, 1, 0)
		}, "1000-1100 " + one},
		{"aligned addresses", func(f *frames) {
			f.cie(append([]byte{1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x50, 0}, plain[5:]...)...)
			f.fde(append(make([]byte, -(f.Len()+8)&7), absolute(0x1000, 0x100, 0)...)...)
		}, "1000-1100 " + one},
		{"set_loc", func(f *frames) {
			f.cie(plain...)
			f.fde(absolute(0x1000, 0x100, append([]byte{1}, absolute(0x1080, 0)[:8]...)...)...)
		}, "1000-1100 " + one},
		{"set_loc backwards", func(f *frames) {
			f.cie(plain...)
			f.fde(absolute(0x1000, 0x100, append([]byte{0x41, 1}, absolute(0x1000, 0)[:8]...)...)...)
		}, "1000-1100 none 3\n"},
		{"unknown instruction", func(f *frames) {
			f.cie(plain...)
			f.fde(absolute(0x1000, 0x100, 0x41, 0x3f)...)
		}, "1000-1100 none 3\n"},
		{"nothing to restore", func(f *frames) {
			f.cie(plain...)
			f.fde(absolute(0x1000, 0x100, 0x0b)...)
		}, "1000-1100 none 3\n"},
		{"truncated instruction", func(f *frames) {
			f.cie(plain...)
			f.fde(absolute(0x1000, 0x100, 0x0c, 7)...)
		}, "1000-1100 none 3\n"},
		{"no CFA", func(f *frames) {
			f.cie(1, 0, 1, 0x78, 16, 0x90, 1)
			f.fde(absolute(0x1000, 0x100)...)
		}, "1000-1100 none 3\n"},
		{"another return column", func(f *frames) {
			f.cie(1, 0, 1, 0x78, 17, 0x0c, 7, 8, 0x91, 1)
			f.fde(absolute(0x1000, 0x100)...)
		}, "1000-1100 none 2\n"},
		{"outermost", func(f *frames) {
			f.cie(plain...)
			f.fde(absolute(0x1000, 0x100, 7, 16)...)
		}, "1000-1100 kind 1 r0+0 ra 0 saved [0 0 0 0 0 0] add 0 link 0 flags 0\n"},
		{"an advance beyond all", func(f *frames) {
			f.cie(append([]byte{1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, plain[3:]...)...)
			f.fde(absolute(0x1000, 0x100, 4, 0xff, 0xff, 0xff, 0xff, 0x0e, 16, 0x41, 0x0e, 24)...)
		}, "1000-1100 " + one},
		{"a signal frame of another layout", func(f *frames) {
			f.cie(append([]byte{1, 'z', 'S', 0, 1, 0x78, 16, 0}, plain[5:]...)...)
			f.fde(absolute(0x1000, 0x100, 0)...)
		}, "1000-1100 none 2\n"},
		{"a tail that is no entry", func(f *frames) {
			f.cie(plain...)
			f.fde(absolute(0x1000, 0x100)...)
			f.Write([]byte{0xf0, 0xff, 0xff, 0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
		}, "1000-1100 " + one},
	} {
		for _, eh := range []bool{true, false} {
			f := &frames{eh: eh}
			c.make(f)
			if got := text(tableOf(t, f, X86_64, BuildOptions{})); got != c.want {
				t.Errorf("%s, eh %v:\n%swant\n%s", c.name, eh, got, c.want)
			}
		}
	}
}

// TestEnds has a length of zero between two functions and nothing that makes sense behind
// them. A section's size is known from its header; else the number of functions counts.
func TestEnds(t *testing.T) {
	f := &frames{eh: true}
	f.cie(plain...)
	f.fde(absolute(0x1000, 0x100)...)
	f.Write(make([]byte, 4))
	f.fde(absolute(0x1100, 0x100)...)
	whole := bytes.Clone(f.Bytes())
	garbage := append(bytes.Clone(whole), 0xff, 0xff, 0xff, 0x7f, 1, 2, 3, 4)
	for _, c := range []struct {
		name    string
		section cfiSection
		end     int
		warns   bool
	}{
		{"a section", cfiSection{data: whole}, 0x1200, false},
		{"a section with more", cfiSection{data: garbage}, 0x1200, true},
		{"no header, no count", cfiSection{data: garbage, open: true}, 0x1100, false},
		{"no header, two functions", cfiSection{data: garbage, open: true, count: 2}, 0x1200, false},
		{"no header, three functions", cfiSection{data: garbage, open: true, count: 3}, 0x1200, true},
	} {
		warned := false
		b := newBuilder(&elfFile{Image: &elffile.Image{Reader: bytes.NewReader(nil)}, machine: X86_64, text: []segment{{off: codeAt, virt: codeAt, size: codeSize}}}, BuildOptions{Warn: func(error) { warned = true }})
		c.section.eh = true
		if err := b.rows(&c.section, EHFrame); err != nil {
			t.Fatal(err)
		}
		table, err := b.table()
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("1000-%x %s", c.end, plainRule); text(table) != want || warned != c.warns {
			t.Errorf("%s: warned %v:\n%s", c.name, warned, text(table))
		}
	}
}

// TestSignalFrames checks rules for the code that handlers of signals return to. That of
// x86-64 in the C library is compared in TestRowsAreLLVMs.
func TestSignalFrames(t *testing.T) {
	f := &frames{eh: true}
	f.cie(1, 'z', 'S', 0, 4, 0x78, 30, 0, 0x0c, 29, 0, 0x12, 29, 0, 0x9d, 0, 0x9e, 0x7f) // as in Linux' vdso
	f.fde(absolute(0x1000, 0x100, 0)...)
	f.cie(1, 'z', 'S', 0, 4, 0x78, 30, 0, 0x0c, 31, 0)
	f.fde(absolute(0x1100, 0x100, 0)...)
	want := "1000-1100 kind 5 r31+0 ra 0 saved [0 0 0 0 0 0] add 0 link 0 flags 0\n1100-1200 none 2\n"
	if got := text(tableOf(t, f, ARM64, BuildOptions{})); got != want {
		t.Errorf("%swant\n%s", got, want)
	}
}

// TestTooManyRules has a rule of its own for each of more instructions than there may be
// rules: no table is made, with any number of threads.
func TestTooManyRules(t *testing.T) {
	if testenv.Brief() {
		return // shares nothing
	}
	f := &frames{eh: true}
	f.cie(plain...)
	const n = maxDistinct + 10
	var program []byte
	for i := range n {
		if i%1000 == 0 && i > 0 {
			f.fde(absolute(0x1000, 0x1000, program...)...)
			program = program[:0]
		}
		program = append(program, 0x41, 0x0e, byte(i)|0x80, byte(i>>7)|0x80, byte(i>>14)|0x80, byte(i>>21))
	}
	f.fde(absolute(0x1000, 0x1000, program...)...)
	for threads := range 4 {
		if testenv.Brief() && threads != 2 {
			continue
		}
		b := newBuilder(&elfFile{Image: &elffile.Image{Reader: bytes.NewReader(nil)}, machine: X86_64, text: []segment{{off: codeAt, virt: codeAt, size: codeSize}}}, BuildOptions{Threads: threads})
		err := b.rows(&cfiSection{data: f.Bytes(), eh: true, off: 0x77}, EHFrame)
		if err == nil || !strings.Contains(err.Error(), "offset 0x77: a section of more than 1048576 distinct rules") {
			t.Errorf("%d threads: %v", threads, err)
		}
	}
}

// TestDamageIsTold checks that what is left out is reported, with its place.
func TestDamageIsTold(t *testing.T) {
	f := &frames{eh: true}
	f.cie(plain...)
	f.fde(absolute(0x1000, 0x100)...)
	at := f.Len()
	f.fde(absolute(0x1100, 0x100, 0x3f)...)
	f.fde(absolute(0x1200, 0x100, 0x3f)...)
	var told []string
	tableOf(t, f, X86_64, BuildOptions{Warn: func(err error) { told = append(told, err.Error()) }})
	want := fmt.Sprintf("the call frame information of 2 functions is left out: offset %#x: malformed instructions", at)
	if len(told) != 1 || told[0] != want {
		t.Errorf("%q, want %q", told, want)
	}
}

// TestLayers compares merged layers with what they say for each byte.
func TestLayers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		const size = 3 * granule
		b := newBuilder(&elfFile{Image: &elffile.Image{Reader: bytes.NewReader(nil)}, machine: X86_64, text: []segment{{size: size}}}, BuildOptions{})
		var want [size]Rule
		for range 1 + rng.IntN(3) {
			layer := b.layer(Source(1 + rng.IntN(5)))
			type function struct {
				start, end addr.Offset
				rule       Rule
			}
			var functions []function
			for range 1 + rng.IntN(3) {
				p := layer.part()
				for range rng.IntN(5) {
					start := addr.Offset(rng.IntN(size - 1))
					end := start + 1 + addr.Offset(rng.IntN(int(size-start)))
					r := Rule{Kind: Reg, Register: RSP, Offset: int32(8 * rng.IntN(4)), RA: -1}
					p.add(start, end, r)
					r.Flags = uint8(layer.source) << sourceShift
					functions = append(functions, function{start, end, r})
				}
			}
			// Byte by byte: of those that cover it the one that begins first, up to its end.
			var says [size]Rule
			for at := addr.Offset(0); at < size; {
				var first *function
				for i := range functions {
					f := &functions[i]
					if f.start <= at && at < f.end && (first == nil || f.start < first.start) {
						first = f
					}
				}
				if first == nil {
					at++
					continue
				}
				for ; at < first.end; at++ {
					says[at] = first.rule
				}
			}
			for at := range want {
				if want[at].Kind == None {
					want[at] = says[at]
				}
			}
		}
		table, err := b.table()
		if err != nil {
			t.Fatal(err)
		}
		for at := range want {
			if got := table.Lookup(addr.Offset(at)); got != want[at] {
				t.Fatalf("%#x: %+v, want %+v", at, got, want[at])
			}
		}
		checkTable(t, "merged", table)
	}
}

// small returns an ELF file with a section, for fuzzing.
func small(f *frames) []byte {
	const x = elf.PF_R | elf.PF_X
	return elftest.File{
		Sections: []elftest.Section{
			{Name: ".text", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: codeAt, Offset: codeAt, Data: make([]byte, 0x200)},
			{Name: ".eh_frame", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC, Addr: 0x10000, Data: f.Bytes()},
		},
		Segments: []elftest.Segment{
			{Type: elf.PT_LOAD, Flags: x, From: ".text", Vaddr: codeAt},
			{Type: elf.PT_LOAD, Flags: elf.PF_R, From: ".eh_frame", Vaddr: 0x10000},
		},
	}.Build()
}

// seedFrames returns sections to begin with.
func seedFrames() []*frames {
	var all []*frames
	for _, program := range [][]byte{
		{0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x0a, 0x44, 0xc6, 0x0c, 7, 8, 0x41, 0x0b},
		{0x41, 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22},
		{0x41, 0x10, 6, 2, 0x76, 0, 0x0f, 3, 0x76, 0x78, 6, 0x14, 3, 1, 0x16, 3, 2, 0x77, 0, 9, 3, 12, 7, 16},
		{2, 5, 0x2d, 0x2e, 16, 3, 1, 0, 8, 3, 5, 12, 2, 0x11, 13, 0x7f, 0x12, 7, 0x7f, 0x13, 0x7e, 0x15, 3, 1, 0x2f, 3, 1},
	} {
		for _, eh := range []bool{true, false} {
			f := &frames{eh: eh}
			f.cie(plain...)
			f.fde(absolute(codeAt, 0x100, program...)...)
			f.cie(append([]byte{1, 'z', 'P', 'L', 'R', 'S', 0, 1, 0x78, 16, 7, 0x1b, 1, 2, 3, 4, 0xff, 3}, plain[5:]...)...)
			f.fde(append([]byte{0, 0x11, 0, 0, 0, 1, 0, 0, 0}, program...)...)
			all = append(all, f)
		}
	}
	return all
}

// same makes a table with one thread and with several, and compares them.
func same(t *testing.T, make func(o BuildOptions) *Table) {
	one := make(BuildOptions{Threads: 1})
	if one == nil {
		return
	}
	if several := make(BuildOptions{Threads: 3}); !bytes.Equal(one.Bytes(), several.Bytes()) {
		t.Error("another table with more threads")
	}
	checkTable(t, "fuzzed", one)
}

func FuzzBuild(f *testing.F) {
	for _, s := range seedFrames() {
		f.Add(small(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		same(t, func(o BuildOptions) *Table {
			table, err := Build(bytes.NewReader(raw), o)
			if err != nil {
				return nil
			}
			return table
		})
	})
}

func FuzzCFI(f *testing.F) {
	for _, s := range seedFrames() {
		f.Add(s.Bytes(), s.eh, false)
		f.Add(s.Bytes(), s.eh, true)
	}
	f.Fuzz(func(t *testing.T, data []byte, eh, arm bool) {
		m := X86_64
		if arm {
			m = ARM64
		}
		section := &frames{eh: eh}
		section.Write(data)
		same(t, func(o BuildOptions) *Table { return tableOf(t, section, m, o) })
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range seedFrames() {
		f.Add(tableOf(f, s, X86_64, BuildOptions{}).Bytes(), uint64(codeAt))
	}
	f.Fuzz(func(t *testing.T, raw []byte, off uint64) {
		table, err := Parse(raw)
		if err != nil {
			return
		}
		table.Lookup(addr.Offset(off))
		table.Lookup(table.base + addr.Offset(off%(granule*(uint64(table.granules)+1))))
		rows := 0
		for range table.All() {
			rows++
		}
		if rows > table.Rows() {
			t.Errorf("%d rows of %d", rows, table.Rows())
		}
	})
}
