package cli

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// heapRoom is how large the heap of a recorder may become before garbage is
// collected.
const heapRoom = 20 << 20 // bytes

// collectLate has garbage collected when the heap reaches heapRoom, and once it
// needs more than half of that, as usual. A recorder allocates little in all, in a
// heap that starts at nothing: the usual way collects it each time it has doubled
// from 4 MiB, and that was a tenth of what recording cost.
func collectLate() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetGCPercent(percentFor(live[0].Value.Uint64()))
	// The next collection finds this garbage, and measures again.
	runtime.SetFinalizer(new(*int), func(**int) { collectLate() })
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
