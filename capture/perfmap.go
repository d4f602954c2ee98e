package capture

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/internal/perfmap"
	"hallmark/symbol"
)

// maxPerfMaps bounds how much memory the maps of all processes take together, in bytes:
// anybody can write one for each process that they start.
const maxPerfMaps = 192 << 20

// maxMapsRead bounds how much is read of all maps, in bytes, where a line counts as lineCost at
// least. It takes a few seconds, and the recording ends behind it.
const (
	maxMapsRead = 256 << 20
	lineCost    = 32
)

// mapRoom is the room for the maps of a recording.
type mapRoom struct {
	mu      sync.Mutex
	used    int64           // bytes of memory
	read    int64           // bytes
	refused map[string]bool // notes on maps that were not read
}

// take reads a map in place of another one of the same process, which may be nil.
func (r *mapRoom) take(f *os.File, before *symbol.PerfMap) *symbol.PerfMap {
	r.mu.Lock()
	defer r.mu.Unlock()
	info, err := f.Stat()
	if err != nil {
		return before
	}
	if before != nil {
		r.used -= before.Memory()
	}
	m, size := before, info.Size()
	switch {
	case size > maxPerfMaps-r.used: // memory is at least about the size of the file
		err = fmt.Errorf("it has %d MiB, and maps together take %d MiB", size>>20, maxPerfMaps>>20)
	case r.read >= maxMapsRead || size > symbol.MaxPerfMap || size > maxMapsRead-r.read:
		err = fmt.Errorf("it has %d MiB, and of all maps together %d MiB are read, of each at most %d MiB", size>>20, maxMapsRead>>20, symbol.MaxPerfMap>>20)
	default:
		m, err = symbol.ReadPerfMap(io.LimitReader(f, size))
		r.read += costOfMap(m, size)
	}
	if err != nil {
		m = before
		r.refuse(f.Name(), err)
	}
	if m != nil {
		r.used += m.Memory()
	}
	return m
}

// costOfMap returns what a map of a size counts as that was read. One that was not understood has
// too many lines.
func costOfMap(m *symbol.PerfMap, size int64) int64 {
	if m == nil {
		return symbol.MaxPerfMap
	}
	return max(size, lineCost*int64(m.Lines()))
}

// maxRefused is how many notes there are at most.
const maxRefused = 100

func (r *mapRoom) refuse(name string, err error) {
	if r.refused == nil {
		r.refused = map[string]bool{}
	}
	if len(r.refused) < maxRefused {
		r.refused[fmt.Sprintf("generated code has no names of %s: %v", name, err)] = true
	}
}

// notes say which names are missing.
func (r *mapRoom) notes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.refused))
}

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
	o.jit = o.maps.take(f, o.jit)
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
