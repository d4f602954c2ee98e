package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"hallmark/addr"
	"hallmark/internal/symtab"
)

// demangling is what the readable forms of a few absurd names may take in all: one
// of maxMangled bytes takes up to 35 MB, most of it for a moment only.
const demangling = 100 << 20

// bounded fails when f allocates more than an input of this size is worth. The factors are far above what sound files need, and far below what
// believing a number from a file can cost.
func bounded(t *testing.T, size int, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > demangling+(4<<20)+256*uint64(size) {
		t.Errorf("%d bytes allocated for an input of %d", n, size)
	}
}

// checkFile asks f all over and checks what must hold of any file.
func checkFile(t *testing.T, f *File, size int) {
	t.Helper()
	asked := []addr.Virt{0, 0x1000, goText, goText + 0x18, 1 << 63, ^addr.Virt(0)}
	for _, s := range f.Segments()[:min(len(f.Segments()), 16)] {
		asked = append(asked, s.Virt, s.Virt+addr.Virt(s.FileSize/2), s.Virt+addr.Virt(s.MemSize))
	}
	var offsets []addr.Offset
	for _, v := range asked {
		checkResult(t, f.LookupVirt(v))
		if o, ok := f.Offset(v); ok {
			checkResult(t, f.LookupOffset(o))
			offsets = append(offsets, o)
		}
	}
	compareOffsets(t, f, offsets)
	for _, s := range f.sources {
		table, err := s.load()
		if symbols, ok := table.(*symtab.Table); ok && err == nil {
			assertDisjoint(t, &symbols.Ranges)
			if n := len(symbols.Ranges.Starts); n > 2*size/16 {
				t.Errorf("%d ranges in a file of %d bytes", n, size)
			}
		}
	}
}

// checkResult checks that there are frames or a reason, and frames in order.
func checkResult(t *testing.T, r Result) {
	t.Helper()
	if (len(r.Frames) == 0) != (r.Reason != 0) || (r.Source == SourceUnknown) != (len(r.Frames) == 0) {
		t.Errorf("%+v has frames and a reason, or neither", r)
	}
	for i, f := range r.Frames {
		if f.Func == "" && i == len(r.Frames)-1 && f.File == "" || f.Line < 0 || f.Inlined != (i < len(r.Frames)-1) {
			t.Errorf("frame %d of %+v", i, r)
		}
	}
	if len(r.Frames) > maxIndexDepth {
		t.Errorf("%d frames", len(r.Frames))
	}
}

func FuzzFile(f *testing.F) {
	p := program()
	p.Symbols, p.DynSymbols = symbols, symbols
	f.Add(p.Build())
	p.Type = elf.ET_REL
	f.Add(p.Build())
	p.Class, p.Order, p.Type = elf.ELFCLASS32, binary.BigEndian, elf.ET_EXEC
	f.Add(p.Build())
	for _, g := range goPrograms() {
		f.Add(g.build())
	}
	described := described(binary.BigEndian)
	f.Add(described.Build())
	f.Add(vdsoImage(f))
	for _, data := range smallPrograms(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		bounded(t, len(data), func() {
			file, err := NewFile(bytes.NewReader(data), "fuzz")
			if err != nil {
				return
			}
			checkFile(t, file, len(data))
		})
	})
}

// FuzzPclntab puts the parts of a Go program into a sound ELF file.
func FuzzPclntab(f *testing.F) {
	for _, g := range goPrograms() {
		g.damage = func(p *goParts) {
			var moduledata []byte
			for _, w := range p.moduledata {
				moduledata = g.word(moduledata, w)
			}
			f.Add(p.pclntab, p.rodata, moduledata, g.ptr == 8, g.order == binary.BigEndian)
		}
		g.build()
	}
	f.Fuzz(func(t *testing.T, pclntab, rodata, moduledata []byte, wide, big bool) {
		data := goFile(pclntab, rodata, moduledata, wide, big)
		bounded(t, len(data), func() {
			file, err := NewFile(bytes.NewReader(data), "fuzz")
			if err != nil {
				t.Fatal(err)
			}
			checkFile(t, file, len(data))
			for at := range addr.Virt(0x90) {
				checkResult(t, file.LookupVirt(goText+at))
			}
		})
	})
}

func FuzzKallsyms(f *testing.F) {
	f.Add(kallsyms)
	f.Add("0000000000000000 T _text\n")
	f.Add("ffffffff81000000 T _text\nffffffff81000100 T f\nffffffff81000200 T _etext\n")
	f.Add("ffffffff81000000 T a\nffffffff81000000 T b\r\n\nx y z\n")
	f.Fuzz(func(t *testing.T, data string) {
		bounded(t, len(data), func() {
			k, err := ReadKallsyms(strings.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			if k.Len()+k.Damaged() > 1+strings.Count(data, "\n") {
				t.Errorf("%d symbols and %d damaged lines", k.Len(), k.Damaged())
			}
			assertDisjoint(t, &k.ranges)
			for _, start := range k.ranges.Starts {
				if _, ok := k.Module(addr.Abs(start)); !ok {
					t.Errorf("%#x has no symbol", start)
				}
				k.Lookup(addr.Abs(start))
			}
			if x, err := k.Index(IndexOptions{}); err == nil {
				for _, start := range k.ranges.Starts {
					compareWithKallsyms(t, x, k, addr.Abs(start))
				}
			}
		})
	})
}

func FuzzPerfMap(f *testing.F) {
	f.Add("1000 100 one\n1080 100 two three\n")
	f.Add("0x1000 0x10 one\nffffffffffffffff 1 last\r\nbroken\n")
	f.Fuzz(func(t *testing.T, data string) {
		bounded(t, len(data), func() {
			m, err := ReadPerfMap(strings.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			lines := 1 + strings.Count(data, "\n")
			if m.Damaged() > lines || m.Len() > 2*lines {
				t.Errorf("%d ranges and %d damaged lines of %d", m.Len(), m.Damaged(), lines)
			}
			assertDisjoint(t, &m.ranges)
			for _, start := range m.ranges.Starts {
				checkResult(t, m.Lookup(addr.Abs(start)))
			}
		})
	})
}

func FuzzDemangle(f *testing.F) {
	for _, name := range []string{
		"main", "_Z", "_R", "_ZN3foo3barEi.cold", "_ZNSt6vectorIiSaIiEE9push_backEOi", "_ZZ3foovENKUlvE_clEv",
		"_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "_RNvMs0_NtCs1234_7mycrate3fooNtB5_3Bar3new",
		"_RINvNtC3std3mem8align_ofjE", "_Z1fIJiiEEvDpT_", "_ZN1AIXadL_ZNS_1fEvEEE1gEv",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := Demangle(name)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > demangling { // its steps make text
			t.Errorf("%d bytes are allocated for %q", n, name)
		}
		if got != name && len(got) > 1<<maxDemangled {
			t.Errorf("%q gives %d bytes", name, len(got))
		}
		if name != "" && got == "" {
			t.Errorf("%q has no name", name)
		}
		if utf8.ValidString(name) && !symtab.IsMangled(name) && got != name {
			t.Errorf("%q became %q", name, got)
		}
	})
}

// goFile is an ELF file with these parts of a Go program.
func goFile(pclntab, rodata, moduledata []byte, wide, big bool) []byte {
	p := goProgram{ptr: 4, order: binary.LittleEndian}
	if wide {
		p.ptr = 8
	}
	if big {
		p.order = binary.BigEndian
	}
	return p.elf(pclntab, rodata, moduledata)
}
