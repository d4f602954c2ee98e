package symbol

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hallmark/addr"
)

// startOffsets returns file offsets at the edges of all that is described, and others.
func startOffsets(t *testing.T, f *File) []addr.Offset {
	t.Helper()
	described, err := describedIn(f.image)
	if err != nil {
		t.Fatal(err)
	}
	offsets := []addr.Offset{0, 1, 1 << 40, 1<<64 - 1}
	add := func(v uint64) {
		if o, ok := f.Offset(addr.Virt(v)); ok {
			offsets = append(offsets, o)
		}
	}
	for _, e := range described {
		for _, v := range []uint64{e.start - 1, e.start, e.start + e.size/2, e.start + e.size - 1, e.start + e.size} {
			add(v)
		}
	}
	random := random()
	for _, s := range textOf(f.image) {
		for range 2000 {
			add(s.Low + random.Uint64N(s.High-s.Low))
		}
	}
	return offsets
}

// compareStarts wants the same starts from an index as from its file, where the index has
// no name, and returns at how many of the offsets there is one.
func compareStarts(t *testing.T, f *File, x *Index) (found int) {
	t.Helper()
	offsets := startOffsets(t, f)
	want, err := f.Starts(offsets)
	if err != nil {
		t.Fatal(err)
	}
	unnamed := x.LookupOffsets(offsets)
	for i, got := range x.Starts(offsets) {
		isUnnamed := len(unnamed[i].Named().Frames) == 0
		switch {
		case isUnnamed && got != want[i], got != NoStart && got != want[i]:
			t.Fatalf("%v starts at %v by the index, and at %v by the file", offsets[i], got, want[i])
		case isUnnamed && got != NoStart:
			found++
		}
	}
	return found
}

// TestStartsOfIndex compares the starts of functions that an index knows with those that
// the file has: of libraries, and of a program stripped and as it was built.
func TestStartsOfIndex(t *testing.T) {
	program := compile(t, "-g", "-O2")
	stripped := filepath.Join(t.TempDir(), "stripped")
	output(t, nil, "strip", "-o", stripped, program)
	named := index(t, program)
	compareStarts(t, open(t, program), named)
	if size := len(named.parts[partStarts]); size > 40 {
		t.Errorf("%d bytes of starts in a program that has names", size)
	}
	if compareStarts(t, open(t, stripped), index(t, stripped)) < 20 {
		t.Error("no starts in a stripped program")
	}
	for _, name := range realFiles(t) {
		if !strings.Contains(name, ".so") || strings.Contains(name, "debug") {
			continue
		}
		x := index(t, name)
		n := compareStarts(t, open(t, name), x)
		t.Logf("%s: %d offsets have a start, %d bytes of %d", filepath.Base(name), n, len(x.parts[partStarts]), len(x.data))
	}
}

// TestStartsOfDamagedIndex changes bytes of the part.
func TestStartsOfDamagedIndex(t *testing.T) {
	stripped := filepath.Join(t.TempDir(), "stripped")
	output(t, nil, "strip", "-o", stripped, compile(t, "-O2"))
	x := index(t, stripped)
	offsets := startOffsets(t, open(t, stripped))
	sound := x.parts[partStarts]
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		damaged := slices.Clone(sound[:random.IntN(len(sound)+1)])
		for range min(random.IntN(4), len(damaged)) {
			damaged[random.IntN(len(damaged))] = byte(random.Uint32())
		}
		x.parts[partStarts] = damaged
		for i, start := range x.Starts(offsets) {
			if start != NoStart && start > offsets[i] {
				t.Fatalf("the start of %v is %v", offsets[i], start)
			}
		}
	}
}

// TestStartsOfNestedDescriptions has ranges that overlap: the last one that starts up to
// an address counts, also where it does not hold it, and no more for the index.
func TestStartsOfNestedDescriptions(t *testing.T) {
	described := []extent{{0x1000, 0x100}, {0x1010, 0x10}, {0x1100, 0x10}, {0x5000, 1 << 40}}
	ranges := fromBase(described, 0x1000, 0x10000)
	x := &Index{indexHeader: indexHeader{base: 0x1000}}
	x.blocks.checked = newBlocks(0) // nothing of it is in a file
	x.parts[partStarts] = encodeStarts(ranges)
	for v := uint64(0xff0); v < 0x5100; v++ {
		want, wantOK := startOf(described, v)
		if got, ok := x.startAt(v); got != want || ok != wantOK {
			t.Fatalf("%#x starts at %#x, %v; want %#x, %v", v, got, ok, want, wantOK)
		}
	}
}
