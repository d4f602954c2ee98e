package symbol

import (
	"bytes"
	"debug/elf"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/elftest"
	"hallmark/internal/symtab"
)

// manySymbols is a file with a million functions of 64 bytes and C++ names, as
// many as a browser has.
func manySymbols() []byte {
	const n, size = 1_000_000, 64
	functions := make([]elf.Symbol, n)
	for i := range functions {
		// An order that is not that of the addresses.
		v := uint64(i) * 7919 % n * size
		functions[i] = sym(fmt.Sprintf("_ZN7browser4view9Component%dD2Ev", i), 0x1000+v, size-8, elf.STT_FUNC, elf.STB_LOCAL)
	}
	return elftest.File{
		Sections: []elftest.Section{{Name: ".text", Type: elf.SHT_NOBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: 0x1000, Size: n * size}},
		Symbols:  functions,
	}.Build()
}

// BenchmarkLoad reads tables.
func BenchmarkLoad(b *testing.B) {
	goBinary, err := os.ReadFile(goTool(b))
	if err != nil {
		b.Fatal(err)
	}
	for _, test := range []struct {
		name string
		file []byte
		kind Source
	}{
		{"pclntab of go", goBinary, SourcePclntab},
		{"symtab of go", goBinary, SourceSymtab},
		{"symtab of a million", manySymbols(), SourceSymtab},
	} {
		b.Run(test.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f, err := NewFile(bytes.NewReader(test.file), test.name)
				if err != nil {
					b.Fatal(err)
				}
				for _, s := range f.sources {
					if s.kind == test.kind {
						if _, err := s.load(); err != nil {
							b.Fatal(err)
						}
					}
				}
			}
		})
	}
	data, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		b.Fatal(err)
	}
	b.Run("kallsyms", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ReadKallsyms(bytes.NewReader(data)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("kallsyms at a thousand addresses", func(b *testing.B) {
		var addresses []addr.Abs
		for i := range 1000 {
			addresses = append(addresses, 0xffffffff81000000+addr.Abs(i)<<14)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ReadKallsymsAt(bytes.NewReader(data), addresses); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkLookup asks for addresses in random order.
func BenchmarkLookup(b *testing.B) {
	goName := goTool(b)
	goBinary := open(b, goName)
	goAddresses := textAddresses(b, readelf(b, goName), 1<<12)
	many, err := NewFile(bytes.NewReader(manySymbols()), "many")
	if err != nil {
		b.Fatal(err)
	}
	r := random()
	manyAddresses := make([]addr.Virt, 1<<12)
	for i := range manyAddresses {
		manyAddresses[i] = 0x1000 + addr.Virt(r.Uint64N(64_000_000))
	}
	for _, test := range []struct {
		name      string
		table     Table
		addresses []addr.Virt
	}{
		{"pclntab of go", goBinary, goAddresses},
		{"symtab of a million", many, manyAddresses},
	} {
		b.Run(test.name, func(b *testing.B) {
			test.table.LookupVirt(test.addresses[0])
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				test.table.LookupVirt(test.addresses[i%len(test.addresses)])
			}
		})
	}
	b.Run("find among a million", func(b *testing.B) {
		table, _ := many.sources[0].load()
		ranges := &table.(*symtab.Table).Ranges
		for i := 0; b.Loop(); i++ {
			ranges.Find(uint64(manyAddresses[i%len(manyAddresses)]))
		}
	})
	b.Run("kallsyms", func(b *testing.B) {
		var text strings.Builder
		for i := range 1 << 17 {
			fmt.Fprintf(&text, "%x t function_%d\n", uint64(0xffffffff81000000)+64*uint64(i), i)
		}
		k, err := ReadKallsyms(strings.NewReader(text.String()))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			k.Lookup(0xffffffff81000000 + addr.Abs(r.Uint64N(64<<17)))
		}
	})
}

// BenchmarkIndexLookup asks indexes, without an allocation: at random addresses, at
// those of a profile, where few of them make up most, and in order.
func BenchmarkIndexLookup(b *testing.B) {
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range append(debugFiles(b), program) {
		x := index(b, name)
		random := textAddresses(b, readelf(b, name), 1<<17)
		profile := make([]addr.Virt, len(random))
		for i, zipf := 0, rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 16, uint64(len(random)-1)); i < len(profile); i++ {
			profile[i] = random[zipf.Uint64()]
		}
		sorted := slices.Sorted(slices.Values(random))
		for _, test := range []struct {
			name      string
			addresses []addr.Virt
		}{{"random", random}, {"profile", profile}, {"sorted", sorted}} {
			b.Run(filepath.Base(name)+"/"+test.name, func(b *testing.B) { benchmarkFrames(b, x, test.addresses) })
			b.Run(filepath.Base(name)+"/"+test.name+" with a cursor", func(b *testing.B) { benchmarkCursor(b, x, test.addresses) })
		}
	}
}

func benchmarkFrames(b *testing.B, x *Index, addresses []addr.Virt) {
	b.ReportAllocs()
	var frames [64]Frame
	for i := 0; b.Loop(); i++ {
		x.AppendFrames(frames[:0], addresses[i%len(addresses)])
	}
}

func benchmarkCursor(b *testing.B, x *Index, addresses []addr.Virt) {
	b.ReportAllocs()
	c := x.Cursor()
	for i := 0; b.Loop(); i++ {
		c.Frames(addresses[i%len(addresses)])
	}
}
