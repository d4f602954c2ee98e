package symbol

import (
	"bytes"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"

	"hallmark/addr"
	"hallmark/internal/testenv"
)

// conform wants the same answers from an index and from a file without it, alone and
// many at once, for n addresses and where the answers change.
func conform(t *testing.T, x *Index, f *File, n int) {
	t.Helper()
	addresses := boundaries(x, n)
	many := f.LookupVirts(addresses)
	for i, v := range addresses {
		want := x.LookupVirt(v)
		if got := f.LookupVirt(v); !reflect.DeepEqual(got, want) {
			t.Fatalf("%v is\n\t%+v\nwithout an index, and with it\n\t%+v", v, got, want)
		}
		if !reflect.DeepEqual(many[i], want) {
			t.Fatalf("%v is\n\t%+v\namong %d, and with an index\n\t%+v", v, many[i], len(addresses), want)
		}
	}
	conformOffsets(t, x, f, addresses)
	if !reflect.DeepEqual(f.Sources(), x.Sources()) {
		t.Errorf("sources are %v, and those of the index %v", f.Sources(), x.Sources())
	}
}

// conformOffsets is conform for file offsets.
func conformOffsets(t *testing.T, x *Index, f *File, addresses []addr.Virt) {
	t.Helper()
	offsets := []addr.Offset{0, 1, math.MaxInt64, math.MaxUint64}
	for _, v := range addresses {
		if o, ok := f.Offset(v); ok {
			offsets = append(offsets, o)
		}
	}
	many := f.LookupOffsets(offsets)
	for i, want := range x.LookupOffsets(offsets) {
		if !reflect.DeepEqual(many[i], want) {
			t.Fatalf("offset %v is\n\t%+v\nwithout an index, and with it\n\t%+v", offsets[i], many[i], want)
		}
	}
}

// boundaries returns the addresses at both sides of where the answers of x change, a
// random choice of n if there are more, and some outside all code.
func boundaries(x *Index, n int) []addr.Virt {
	var all []addr.Virt
	for p := range x.Pieces() {
		end := p.Virt + addr.Virt(p.Size)
		all = append(all, p.Virt-1, p.Virt, p.Virt+addr.Virt(p.Size/2), end-1, end)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	r := random()
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	all = all[:min(len(all), n)]
	base := addr.Virt(x.base)
	return append(all, 0, 1, base-1, base, base+math.MaxUint32, base+math.MaxUint32+1, math.MaxUint64)
}

// TestConformanceOfFiles compares the index of programs and libraries that nobody made
// for this test with the files themselves.
func TestConformanceOfFiles(t *testing.T) {
	for _, name := range realFiles(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			conform(t, index(t, name), openWhole(t, name), 1000)
		})
	}
}

// TestConformanceOfJoined does so for a stripped file and its debug file.
func TestConformanceOfJoined(t *testing.T) {
	testenv.Tool(t, "objcopy")
	whole := compile(t, "-g", "-O2")
	debug := separate(t, whole)
	joined := func() *File { return Join(openWhole(t, whole), openWhole(t, debug)) }
	x, err := joined().Index(IndexOptions{Open: openCompanion})
	if err != nil {
		t.Fatal(err)
	}
	conform(t, x, joined(), 1000)
}

// openWhole opens a file with all that its debug information refers to.
func openWhole(t testing.TB, name string) *File {
	t.Helper()
	f := open(t, name)
	f.Companion = openCompanion
	f.NoIndex = true // or it would be one before long
	return f
}

// TestSwitchOver asks for so many addresses that an index takes the place of the debug
// information.
func TestSwitchOver(t *testing.T) {
	name := debugFiles(t)[0]
	f, x := open(t, name), index(t, name)
	addresses := boundaries(x, 20_000)
	var asked sync.WaitGroup
	for part := range slices.Chunk(addresses, len(addresses)/4+1) {
		asked.Go(func() {
			for _, v := range part {
				if got, want := f.LookupVirt(v), x.LookupVirt(v); !reflect.DeepEqual(got, want) {
					t.Errorf("%v is\n\t%+v, want\n\t%+v", v, got, want)
					return
				}
			}
		})
	}
	asked.Wait()
	if f.index == nil {
		read, all := f.Explored()
		t.Errorf("no index after %d of %d bytes were read", read, all)
	}
	conformOffsets(t, x, f, addresses[:100])
}

// FuzzConformance wants the same answers from damaged files and from indexes of them,
// where one can be made. Only a file can miss functions that lie outside of what their
// unit's entry says, which damage can do.
func FuzzConformance(f *testing.F) {
	for _, data := range smallPrograms(f) {
		f.Add(data)
	}
	for _, g := range goPrograms() {
		f.Add(g.build())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := NewFile(bytes.NewReader(data), "fuzz")
		if err != nil || reach(file) > 64<<20 {
			return // to look at all pieces of a few GiB takes long
		}
		file.NoIndex = true
		x, err := file.Index(IndexOptions{Threads: 1})
		if err != nil {
			return
		}
		addresses := boundaries(x, 200)
		many := file.LookupVirts(addresses)
		for i, v := range addresses {
			want := x.LookupVirt(v)
			if want.Source == SourceDWARF && !isClaimed(file, v) {
				continue
			}
			if got := file.LookupVirt(v); !reflect.DeepEqual(got, want) || !reflect.DeepEqual(many[i], want) {
				t.Fatalf("%v is\n\t%+v\nwithout an index,\n\t%+v\namong %d, and with it\n\t%+v", v, got, many[i], len(addresses), want)
			}
		}
	})
}

// reach returns how many bytes are between the first and the last code of a file.
func reach(f *File) uint64 {
	text := textOf(f.image)
	if len(text) == 0 {
		return 0
	}
	return text[len(text)-1].High - text[0].Low
}

// isClaimed reports whether the entry of a unit says that an address is its own.
func isClaimed(f *File, v addr.Virt) bool {
	debug, err := f.debug()
	if err != nil {
		return false
	}
	units, err := debug.units()
	return err == nil && len(units.At(uint64(v), nil)) > 0
}
