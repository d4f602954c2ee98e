package jitcode

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"

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

// Maps are the maps of the processes of a recording.
type Maps struct {
	mu      sync.Mutex
	used    int64           // bytes of memory
	read    int64           // bytes
	refused map[string]bool // notes on maps that were not read
	places  int             // that are kept reachable
	most    int             // of them
}

// NewMaps returns room for maps. Those of so many processes are kept reachable, by at most two
// descriptors each: the others may lose their names when they end.
func NewMaps(reachable int) *Maps { return &Maps{most: reachable} }

// take reads a map in place of another one of the same process, which may be nil.
func (m *Maps) take(f *os.File, before *symbol.PerfMap) *symbol.PerfMap {
	m.mu.Lock()
	defer m.mu.Unlock()
	info, err := f.Stat()
	if err != nil {
		return before
	}
	if before != nil {
		m.used -= before.Memory()
	}
	names, size := before, info.Size()
	switch {
	case size > maxPerfMaps-m.used: // memory is at least about the size of the file
		err = fmt.Errorf("it has %d MiB, and maps together take %d MiB", size>>20, maxPerfMaps>>20)
	case m.read >= maxMapsRead || size > symbol.MaxPerfMap || size > maxMapsRead-m.read:
		err = fmt.Errorf("it has %d MiB, and of all maps together %d MiB are read, of each at most %d MiB", size>>20, maxMapsRead>>20, symbol.MaxPerfMap>>20)
	default:
		names, err = symbol.ReadPerfMap(io.LimitReader(f, size))
		m.read += costOfMap(names, size)
	}
	if err != nil {
		names = before
		m.refuse(f.Name(), err)
	}
	if names != nil {
		m.used += names.Memory()
	}
	return names
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

func (m *Maps) refuse(name string, err error) {
	if m.refused == nil {
		m.refused = map[string]bool{}
	}
	if len(m.refused) < maxRefused {
		m.refused[fmt.Sprintf("generated code has no names of %s: %v", name, err)] = true
	}
}

// Notes say which names are missing.
func (m *Maps) Notes() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.refused))
}
