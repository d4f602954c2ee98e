package symbol

import (
	"sync"
	"sync/atomic"

	"hallmark/internal/dwarf"
)

// debugInfo answers from the debug information of a file without an index of it: it
// reads the units that may have an address, and keeps those that were read last.
type debugInfo struct {
	companions
	data    *debugData
	units   *dwarf.Directory                 // by what the units say of themselves
	lines   func() (*dwarf.Directory, error) // by their line programs
	cache   unitCache
	readers sync.Pool // of *dwarf.Reader, nil where there is none
	read    atomic.Int64
}

// openDebugInfo opens the debug information in m. Files that it refers to are opened
// by open, if that is not nil.
func openDebugInfo(m *image, open func(Companion) *File) (*debugInfo, error) {
	d := &debugInfo{companions: companions{image: m, open: open}}
	err := whileMapped(d.openData)
	if err != nil {
		d.close()
		return nil, m.damage(err)
	}
	d.lines = sync.OnceValues(d.findLines)
	return d, nil
}

func (d *debugInfo) openData() (err error) {
	if d.data, err = d.debug(d.image, ""); err != nil {
		return err
	}
	if d.data.Sup, err = d.supplementary(); err != nil {
		return err
	}
	d.data.Split = d.splitOnce()
	r := d.data.NewReader()
	d.units, err = r.Directory()
	return err
}

// splitOnce returns what finds split-off units, and opens each file once. Each caller
// gets a Data of its own, which it may prepare for itself.
func (d *debugInfo) splitOnce() func(id uint64, dir, name string) *dwarf.Data {
	type split struct {
		id        uint64
		dir, name string
	}
	var mu sync.Mutex
	found := map[split]*dwarf.Data{}
	return func(id uint64, dir, name string) *dwarf.Data {
		mu.Lock()
		defer mu.Unlock()
		key := split{id, dir, name}
		data, ok := found[key]
		if !ok {
			data = d.split(id, dir, name)
			found[key] = data
		}
		if data == nil {
			return nil
		}
		own := *data
		return &own
	}
}

func (d *debugInfo) findLines() (dir *dwarf.Directory, err error) {
	r := d.reader()
	defer d.readers.Put(r)
	err = whileMapped(func() (err error) {
		dir, err = r.Lines(d.units.Units)
		return err
	})
	return dir, d.image.damage(err)
}

// reader returns a Reader, which the caller puts back into d.readers.
func (d *debugInfo) reader() *dwarf.Reader {
	r, _ := d.readers.Get().(*dwarf.Reader)
	if r == nil {
		r = d.data.NewReader()
		r.Columns = true
	}
	return r
}

// function returns the frames at an address of a function, nil if there is none.
func (d *debugInfo) function(v uint64) ([]Frame, error) {
	frames, kind, err := d.find(d.units, v)
	if kind != kindFunction {
		return nil, err
	}
	return frames, err
}

// place returns the frames at an address where function has none. It is one without
// a name, or nil where there is no line either.
func (d *debugInfo) place(v uint64) ([]Frame, error) {
	lines, err := d.lines()
	if err != nil {
		return nil, err
	}
	frames, _, err := d.find(lines, v)
	return frames, err
}

// find returns what the units say of an address by the rules of merger.findRuns: the
// first function counts, and without one the first line.
func (d *debugInfo) find(dir *dwarf.Directory, v uint64) (best []Frame, kind uint8, err error) {
	var few [8]int32
	kind = kindHole
	d.data.Renew()
	for _, i := range dir.At(v, few[:0]) {
		u, err := d.unit(dir.Units[i])
		if err != nil {
			return nil, kindHole, err
		}
		err = whileMapped(func() error {
			if frames, k := u.frames(v); k < kind {
				best, kind = frames, k
			}
			return nil
		})
		if err != nil || kind == kindFunction {
			return best, kind, d.image.damage(err)
		}
	}
	return best, kind, nil
}

// unit returns what a unit says.
func (d *debugInfo) unit(u *dwarf.Unit) (*unitCode, error) {
	return d.cache.get(u, func() (code *unitCode, err error) {
		r := d.reader()
		defer d.readers.Put(r)
		err = whileMapped(func() error {
			d.read.Add(int64(u.Size()))
			if err := r.Read(u); err != nil {
				return err
			}
			code = &unitCode{Result: r.Clone(), text: copier{}, lang: langOf(r.Lang)}
			return nil
		})
		return code, d.image.damage(err)
	})
}
