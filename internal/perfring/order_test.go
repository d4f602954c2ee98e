package perfring

import (
	"math/rand/v2"
	"slices"
	"testing"

	"hallmark/perfdata"
)

// TestSorterRounds drains several CPUs in rounds, as the recorder does, with
// records that become visible late, and wants the order of time in the end.
func TestSorterRounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var s Sorter
	var got []uint64
	keep := func(rec []byte, _ *perfdata.Mmap2) { got = append(got, uint64(rec[0])|uint64(rec[1])<<8) }
	var all []uint64
	now, previous := uint64(0), uint64(0)
	for range 500 {
		round := now
		for range 4 { // CPUs, each in order by itself
			var times []uint64
			for range rng.IntN(6) {
				// Since the last round began, or while this one drains.
				times = append(times, previous+uint64(rng.IntN(int(now-previous)+5)))
			}
			slices.Sort(times)
			for _, at := range times {
				s.Add(at, []byte{byte(at), byte(at >> 8)})
			}
			all = append(all, times...)
		}
		s.Flush(previous, keep)
		previous = round
		now += uint64(rng.IntN(100))
	}
	s.Flush(^uint64(0), keep)
	slices.Sort(all)
	if !slices.Equal(got, all) {
		t.Errorf("%d records came out, sorted %v; %d went in", len(got), slices.IsSorted(got), len(all))
	}
}

// TestSorterIsBounded adds more records than may wait, and more when some have had their turn.
func TestSorterIsBounded(t *testing.T) {
	rec := make([]byte, 100)
	s := Sorter{Most: 10 * (&timed{rec: rec}).size()}
	add := func() (kept int) {
		for i := range uint64(20) {
			if s.Add(i, rec) {
				kept++
			}
		}
		return kept
	}
	if n := add(); n != 10 {
		t.Errorf("%d records wait, want 10", n)
	}
	turns := 0
	if s.Flush(3, func([]byte, *perfdata.Mmap2) { turns++ }); turns != 3 {
		t.Errorf("%d records had their turn, want 3", turns)
	}
	if n := add(); n != turns {
		t.Errorf("%d records found room, want %d", n, turns)
	}
	if s.Flush(100, func([]byte, *perfdata.Mmap2) {}); s.held != 0 {
		t.Errorf("%d bytes are held of no record", s.held)
	}
}
