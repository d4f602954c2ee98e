package symbol

import (
	"sync"
	"sync/atomic"

	"hallmark/internal/dwarf"
)

// unitCode is what a unit of the debug information says of its code.
type unitCode struct {
	*dwarf.Result
	text stringMaker
	lang Lang
}

// stringMaker makes strings that stay when the debug information is closed.
type stringMaker interface {
	name(dwarf.String) string
	path(files *dwarf.Files, number uint32) string
}

// frames returns what the unit says of an address, and of which kind that is: the
// frames of a function; of a line without a function one frame without a name; or
// nothing.
//
// A frame has no name where the debug information has none for its function, or where that
// is in a file that is missing: the lines of the frame and of its callers stay. A symbol may
// name the last one.
func (c *unitCode) frames(v uint64) ([]Frame, uint8) {
	p := c.At(v)
	if p == nil || p.Scope < 0 && !p.Known {
		return nil, kindHole
	}
	frame := Frame{File: c.text.path(c.Files, p.File), Line: int(p.Line), Column: int(p.Column)}
	var few [8]Frame
	frames := few[:0]
	for scope := p.Scope; scope >= 0; {
		s := &c.Scopes[scope]
		fn := &c.Funcs[s.Func]
		isNamed := len(fn.Name.Bytes()) > 0
		if isNamed {
			frame.Linkage, frame.Start, frame.Lang = c.text.name(fn.Name), int(startLine(fn.Line)), c.lang
		}
		if isNamed || s.Parent >= 0 || len(frames) > 0 {
			frame.Inlined = s.Parent >= 0
			frames = append(frames, frame)
		}
		if scope = s.Parent; scope >= 0 {
			frame = Frame{File: c.text.path(c.Files, s.CallFile), Line: int(s.CallLine), Column: int(s.CallColumn)}
		}
	}
	switch {
	case len(frames) > 0:
		return append([]Frame(nil), frames...), kindFunction
	case p.Known:
		return []Frame{frame}, kindLine
	}
	return nil, kindHole
}

// claimed returns what frames does of an address that the unit's own entry claims. The
// lines of a partial unit are those of other units, and are no claim.
func (c *unitCode) claimed(v uint64) ([]Frame, uint8) {
	frames, kind := c.frames(v)
	if kind == kindLine && c.Partial {
		return nil, kindHole
	}
	return frames, kind
}

// size returns about how many bytes of memory c takes.
func (c *unitCode) size() int {
	return 40*len(c.Pieces) + 24*len(c.Scopes) + 32*len(c.Funcs) + 32*c.Files.Len()
}

// copier is the stringMaker that makes a new string each time.
type copier struct{}

func (copier) name(s dwarf.String) string { return string(s.Bytes()) }

func (copier) path(files *dwarf.Files, number uint32) string {
	return string(files.AppendPath(nil, number))
}

// internedText is the stringMaker that makes one string of each name and path.
type internedText struct {
	names map[*byte]string  // by place
	paths map[string]string // one copy of each

	byFile map[uint32]string // of the unit
	buf    []byte
	room   *atomic.Int64 // for all names and paths, also those of others; below 0 once some are missing
}

func newInternedText(room *atomic.Int64) *internedText {
	return &internedText{names: map[*byte]string{}, paths: map[string]string{}, byFile: map[uint32]string{}, room: room}
}

// keep returns a copy of a name or path, or "" if there is no room for it.
func (t *internedText) keep(s []byte) string {
	if t.room.Add(-int64(len(s))) < 0 {
		return ""
	}
	return string(s)
}

// unit begins with another unit, whose files have other numbers.
func (t *internedText) unit() {
	clear(t.byFile)
}

func (t *internedText) name(s dwarf.String) string {
	name, ok := t.names[s.Pointer()]
	if !ok {
		name = t.keep(s.Bytes())
		t.names[s.Pointer()] = name
	}
	return name
}

func (t *internedText) path(files *dwarf.Files, number uint32) string {
	path, ok := t.byFile[number]
	if ok {
		return path
	}
	t.buf = files.AppendPath(t.buf[:0], number)
	if path, ok = t.paths[string(t.buf)]; !ok {
		path = t.keep(t.buf)
		t.paths[path] = path
	}
	t.byFile[number] = path
	return path
}

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
