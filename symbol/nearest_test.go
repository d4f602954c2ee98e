package symbol

import (
	"reflect"
	"slices"
	"testing"

	"hallmark/addr"
)

// TestLookupOffsets wants for many addresses at once the answers that each gets
// alone: of real files at the start, in the midst and behind the end of every
// symbol, and at addresses of code that were drawn.
func TestLookupOffsets(t *testing.T) {
	for _, name := range realFiles(t) {
		file := open(t, name)
		facts := readelf(t, name)
		var offsets []addr.Offset
		add := func(v addr.Virt) {
			if o, ok := file.Offset(v); ok {
				offsets = append(offsets, o)
			}
		}
		for _, s := range facts.symbols {
			add(addr.Virt(s.value))
			add(addr.Virt(s.value + s.size/2))
			add(addr.Virt(s.value + s.size))
		}
		for _, v := range textAddresses(t, facts, 2000) {
			add(v)
		}
		compareOffsets(t, file, offsets)
		r := random()
		r.Shuffle(len(offsets), func(i, j int) { offsets[i], offsets[j] = offsets[j], offsets[i] })
		for some := range slices.Chunk(offsets[:min(len(offsets), 60)], 20) {
			compareOffsets(t, file, some)
		}
	}
}

// compareOffsets wants the same answers from LookupOffsets and LookupOffset.
func compareOffsets(t *testing.T, file *File, offsets []addr.Offset) {
	t.Helper()
	for i, got := range file.LookupOffsets(offsets) {
		if want := file.LookupOffset(offsets[i]); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: %v is %+v among %d, alone %+v", file.Name(), offsets[i], got, len(offsets), want)
		}
	}
}
