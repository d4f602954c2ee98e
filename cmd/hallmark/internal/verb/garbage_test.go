package verb

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestPercentFor(t *testing.T) {
	for _, live := range []uint64{0, 1 << 20, 5 << 20, 15 << 20, heapRoom / 2, heapRoom, 1 << 40} {
		percent := percentFor(live)
		goal := max(live, 4<<20) * uint64(100+percent) / 100
		if percent < 100 || goal > max(heapRoom, 2*live) {
			t.Errorf("with %d bytes in use GOGC is %d, which lets the heap grow to %d", live, percent, goal)
		}
	}
}

func TestSeldomPercent(t *testing.T) {
	for live, want := range map[uint64]int{
		0: 400, 1 << 20: 400, garbageRoom / 4: 400, garbageRoom / 2: 200, garbageRoom: 100, 2 * garbageRoom: 50, 1 << 40: 25,
	} {
		if got := seldomPercent(live); got != want {
			t.Errorf("with %d bytes in use GOGC is %d, want %d", live, got, want)
		}
	}
}

func TestSoonPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 1500, 1 << 20: 1500, 4 << 20: 1500, 16 << 20: 300, 32 << 20: 100, 60 << 20: 12, 64 << 20: 12, 1 << 40: 12} {
		if got := soonPercent(live); got != want {
			t.Errorf("with %d bytes in use GOGC is %d, want %d", live, got, want)
		}
	}
}

func TestServingPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 200, 4 << 20: 200, servingRoom: 100, 2 * servingRoom: 50, 4 * servingRoom: 25, 1 << 40: 25} {
		if got := servingPercent(live); got != want {
			t.Errorf("with %d bytes in use GOGC is %d, want %d", live, got, want)
		}
	}
}

// TestCollectSeldom leaves alone what the user has set.
func TestCollectSeldom(t *testing.T) {
	runtime.GC()
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	t.Setenv("GOGC", "50")
	CollectSeldom()
	CollectSoon()
	CollectServing()
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("GOGC is %d, and was set", got)
	}
	t.Setenv("GOGC", "")
	CollectSeldom()
	if got := debug.SetGCPercent(100); got <= 100 {
		t.Errorf("GOGC is %d for a small heap", got)
	}
}

// TestCollectLate wants the setting to follow what is in use.
func TestCollectLate(t *testing.T) {
	runtime.GC() // what an earlier run had in use
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	CollectLate()
	if got := debug.SetGCPercent(100); got <= 100 {
		t.Errorf("GOGC is %d for a small heap", got)
	}
	ballast := make([]byte, heapRoom)
	for range 5 {
		runtime.GC()
		runtime.Gosched()
	}
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("GOGC is %d for a large heap", got)
	}
	runtime.KeepAlive(ballast)
}
