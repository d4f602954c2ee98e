package symbol

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"hallmark/internal/defect"
	"hallmark/internal/dwarf"
	"hallmark/internal/elffile"
)

// debugInfo answers from the debug information of a file without an index of it: it
// reads the units that may have an address, and keeps those that were read last.
type debugInfo struct {
	companions
	data    *debugData
	info    *elffile.Inflating // its .debug_info, nil where that is all there
	own     dwarf.Data         // for the one sweep, while others prepare data for themselves
	lists   DebugSections      // with those that only WithDebug needs, once it was called
	swept   atomic.Bool        // an address was looked for by a sweep
	cache   unitCache
	readers sync.Pool // of *dwarf.Reader

	explored atomic.Int64 // bytes of units that were read

	// Which units have an address, by what they say of themselves, and by their line
	// programs: those that are sound, and an error if others are not.
	units, lines func() (*dwarf.Directory, error)
}

// openDebugInfo opens the debug information of a file.
func openDebugInfo(f *File) (*debugInfo, error) {
	d := &debugInfo{companions: companions{image: f.debugImage(), program: f.Name(), open: f.Companion}}
	if err := contained(f.debugImage().Name, d.openData); err != nil {
		d.close()
		return nil, err
	}
	d.units = sync.OnceValues(func() (*dwarf.Directory, error) {
		if err := d.need(uint64(len(d.data.Info))); err != nil {
			return new(dwarf.Directory), err
		}
		return d.makeDirectory((*dwarf.Reader).Directory)
	})
	d.lines = sync.OnceValues(func() (*dwarf.Directory, error) {
		units, _ := d.units()
		return d.makeDirectory(func(r *dwarf.Reader) (*dwarf.Directory, error) { return r.Lines(units.Units) })
	})
	return d, nil
}

func (d *debugInfo) openData() (err error) {
	if d.data, d.info, err = openDebugByNeed(d.image); err != nil {
		return err
	}
	d.acquired = append(d.acquired, d.data.Close)
	if d.data.Sup, err = d.supplementary(); err != nil {
		return err
	}
	d.data.Split = d.splitOnce()
	d.own = *d.data.Data
	if sup := d.data.Sup; sup != nil {
		own := *sup
		d.own.Sup = &own
	}
	return nil
}

// need returns when .debug_info is there up to end.
func (d *debugInfo) need(end uint64) error {
	if d.info == nil {
		return nil
	}
	return d.info.Need(end)
}

func (d *debugInfo) close() {
	if d.info != nil {
		d.info.Stop()
	}
	d.companions.close()
}

func (d *debugInfo) makeDirectory(with func(*dwarf.Reader) (*dwarf.Directory, error)) (*dwarf.Directory, error) {
	r := d.reader()
	dir := new(dwarf.Directory)
	err := elffile.WhileMapped(func() (err error) {
		dir, err = with(r)
		return err
	})
	d.giveBack(r, err)
	return dir, d.image.Damage(err)
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

// giveBack puts back a Reader that reader returned, unless a panic came out of it: who
// knows what it left behind.
func (d *debugInfo) giveBack(r *dwarf.Reader, err error) {
	if !defect.Is(err) {
		d.readers.Put(r)
	}
}

// reader returns a Reader, which the caller gives back.
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
	if !d.swept.Swap(true) {
		if frames, err := d.sweep(v); frames != nil || err != nil {
			return frames, err
		}
	}
	dir, damage := d.units()
	frames, kind, err := d.find(v, dir, kindLine)
	if kind != kindFunction {
		return nil, cmp.Or(err, damage)
	}
	return frames, nil
}

// place returns the frames at an address where function has none. It is one without
// a name, or nil where there is no line either.
func (d *debugInfo) place(v uint64) ([]Frame, error) {
	units, _ := d.units()
	if frames, _, err := d.find(v, units, kindLine); frames != nil || err != nil {
		return frames, err
	}
	lines, damage := d.lines()
	frames, _, err := d.find(v, lines, kindFunction)
	return frames, cmp.Or(err, damage)
}

// sweep returns what function does, and nothing where it does not know. It reads no
// further than to the unit that has the answer, and keeps nothing: who asks for one
// address need not wait for more.
func (d *debugInfo) sweep(v uint64) (frames []Frame, err error) {
	r := d.own.NewReader()
	r.Columns = true
	var ranges []dwarf.Range
	visit := func(u *dwarf.Unit) bool {
		var damage error
		if ranges, damage = r.Addresses(u, ranges[:0]); damage != nil || !contain(ranges, v) {
			return true
		}
		if r.RefersOut(u) {
			return false
		}
		if err = r.Read(u); err != nil {
			return false
		}
		code := unitCode{Result: &r.Result, text: copier{}, lang: langOf(r.Lang)}
		found, kind := code.claimed(v)
		if kind == kindFunction {
			frames = found
		}
		return kind == kindHole
	}
	elffile.WhileMapped(func() error { // the look at all units reports damage
		return d.own.Sweep(d.need, visit)
	})
	return frames, d.image.Damage(err)
}

func contain(ranges []dwarf.Range, v uint64) bool {
	return slices.ContainsFunc(ranges, func(r dwarf.Range) bool { return r.Low <= v && v < r.High })
}

// find returns what the units in dir say of an address by the rules of merger.findRuns:
// the first of a kind that is good enough counts, and without one the best. Of those
// units that claim the address themselves a line is enough.
func (d *debugInfo) find(v uint64, dir *dwarf.Directory, enough uint8) (best []Frame, kind uint8, err error) {
	var few [8]int32
	kind = kindHole
	d.data.Renew()
	for _, i := range dir.At(v, few[:0]) {
		code, err := d.unit(dir.Units[i])
		if err != nil {
			return nil, kindHole, err
		}
		err = elffile.WhileMapped(func() error {
			say := code.frames
			if enough == kindLine {
				say = code.claimed
			}
			if frames, k := say(v); k < kind {
				best, kind = frames, k
			}
			return nil
		})
		if err != nil || kind <= enough {
			return best, kind, d.image.Damage(err)
		}
	}
	return best, kind, nil
}

// unit returns what a unit says.
func (d *debugInfo) unit(u *dwarf.Unit) (*unitCode, error) {
	return d.cache.get(u, func() (code *unitCode, err error) {
		r := d.reader()
		d.explored.Add(int64(u.Size()))
		err = elffile.WhileMapped(func() error {
			if err := r.Read(u); err != nil {
				return err
			}
			code = &unitCode{Result: r.Clone(), text: copier{}, lang: langOf(r.Lang)}
			return nil
		})
		d.giveBack(r, err)
		return code, d.image.Damage(err)
	})
}
