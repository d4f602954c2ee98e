package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/elftest"
	"hallmark/internal/testenv"
)

// hostile is a program with code from 0x1000 up to 0x1001000, whose debug information
// a test makes.
type hostile struct{ info, line, str, ranges []byte }

func le(b []byte, n uint64, size int) []byte {
	return append(b, binary.LittleEndian.AppendUint64(nil, n)[:size]...)
}

// Abbreviations of hostile units. Numbers are those of DWARF.
const (
	hostileUnit     = iota + 1 // low_pc, stmt_list, comp_dir by strp
	hostileRanges              // subprogram: name by strp, ranges
	hostileFunction            // subprogram: name by strp, low_pc, high_pc of 4 bytes
	hostileInlined             // inlined_subroutine: origin by ref4, ranges
)

func hostileAbbreviations() []byte {
	return []byte{
		hostileUnit, 0x11, 1, 0x11, 0x01, 0x10, 0x17, 0x1b, 0x0e, 0, 0,
		hostileRanges, 0x2e, 0, 0x03, 0x0e, 0x55, 0x17, 0, 0,
		hostileFunction, 0x2e, 1, 0x03, 0x0e, 0x11, 0x01, 0x12, 0x06, 0, 0,
		hostileInlined, 0x1d, 1, 0x31, 0x13, 0x55, 0x17, 0, 0,
		0,
	}
}

// unit adds a unit with these children, of a version.
func (h *hostile) unit(version uint16, children []byte) {
	body := le(nil, uint64(version), 2)
	if version >= 5 {
		body = le(append(body, 1, 8), 0, 4)
	} else {
		body = append(le(body, 0, 4), 8)
	}
	body = le(le(le(append(body, hostileUnit), 0x1000, 8), 0, 4), 0, 4)
	body = append(append(body, children...), 0)
	if h.line == nil {
		h.program(nil, []string{"file"}, from([]byte{13 + 4 + 1}))
	}
	h.info = append(le(h.info, uint64(len(body)), 4), body...)
}

// program sets a line program of version 4 with these directories, files and opcodes.
func (h *hostile) program(dirs, files []string, opcodes []byte) {
	tables := []byte{1, 1, 1, 0xff, 4, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1} // …, line base -1, range 4
	for _, dir := range dirs {
		tables = append(append(tables, dir...), 0)
	}
	tables = append(tables, 0)
	for _, file := range files {
		tables = append(append(tables, file...), 0, 1, 0, 0)
	}
	tables = append(tables, 0)
	body := le(le(nil, 4, 2), uint64(len(tables)), 4)
	body = append(append(body, tables...), opcodes...)
	h.line = append(le(nil, uint64(len(body)), 4), body...)
}

// from is the opcodes for rows from the start of the code on.
func from(rows ...[]byte) []byte {
	b := append(le([]byte{0, 9, 2}, 0x1000, 8), bytes.Join(rows, nil)...)
	return append(b, 2, 1, 0, 1, 1) // end_sequence, one byte further
}

func (h *hostile) build() []byte {
	p := elftest.File{Sections: []elftest.Section{
		{Name: ".text", Type: elf.SHT_NOBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: 0x1000, Size: 16 << 20},
	}}
	for _, s := range []struct {
		name string
		data []byte
	}{
		{".debug_abbrev", hostileAbbreviations()}, {".debug_info", h.info}, {".debug_line", h.line},
		{".debug_str", h.str}, {".debug_ranges", h.ranges}, {".debug_rnglists", h.ranges},
	} {
		if len(s.data) > 0 {
			p.Sections = append(p.Sections, elftest.Section{Name: s.name, Type: elf.SHT_PROGBITS, Data: s.data})
		}
	}
	return p.Build()
}

// TestHostile makes small files that are nothing but references to a few bytes.
func TestHostile(t *testing.T) {
	if testenv.Brief() {
		return // which costs more than what is measured here
	}
	var asked []addr.Virt
	for i := range addr.Virt(500) {
		asked = append(asked, 0x1000+i*64)
	}
	type way struct {
		name string
		ask  func(f *File)
	}
	ways := []way{
		{"index", func(f *File) { f.Index(IndexOptions{}) }},
		{"one", func(f *File) { checkResult(t, f.LookupVirt(0x1008)); checkResult(t, f.LookupVirt(0x2000)) }},
		{"many", func(f *File) { f.LookupVirts(asked) }},
	}
	open := func(data []byte, w way) {
		f, err := NewFile(bytes.NewReader(data), "hostile")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		f.NoIndex = true
		w.ask(f)
	}
	yardsticks := map[string]*testenv.Yardstick{}
	sound := new(hostile) // as large, of rows that a compiler could have made
	sound.program(nil, []string{"file"}, from(bytes.Repeat([]byte{13 + 4 + 1, 13 + 4 + 2}, 900_000)))
	sound.unit(4, nil)
	harmless := sound.build()
	for _, w := range ways {
		yardsticks[w.name] = &testenv.Yardstick{Times: 15, Harmless: func() { open(harmless, w) }}
	}
	long := strings.Repeat("n", 60_000)
	row := []byte{13 + 4 + 1} // the next address, the same line
	other := []byte{13 + 4 + 2}
	for name, fill := range map[string]func(h *hostile){
		"names that are ends of one": func(h *hostile) {
			h.str = append([]byte(long), 0)
			var functions []byte
			for i := range uint64(55_000) {
				functions = append(le(le(le(append(functions, hostileFunction), i, 4), 0x1000+16*i, 8), 16, 4), 0)
			}
			h.unit(4, functions)
		},
		"units that share a line program": func(h *hostile) {
			h.program(nil, []string{"file"}, from(bytes.Repeat(append(row, other...), 300_000)))
			for range 8000 {
				h.unit(4, nil)
			}
		},
		"functions that share ranges": func(h *hostile) {
			h.str = []byte("f\x00")
			for i := range uint64(100_000) {
				h.ranges = append(binary.AppendUvarint(append(h.ranges, 4), 16*i), binary.AppendUvarint(nil, 16*i+8)...)
			}
			h.ranges = append(h.ranges, 0)
			h.unit(5, bytes.Repeat([]byte{hostileRanges, 0, 0, 0, 0, 0, 0, 0, 0}, 50_000))
		},
		"units that share ranges": func(h *hostile) {
			h.str = []byte("f\x00")
			for i := range uint64(100_000) {
				h.ranges = append(binary.AppendUvarint(append(h.ranges, 4), 16*i), binary.AppendUvarint(nil, 16*i+8)...)
			}
			h.ranges = append(h.ranges, 0)
			for range 10_000 {
				h.unit(5, []byte{hostileRanges, 0, 0, 0, 0, 0, 0, 0, 0})
			}
		},
		"calls nested in each other with the same ranges": func(h *hostile) {
			h.str = []byte("f\x00")
			for i := range uint64(50_000) {
				h.ranges = append(binary.AppendUvarint(append(h.ranges, 4), 16*i), binary.AppendUvarint(nil, 16*i+8)...)
			}
			h.ranges = append(h.ranges, 0)
			chain := []byte{hostileFunction, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}
			for range 200 {
				chain = append(chain, hostileInlined, 12+17, 0, 0, 0, 0, 0, 0, 0)
			}
			h.unit(5, append(chain, bytes.Repeat([]byte{0}, 201)...))
		},
		"long directories of many files": func(h *hostile) {
			var files []string
			var rows []byte
			for i := range uint64(60_000) {
				files = append(files, string([]byte{'a' + byte(i%26), 'a' + byte(i/26%26), 'a' + byte(i/26/26%26), 'a' + byte(i/26/26/26%26)}))
				rows = append(append(rows, binary.AppendUvarint([]byte{4}, i+1)...), row...)
			}
			h.program([]string{"/" + long}, files, from(rows))
			h.unit(4, nil)
		},
		"a line program in one step a row": func(h *hostile) {
			h.program(nil, []string{"file"}, from(bytes.Repeat(append(row, other...), 450_000)))
			h.unit(4, nil)
		},
		"very many sequences": func(h *hostile) {
			h.program(nil, []string{"file"}, bytes.Repeat(from(row), 50_000))
			h.unit(4, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := new(hostile)
			fill(h)
			data := h.build()
			if len(data) > 2<<20 {
				t.Fatalf("%d bytes are no small file", len(data))
			}
			for _, w := range ways {
				costs(t, w.name, yardsticks[w.name], func() { open(data, w) })
			}
		})
	}
}

// costs fails if f takes more memory from the system than any small file may, or far more of the
// processors than a harmless file. Memory that was taken before counts for nothing, and nor does
// that of the harmless file, which the first check of a yardstick reads.
func costs(t *testing.T, what string, y *testenv.Yardstick, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	first := true
	y.Check(t, what, func() {
		if first {
			debug.FreeOSMemory()
			runtime.ReadMemStats(&before)
		}
		f()
		if first {
			runtime.ReadMemStats(&after)
		}
		first = false
	})
	if grown := int64(after.TotalAlloc - before.TotalAlloc); grown > 512<<20 {
		t.Errorf("%s: %d MB were allocated", what, grown>>20)
	}
	inUse := func(m *runtime.MemStats) int64 { return int64(m.HeapSys - m.HeapReleased) }
	if grown := inUse(&after) - inUse(&before); grown > 256<<20 {
		t.Errorf("%s: %d MB more memory", what, grown>>20)
	}
}
