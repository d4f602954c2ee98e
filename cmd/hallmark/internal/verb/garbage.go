package verb

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// heapRoom is how large the heap of a recorder may become before garbage is
// collected, that of a list of what runs, and that of an index of a small file.
const heapRoom = 20 << 20 // bytes

// CollectLate has garbage collected when the heap reaches heapRoom, and once it
// needs more than half of that, as usual. A recorder allocates little in all, in a
// heap that starts at nothing: the usual way collects it each time it has doubled
// from 4 MiB, and that was a tenth of what recording cost.
func CollectLate() { collectAt(percentFor) }

// collectAt has garbage collected at the GOGC that follows from the bytes in use, now and
// after each collection, until it is called again.
func collectAt(percent func(live uint64) int) { collectAs(calls.Add(1), percent) }

// calls is how often collectAt was called.
var calls atomic.Int64

func collectAs(number int64, percent func(live uint64) int) {
	if calls.Load() != number {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetGCPercent(percent(live[0].Value.Uint64()))
	// The next collection finds this garbage, and measures again.
	runtime.SetFinalizer(new(*int), func(**int) { collectAs(number, percent) })
}

// percentFor returns the GOGC that lets a heap of so many bytes in use reach
// heapRoom.
func percentFor(live uint64) int {
	const least = 1 << 20 // what the runtime starts with is not measured yet
	live = max(live, 4*least)
	if live > heapRoom/2 {
		return 100
	}
	return int(100*heapRoom/live) - 100
}

// garbageRoom is how much garbage who reads profiles may have, if that is more than what
// is in use.
const garbageRoom = 128 << 20 // bytes

// CollectSeldom is for verbs that read a profile or a file's symbols, answer, and end: most of what
// is allocated stays in use, and to look through it again and again was an eighth of the time, and up
// to a fifth where few addresses are looked up.
// GOMEMLIMIT holds as ever, and who sets GOGC knows better.
func CollectSeldom() {
	if os.Getenv("GOGC") == "" {
		collectAt(seldomPercent)
	}
}

// seldomPercent returns the GOGC that leaves garbageRoom, but for small heaps, and a quarter
// of large ones: these are near the bounds of what a profile may take.
func seldomPercent(live uint64) int {
	const least, most = 25, 400
	return int(max(least, min(most, 100*garbageRoom/max(live, 1))))
}

// CollectSoon is for who keeps a profile that has next to no pointers (package compact), and makes
// little garbage of it. GOGC is as for CollectSeldom.
func CollectSoon() {
	if os.Getenv("GOGC") == "" {
		collectAt(soonPercent)
	}
}

// soonPercent returns the GOGC that lets a heap reach 64 MiB, or an eighth more than what is in use.
func soonPercent(live uint64) int {
	const least, most, goal = 12, 1500, 64 << 20
	if live >= goal {
		return least
	}
	return int(max(least, min(most, 100*goal/max(live, 1)-100)))
}

// CollectServing is for a server, which runs beside other programs for ever, and whose heap has next to no pointers: GOGC
// is such that there is little garbage at any time.
func CollectServing() {
	if os.Getenv("GOGC") == "" {
		collectAt(servingPercent)
	}
}

// servingRoom is how much garbage a server may have, or a quarter of what is in use.
const servingRoom = 10 << 20 // bytes

// servingPercent returns the GOGC that leaves servingRoom.
func servingPercent(live uint64) int {
	const least, most = 25, 200
	return int(max(least, min(most, 100*servingRoom/max(live, 1))))
}
