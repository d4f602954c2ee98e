package symbol

import (
	"cmp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"hallmark/addr"
	"hallmark/internal/defect"
	"hallmark/internal/dwarf"
	"hallmark/internal/elffile"
	"hallmark/reason"
)

// LookupOffsets answers as LookupOffset does for each of the offsets. It reads what it
// needs for these, several units at once, and keeps nothing: of the symbol tables that
// takes a fraction of the time and memory for loading them, and of the debug
// information what its sections take that are compressed, and one unit for each
// processor.
func (f *File) LookupOffsets(offsets []addr.Offset) []Result {
	results := make([]Result, len(offsets))
	addresses := make([]addr.Virt, 0, len(offsets))
	asked := make([]int, 0, len(offsets)) // which have an address
	for i, o := range offsets {
		v, why := f.place(o)
		if why != reason.None {
			results[i] = Miss(why)
			continue
		}
		addresses, asked = append(addresses, v), append(asked, i)
	}
	for i, r := range f.LookupVirts(addresses) {
		results[asked[i]] = r
	}
	return results
}

// LookupVirts answers as LookupVirt does for each of the addresses, and reads as
// LookupOffsets does.
func (f *File) LookupVirts(addresses []addr.Virt) (results []Result) {
	defer containMisses(&results, len(addresses))
	if len(addresses) == 0 {
		return nil
	}
	f.renew()
	f.using.RLock()
	defer f.using.RUnlock()
	if f.index != nil {
		return f.index.LookupVirts(addresses)
	}
	b := &batch{file: f, addresses: slices.Clone(addresses), tables: map[*source]loaded{}, strings: copies{}, readable: readableNames{}}
	slices.Sort(b.addresses)
	b.addresses = slices.Compact(b.addresses)
	var loading sync.WaitGroup
	loading.Go(b.loadTables)
	if f.hasDebug() {
		if b.debug = f.opened.Load(); b.debug == nil {
			if b.debug, b.err = openDebugInfo(f); b.err == nil {
				defer b.debug.close()
			}
		}
	}
	if b.debug != nil {
		b.room.Store(minAnswerNames + roomForNames(b.debug.data.Data))
		b.readFunctions()
	}
	loading.Wait()
	if b.debug != nil {
		b.readPlaces()
		b.setReadable()
	}
	answers := make([]Result, len(b.addresses))
	for i, v := range b.addresses {
		answers[i] = b.answer(v)
	}
	results = make([]Result, len(addresses))
	taken := make([]bool, len(answers))
	for i, v := range addresses {
		n := b.number(v)
		results[i] = answers[n]
		if taken[n] {
			results[i].Frames = slices.Clone(answers[n].Frames)
		}
		taken[n] = true
	}
	return results
}

// batch is the evidence for many addresses.
type batch struct {
	file      *File
	addresses []addr.Virt // ascending, each once
	tables    map[*source]loaded
	strings   copies // of pclntab
	readable  readableNames

	debug     *debugInfo // nil without
	err       error      // why there is none
	functions []unitAnswer
	places    []unitAnswer
	room      atomic.Int64 // for names and paths of all workers
}

// minAnswerNames is how many bytes names and paths may take in the answers of one question,
// besides those for each byte of debug information. Parts of it may be in other files.
const minAnswerNames = 64 << 20

// loaded is what is loaded of a source.
type loaded struct {
	table finder
	err   error
}

// copies has strings that are no parts of a table, which would keep all of it.
type copies map[string]string

func (c copies) of(s string) string {
	own, ok := c[s]
	if !ok {
		own = strings.Clone(s)
		c[own] = own
	}
	return own
}

// unitAnswer is what the units say of one address by debugInfo.find.
type unitAnswer struct {
	frames []Frame
	kind   uint8
	unit   int32
	err    error // of a unit that may have the address
	damage error // of others
}

// isFinal reports whether what later units say does not count.
func (a *unitAnswer) isFinal(enough uint8) bool { return a.kind <= enough || a.err != nil }

// add takes account of what another unit says.
func (a *unitAnswer) add(b unitAnswer, enough uint8) {
	better := b.unit < a.unit
	switch final := b.isFinal(enough); {
	case final != a.isFinal(enough):
		better = final
	case !final && b.kind != a.kind:
		better = b.kind < a.kind
	}
	if better {
		*a = b
	}
}

func (b *batch) number(v addr.Virt) int {
	i, ok := slices.BinarySearch(b.addresses, v)
	if !ok {
		return -1
	}
	return i
}

func (b *batch) loadTables() {
	for _, s := range b.file.sources {
		if s.kind == SourcePclntab {
			continue // when it turns out that it is needed
		}
		table, err := s.loadAt(b.addresses)
		b.tables[s] = loaded{table, err}
	}
}

// readFunctions finds the functions at all addresses.
func (b *batch) readFunctions() {
	all := make([]int32, len(b.addresses))
	for i := range all {
		all[i] = int32(i)
	}
	units, damage := b.debug.units()
	b.debug.data.Renew()
	b.functions = b.read(units, kindLine, all, damage)
}

// readPlaces finds the lines where no unit claims anything.
func (b *batch) readPlaces() {
	var bare []int32
	for i := range b.addresses {
		if !b.functions[i].isFinal(kindLine) {
			bare = append(bare, int32(i))
		}
	}
	if len(bare) > 0 {
		lines, damage := b.debug.lines()
		b.places = b.read(lines, kindFunction, bare, damage)
	}
}

// setReadable makes the names for people of all functions, several at once.
func (b *batch) setReadable() {
	var names []linkageName
	for _, answers := range [][]unitAnswer{b.functions, b.places} {
		for i := range answers {
			for k := range answers[i].frames {
				name := answers[i].frames[k].linkageName()
				if _, ok := b.readable[name]; !ok {
					b.readable[name] = ""
					names = append(names, name)
				}
			}
		}
	}
	readable := make([]string, len(names))
	inParallel(len(names), func() func(int) {
		return func(i int) { readable[i] = names[i].readable() }
	})
	for i, name := range names {
		b.readable[name] = readable[i]
	}
}

// read asks the units that dir names for some of the addresses, by their numbers, and
// returns what they say, as debugInfo.find does. damage is what is wrong with units that
// dir leaves out.
func (b *batch) read(dir *dwarf.Directory, enough uint8, asked []int32, damage error) []unitAnswer {
	answers := make([]unitAnswer, len(b.addresses))
	for i := range answers {
		answers[i].kind = kindHole
	}
	needed := make([][]int32, len(dir.Units))
	var units, claims []int32
	for _, i := range asked {
		claims = dir.At(uint64(b.addresses[i]), claims[:0])
		for _, u := range claims {
			if needed[u] == nil {
				units = append(units, u)
			}
			needed[u] = append(needed[u], i)
		}
	}
	slices.SortFunc(units, func(a, b int32) int { return cmp.Compare(dir.Units[b].Size(), dir.Units[a].Size()) })
	var mu sync.Mutex // for answers
	inParallel(len(units), func() func(int) {
		w := newUnitWorker(b.debug, &b.room)
		return func(n int) {
			u := units[n]
			w.ask(dir.Units[u], enough, b.addresses, needed[u])
			mu.Lock()
			defer mu.Unlock()
			for k, i := range needed[u] {
				w.answers[k].unit = u
				answers[i].add(w.answers[k], enough)
			}
		}
	})
	for _, i := range asked {
		if !answers[i].isFinal(enough) {
			answers[i].damage = damage
		}
	}
	return answers
}

// inParallel calls what start returns with the numbers below n, on several goroutines
// at once. start is called once for each of them.
func inParallel(n int, start func() func(int)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), n) {
		workers.Go(func() {
			do := start()
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	workers.Wait()
}

// unitWorker asks one unit after another.
type unitWorker struct {
	debug   *debugInfo
	reader  *dwarf.Reader
	text    *internedText
	answers []unitAnswer
}

func newUnitWorker(d *debugInfo, room *atomic.Int64) *unitWorker {
	w := &unitWorker{debug: d, reader: d.data.NewReader(), text: newInternedText(room)}
	w.reader.Columns = true
	return w
}

// ask asks a unit for some of the addresses, by their numbers, and sets w.answers.
func (w *unitWorker) ask(u *dwarf.Unit, enough uint8, addresses []addr.Virt, numbers []int32) {
	w.answers = slices.Grow(w.answers[:0], len(numbers))[:len(numbers)]
	err := elffile.WhileMapped(func() error {
		if err := w.debug.image.Ended(); err != nil {
			return err
		}
		if err := w.reader.Read(u); err != nil {
			return err
		}
		code := unitCode{Result: &w.reader.Result, text: w.text, lang: langOf(w.reader.Lang)}
		w.text.unit()
		say := code.frames
		if enough == kindLine {
			say = code.claimed
		}
		for k, i := range numbers {
			a := unitAnswer{}
			a.frames, a.kind = say(uint64(addresses[i]))
			w.answers[k] = a
		}
		if w.text.room.Load() < 0 {
			return errLongNames
		}
		return nil
	})
	if defect.Is(err) {
		w.reader, w.text = w.debug.data.NewReader(), newInternedText(w.text.room) // who knows what these have now
		w.reader.Columns = true
	}
	if err != nil {
		for k := range w.answers {
			w.answers[k] = unitAnswer{kind: kindHole, err: err}
		}
	}
	w.debug.data.forget(u)
}

func (b *batch) answer(v addr.Virt) Result {
	r := b.file.answer(v, b)
	if r.Source == SourcePclntab {
		for i := range r.Frames {
			f := &r.Frames[i]
			f.Linkage, f.File = b.strings.of(f.Linkage), b.strings.of(f.File)
		}
	}
	b.readable.set(r.Frames)
	return r
}

func (b *batch) function(v addr.Virt) ([]Frame, error) {
	if b.debug == nil {
		return nil, b.err
	}
	i := b.number(v)
	if i < 0 {
		return b.debug.function(uint64(v))
	}
	a := &b.functions[i]
	if a.kind != kindFunction {
		return nil, cmp.Or(a.err, a.damage)
	}
	return a.frames, nil
}

func (b *batch) place(v addr.Virt) ([]Frame, error) {
	if b.debug == nil {
		return nil, b.err
	}
	i := b.number(v)
	a := &b.functions[i]
	if !a.isFinal(kindLine) && b.places != nil {
		a = &b.places[i]
	}
	return a.frames, cmp.Or(a.err, a.damage)
}

func (b *batch) table(s *source, _ addr.Virt) (finder, error) {
	t, ok := b.tables[s]
	if !ok {
		t.table, t.err = s.loadAt(b.addresses)
		b.tables[s] = t
	}
	return t.table, t.err
}
