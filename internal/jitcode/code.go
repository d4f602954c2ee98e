// Package jitcode names code that the processes of a recording generated, by the maps that their
// runtimes write: /tmp/perf-PID.map. A process may have ended by the time that names are wanted, and
// all maps together have a bound.
package jitcode

import (
	"os"
	"time"

	"hallmark/addr"
	"hallmark/internal/perfmap"
	"hallmark/profile"
	"hallmark/reason"
	"hallmark/symbol"
)

// Code is what one process generated. It is for one goroutine.
type Code struct {
	maps    *Maps
	pid     int
	started func() (time.Time, error) // nil when the process ended long ago
	sampled bool
	place   *perfmap.MapFile // of its map, nil when that cannot be reached any more
	names   *symbol.PerfMap
}

// Of returns the code of a process, which started when that is asked for; the zero time is for what
// /proc says.
func (m *Maps) Of(pid int, started func() (time.Time, error)) *Code {
	return &Code{maps: m, pid: pid, started: started}
}

// IsSampled reports whether See was called.
func (c *Code) IsSampled() bool { return c.sampled }

// See notes that the process was seen in the code, and keeps the place of its map: when it has
// ended, nobody may find it any more.
func (c *Code) See() {
	if c.sampled {
		return
	}
	c.sampled = true
	// Code that a child has from its parent stays the parent's, which may have ended.
	if c.started == nil || !c.maps.hasRoom() {
		return
	}
	started, err := c.started()
	if err != nil {
		return
	}
	if c.place, err = perfmap.Keep(c.pid, started); err == nil {
		c.maps.keep(1)
	}
}

func (m *Maps) hasRoom() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.places < m.most
}

func (m *Maps) keep(places int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.places += places
}

// Read reads the names that a runtime wrote. It may be called more than once; a later map has all
// that an earlier one had.
func (c *Code) Read() {
	f, err := c.open()
	if err != nil {
		return
	}
	defer f.Close()
	c.names = c.maps.take(f, c.names)
}

func (c *Code) open() (*os.File, error) {
	if c.place != nil {
		return c.place.Open()
	}
	if c.started == nil {
		return nil, os.ErrNotExist
	}
	started, err := c.started()
	if err != nil {
		return nil, err
	}
	return perfmap.Open(c.pid, started)
}

// Release lets go of the process, whose map has been read.
func (c *Code) Release() {
	c.started = nil
	if c.place != nil {
		_ = c.place.Close() // it was only read
		c.place = nil
		c.maps.keep(-1)
	}
}

// Frame names an address. The map of a process that still runs is read now, that of one that ended
// was read then.
func (c *Code) Frame(a addr.Abs) profile.Frame {
	if c.names == nil && c.started != nil {
		c.Read()
		c.started = nil // once is enough
	}
	frame := profile.Frame{Reason: reason.Anonymous, Addr: a}
	if c.names != nil {
		frame.Symbols = c.names.Lookup(a).Frames
	}
	return frame
}
