package symbol

import "hallmark/addr"

// Explored returns how many bytes of .debug_info lookups have read one unit after
// another, which counts what was read again, and how many there are. To make an index
// takes about as long as reading all of them once. Before the first lookup that needs
// the debug information, and of a file without, both are 0.
func (f *File) Explored() (read, all int64) {
	f.using.RLock()
	defer f.using.RUnlock()
	d := f.opened.Load()
	if d == nil {
		return 0, 0
	}
	return d.explored.Load(), int64(len(d.data.Info))
}

// lookup answers for an address, from the index once there is one. Func of the frames is
// empty.
func (f *File) lookup(v addr.Virt) Result {
	f.switchOver()
	f.using.RLock()
	defer f.using.RUnlock()
	if x := f.index; x != nil {
		frames, source := x.AppendFrames(nil, v)
		if len(frames) == 0 {
			return Miss(x.WhyNotVirt(v))
		}
		return Result{Frames: frames, Source: source}
	}
	if f.hasDebug() && f.opened.Load() == nil {
		return f.answer(v, f.askAhead(v))
	}
	return f.answer(v, direct{f})
}

// switchOver makes an index in the place of the debug information, as soon as half as
// much was read of that as it takes to make one: so looking up any number of addresses
// costs a small multiple of the best way for so many. One that cannot be made is not
// tried again.
func (f *File) switchOver() {
	if f.NoIndex {
		return
	}
	d := f.opened.Load()
	if d == nil || 2*d.explored.Load() < int64(len(d.data.Info)) {
		return
	}
	f.switching.Do(func() {
		x, err := f.makeIndex()
		if err != nil {
			return // damaged: what is sound can be read all the same
		}
		f.using.Lock()
		defer f.using.Unlock()
		f.index = x
		if d := f.opened.Swap(nil); d != nil {
			d.close()
		}
	})
}

func (f *File) makeIndex() (*Index, error) {
	if f.MakeIndex != nil {
		return f.MakeIndex()
	}
	return f.Index(IndexOptions{Open: f.Companion})
}
