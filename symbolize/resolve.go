package symbolize

import (
	"context"
	"path/filepath"
	"strings"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/debuginfo"
	"hallmark/reason"
	"hallmark/symbol"
)

// place is an instruction, as text describes it.
type place struct {
	module string     // the file's name or path
	id     buildid.ID // zero if the text does not have it
	at     uint64
	offset bool // at is an offset in the file, else a virtual address of it
	start  bool // at counts from where the start of the file is in memory
	kernel bool // the module is the kernel, or one of its modules
	caller bool // at is a return address, which is behind the call
	// unplaced says that the text has no place in the file: at is an address of the process.
	unplaced bool
}

// resolver finds out what is at places.
type resolver struct {
	ctx        context.Context
	library    *debuginfo.Library
	binaries   []string
	byID       map[buildid.ID][]string // of the binaries
	trustPaths bool
	found      func(Frame)
	tally      *tally
	number     int64 // of the line, from 0
	sources    map[module]*source
	answers    map[question]symbol.Result // of the sources, since stacks repeat
	clock      int64
	opened     int64 // sources
}

// module is what text says of a file.
type module struct {
	name   string
	id     buildid.ID
	kernel bool
}

// source answers for a module, or says why nothing does.
type source struct {
	symbols debuginfo.Symbols // nil if there are none
	why     reason.Reason
	query   debuginfo.Query
	trusted bool
	used    int64 // when, by the resolver's clock
	asked   int   // for so many answers, not counting those that were kept
}

type question struct {
	source *source
	at     uint64
	offset bool
}

const (
	maxPath    = 4096 // bytes of the name of a file, as the kernel has it
	maxSources = 256  // open at the same time; each is a file and its mappings
	maxAnswers = 1 << 16

	// So many files are looked for, and one more for so many lines: to look for one takes as
	// long as to copy hundreds of lines, and a text can name any number of them.
	maxOpened      = 1 << 12
	linesOfAnother = 256
)

func newResolver(ctx context.Context, f *Filter, t *tally) *resolver {
	library := f.Library
	if library == nil {
		library = new(debuginfo.Library)
	}
	return &resolver{
		ctx: ctx, library: library, binaries: f.Binaries, byID: identify(f.Binaries), trustPaths: f.TrustPaths,
		found: f.Found, tally: t, sources: map[module]*source{}, answers: map[question]symbol.Result{},
	}
}

func (r *resolver) close() {
	for _, s := range r.sources {
		s.close()
	}
}

func (s *source) close() {
	if s.symbols != nil {
		s.symbols.Close()
	}
}

// lookup answers for a place, and counts it.
func (r *resolver) lookup(p place) symbol.Result {
	if p.unplaced {
		r.tally.add(p.module, reason.NoOffset)
		return symbol.Miss(reason.NoOffset)
	}
	s := r.source(p)
	result := r.ask(s, &p)
	r.tally.add(p.module, result.Reason)
	r.report(p, s, result)
	return result
}

// check answers for a place whose function the text names already. keep says whether
// that stays: no answer, or another one, is no reason to doubt it.
func (r *resolver) check(p place, name string, replace bool) (result symbol.Result, keep bool) {
	s := r.source(p)
	result = r.ask(s, &p)
	frames := result.Frames
	if len(frames) == 0 || !replace && !agrees(&frames[len(frames)-1], name) {
		r.tally.named++
		return result, true
	}
	r.tally.add(p.module, reason.None)
	r.report(p, s, result)
	return result, false
}

func (r *resolver) report(p place, s *source, result symbol.Result) {
	if len(result.Frames) > 0 && s.trusted {
		r.tally.trusted++
	}
	if r.found == nil {
		return
	}
	f := Frame{Line: r.number + 1, Module: p.module, ID: p.id, Trusted: s.trusted, Result: result}
	if p.offset {
		f.Offset = new(addr.Offset(p.at))
	} else {
		f.Virt = new(addr.Virt(p.at))
	}
	r.found(f)
}

// source returns what answers for a place's module.
func (r *resolver) source(p place) *source {
	if len(p.module) > maxPath {
		return &source{why: reason.NoFile}
	}
	r.clock++
	m := module{p.module, p.id, p.kernel}
	s := r.sources[m]
	if s == nil {
		if r.opened >= maxOpened+r.number/linesOfAnother {
			return &source{why: reason.TooManyFiles}
		}
		r.opened++
		r.forget()
		m.name = strings.Clone(m.name) // the line that it is a part of may be long
		s = r.open(m)
		r.sources[m] = s
	}
	s.used = r.clock
	return s
}

// forget makes room for another source. The answers of one do not outlive it.
func (r *resolver) forget() {
	if len(r.sources) < maxSources {
		return
	}
	var oldest module
	least := r.clock
	for m, s := range r.sources {
		if s.used < least {
			oldest, least = m, s.used
		}
	}
	r.sources[oldest].close()
	delete(r.sources, oldest)
	clear(r.answers)
}

func (r *resolver) open(m module) *source {
	if !m.id.IsZero() {
		q := r.query(m)
		symbols, err := r.library.Get(r.ctx, debuginfo.Request{Query: q})
		return &source{symbols: symbols, why: reason.Of(err), query: q}
	}
	name, why := r.fileNamed(m.name)
	if why != reason.None {
		return &source{why: why}
	}
	symbols, err := r.library.OpenFile(r.ctx, name)
	if err != nil {
		return &source{why: reason.NoFile}
	}
	id, _ := identityOf(name)
	return &source{symbols: symbols, query: debuginfo.Query{ID: id, Named: []string{name}}, trusted: true}
}

// identify returns the files by their identity. One that cannot be read has none.
func identify(files []string) map[buildid.ID][]string {
	byID := map[buildid.ID][]string{}
	for _, name := range files {
		if id, err := identityOf(name); err == nil {
			byID[id] = append(byID[id], name)
		}
	}
	return byID
}

// identityOf returns the identity of a file, which may be a compressed kernel module.
func identityOf(name string) (buildid.ID, error) {
	if _, isPacked := symbol.UnpackedModule(name); !isPacked {
		info, err := buildid.ReadFile(name)
		return info.ID, err
	}
	file, err := symbol.OpenFile(name)
	if err != nil {
		return buildid.ID{}, err
	}
	defer file.Close()
	info, err := buildid.Read(file.Reader())
	return info.ID, err
}

// query says what to look for, of a module with an identity.
func (r *resolver) query(m module) debuginfo.Query {
	q := debuginfo.Query{ID: m.id, Named: r.byID[m.id]}
	if filepath.IsAbs(m.name) {
		q.Paths = append(q.Paths, m.name)
	}
	if m.kernel {
		q.Module = strings.TrimSuffix(m.name, moduleSuffix)
		if q.Kernel = m.name == kernelFile; q.Kernel {
			q.Module = ""
		}
	}
	return q
}

// fileNamed returns the file that is taken on trust for one with this name.
func (r *resolver) fileNamed(name string) (string, reason.Reason) {
	found := ""
	for _, b := range r.binaries {
		switch {
		case b == name:
			return b, reason.None
		case filepath.Base(b) != filepath.Base(name):
		case found != "":
			return "", reason.NoIdentity // two of that name: which one?
		default:
			found = b
		}
	}
	switch {
	case found != "":
		return found, reason.None
	case r.trustPaths && filepath.Base(name) != name:
		return name, reason.None
	}
	return "", reason.NoIdentity
}

// ask has a source answer for a place, which it settles: at is an offset or an address
// of the file then.
func (r *resolver) ask(s *source, p *place) symbol.Result {
	if s.symbols == nil {
		return symbol.Miss(s.why)
	}
	if p.start {
		at, ok := s.startOfFile()
		if !ok {
			return symbol.Miss(reason.NoOffset)
		}
		p.at, p.start = p.at+uint64(at), false
	}
	if !p.caller {
		return r.answer(question{s, p.at, p.offset})
	}
	result := r.answer(question{s, p.at - 1, p.offset})
	if len(result.Frames) == 0 {
		// Nothing calls the function that a signal handler returns to: its address is that of its
		// first instruction, and the byte before it belongs to no function.
		if there := r.answer(question{s, p.at, p.offset}); isSignalReturn("", there.Frames) {
			return there
		}
	}
	return result
}

// answer looks up a place, or remembers the answer.
func (r *resolver) answer(q question) symbol.Result {
	result, known := r.answers[q]
	if !known {
		if len(r.answers) == maxAnswers {
			clear(r.answers)
		}
		r.count(q.source)
		result = q.ask()
		if named := result.Named(); len(named.Frames) == 0 {
			result = named // what stands in the text says more than a line without a name
		}
		r.answers[q] = result
	}
	return result
}

// fewAnswers is how many answers no index is made for.
const fewAnswers = 64

// count counts an answer of a source. Nobody knows how many will be wanted; when as many
// were as before, as many again are expected, and an index is used if that pays.
func (r *resolver) count(s *source) {
	s.asked++
	_, direct := s.symbols.(*symbol.File)
	if s.asked < fewAnswers || s.asked&(s.asked-1) != 0 || !direct || s.query.ID.IsZero() {
		return
	}
	better, _ := r.library.Get(r.ctx, debuginfo.Request{Query: s.query, Addresses: 2 * s.asked})
	if x, ok := better.(*symbol.Index); ok {
		s.symbols.Close()
		s.symbols = x
		clear(r.answers)
	} else if better != nil {
		better.Close()
	}
}

func (q question) ask() symbol.Result {
	if q.offset {
		return q.source.symbols.LookupOffset(addr.Offset(q.at))
	}
	return q.source.symbols.LookupVirt(addr.Virt(q.at))
}

// startOfFile returns the virtual address of the first byte of the file: 0 but for
// programs that choose their addresses.
func (s *source) startOfFile() (addr.Virt, bool) {
	file, ok := s.symbols.(interface{ Segments() []symbol.Segment })
	if !ok {
		return 0, false
	}
	for _, segment := range file.Segments() {
		if segment.Offset == 0 && segment.FileSize > 0 {
			return segment.Virt, true
		}
	}
	return 0, false
}

// signalReturn is the function in glibc and musl that a signal handler returns to. The
// frame after it is what the signal interrupted, which called nothing.
const signalReturn = "__restore_rt"

// isSignalReturn reports whether it is that function which a frame has, by the name in
// the text or by what was found.
func isSignalReturn(name string, frames []symbol.Frame) bool {
	return name == signalReturn || len(frames) > 0 && frames[len(frames)-1].Linkage == signalReturn
}
