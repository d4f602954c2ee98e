package capture

import (
	"time"

	"golang.org/x/sys/unix"

	"hallmark/internal/perfmap"
	"hallmark/symbol"
)

// readPerfMap reads the names that a runtime wrote for the code it generated. It
// may be called more than once; a later map has all that an earlier one had.
func (o *object) readPerfMap() {
	var started time.Time // zero: /proc knows, while the process runs
	if since := o.process.since; since != 0 {
		var err error
		if started, err = perfmap.WallClock(time.Duration(since), unix.CLOCK_MONOTONIC); err != nil {
			return
		}
	}
	f, err := perfmap.Open(int(o.process.pid), started)
	if err != nil {
		return
	}
	defer f.Close()
	if m, err := symbol.ReadPerfMap(f); err == nil {
		o.jit = m
	}
}
