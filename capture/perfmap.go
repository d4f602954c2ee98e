package capture

import (
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/internal/perfmap"
	"hallmark/symbol"
)

// maxPerfMap bounds how much of a map is read, in bytes: anybody can write one.
const maxPerfMap = 128 << 20

// maxPlaces bounds the processes whose maps are kept reachable, by at most two
// descriptors each. Those beyond it may lose their names when they end.
func (s *objects) maxPlaces() int { return s.keep / 16 }

// seen notes that a process was seen in the code that it generated, and keeps the
// place of its map: when it has ended, nobody may find it any more.
func (s *objects) seen(o *object) {
	if o.sampled {
		return
	}
	o.sampled = true
	// What a child has from its parent stays the parent's, which may have ended.
	if o.process == nil || s.places >= s.maxPlaces() {
		return
	}
	started, err := o.process.started()
	if err != nil {
		return
	}
	if o.place, err = perfmap.Keep(int(o.process.pid), started); err == nil {
		s.places++
	}
}

// started returns when the process started, the zero time where /proc must tell.
func (p *process) started() (time.Time, error) {
	if p.since == 0 {
		return time.Time{}, nil
	}
	return perfmap.WallClock(time.Duration(p.since), unix.CLOCK_MONOTONIC)
}

// readPerfMap reads the names that a runtime wrote for the code it generated. It
// may be called more than once; a later map has all that an earlier one had.
func (o *object) readPerfMap() {
	f, err := o.openPerfMap()
	if err != nil {
		return
	}
	defer f.Close()
	if m, err := symbol.ReadPerfMap(io.LimitReader(f, maxPerfMap)); err == nil {
		o.jit = m
	}
}

func (o *object) openPerfMap() (*os.File, error) {
	if o.place != nil {
		return o.place.Open()
	}
	if o.process == nil {
		return nil, os.ErrNotExist
	}
	started, err := o.process.started()
	if err != nil {
		return nil, err
	}
	return perfmap.Open(int(o.process.pid), started)
}

// release lets go of the process of generated code, whose map has been read.
func (s *objects) release(o *object) {
	o.process = nil
	if o.place != nil {
		_ = o.place.Close() // it was only read
		o.place = nil
		s.places--
	}
}
