package symbol

import (
	"sync"

	"hallmark/internal/dwarf"
)

// maxCachedUnits is how many bytes a unitCache keeps, about. The largest unit seen, of
// a C++ program, takes 10 MB.
const maxCachedUnits = 64 << 20

// unitCache keeps the units that were used last. Nothing is locked while a unit is
// read, and who wants the same unit waits for it.
type unitCache struct {
	mu    sync.Mutex
	units map[*dwarf.Unit]*cachedUnit
	size  int
	clock int // counts uses
}

type cachedUnit struct {
	read func() (*unitCode, error)
	size int // 0 while it is read
	used int // when that was last
}

// get returns a unit from the cache, or what read returns.
func (c *unitCache) get(u *dwarf.Unit, read func() (*unitCode, error)) (*unitCode, error) {
	code, err := c.entry(u, read).read()
	if err == nil {
		c.account(u, code.size())
	}
	return code, err
}

func (c *unitCache) entry(u *dwarf.Unit, read func() (*unitCode, error)) *cachedUnit {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.units[u]
	if e == nil {
		if c.units == nil {
			c.units = map[*dwarf.Unit]*cachedUnit{}
		}
		e = &cachedUnit{read: sync.OnceValues(read)}
		c.units[u] = e
	}
	c.clock++
	e.used = c.clock
	return e
}

// account takes the size of a unit that was read into account, and forgets others if
// they are too many.
func (c *unitCache) account(u *dwarf.Unit, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.units[u]
	if e == nil || e.size != 0 {
		return
	}
	e.size = size
	for c.size += size; c.size > maxCachedUnits && c.forget(u); {
	}
}

// forget forgets the unit that was not used for the longest time and is not keep, and
// reports whether there was one.
func (c *unitCache) forget(keep *dwarf.Unit) bool {
	var oldest *dwarf.Unit
	for u, e := range c.units {
		if u != keep && e.size != 0 && (oldest == nil || e.used < c.units[oldest].used) {
			oldest = u
		}
	}
	if oldest == nil {
		return false
	}
	c.size -= c.units[oldest].size
	delete(c.units, oldest)
	return true
}
