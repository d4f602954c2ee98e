package symbol

import (
	"strings"
	"sync"
	"testing"

	"hallmark/addr"
)

// TestConcurrentLookups asks a file whose tables are not loaded yet from several
// goroutines, and compares with the answers of one.
func TestConcurrentLookups(t *testing.T) {
	name := goTool(t)
	addresses := textAddresses(t, readelf(t, name), 500)
	alone := open(t, name)
	var want []Result
	for _, v := range addresses {
		want = append(want, alone.LookupVirt(v))
	}
	f := open(t, name)
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() {
			for i, v := range addresses {
				if got := f.LookupVirt(v); !same(got, want[i]) {
					t.Errorf("%v is %+v, want %+v", v, got, want[i])
				}
			}
		})
	}
	asking.Wait()
}

// TestAllocations counts what one lookup allocates: the frames, and the name
// where it has to be made.
func TestAllocations(t *testing.T) {
	k, err := ReadKallsyms(strings.NewReader(kallsyms))
	if err != nil {
		t.Fatal(err)
	}
	p := program()
	p.Symbols = symbols
	native, goBinary := build(t, p), open(t, goTool(t))
	if err := native.Load(); err != nil {
		t.Fatal(err)
	}
	inlined := addr.Virt(0)
	for _, v := range textAddresses(t, readelf(t, goBinary.Name()), 500) {
		if frames := goBinary.LookupVirt(v).Frames; len(frames) > 2 && !strings.Contains(frames[0].Linkage+frames[1].Linkage+frames[2].Linkage, "[") {
			inlined = v
		}
	}
	for name, lookup := range map[string]func() Result{
		"symtab":   func() Result { return native.LookupVirt(0x1000) },
		"offset":   func() Result { return native.LookupOffset(0x400) },
		"pclntab":  func() Result { return goBinary.LookupVirt(inlined) },
		"kallsyms": func() Result { return k.Lookup(0xffffffff81000000) },
	} {
		if got := testing.AllocsPerRun(100, func() { lookup() }); got != 1 || lookup().Frames == nil {
			t.Errorf("%s: %v allocations for %+v", name, got, lookup())
		}
	}
	if got := testing.AllocsPerRun(100, func() { native.LookupVirt(0) }); got != 0 {
		t.Errorf("a miss allocates %v times", got)
	}
}
