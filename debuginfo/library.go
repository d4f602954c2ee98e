package debuginfo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/reason"
	"hallmark/symbol"
)

// Symbols are all that is known of the code of one file: an index of it, or the file
// itself and its debug information. Its methods may be called by several goroutines
// at once.
type Symbols interface {
	symbol.Table

	// LookupOffsets answers as LookupOffset does for each of the offsets.
	LookupOffsets(offsets []addr.Offset) []symbol.Result

	// AppendFrames appends the frames at a virtual address to dst, innermost first, and
	// returns their source. Func of each is left empty: see symbol.Frame.Readable.
	AppendFrames(dst []symbol.Frame, v addr.Virt) ([]symbol.Frame, symbol.Source)

	// Virt returns the virtual address of the byte at a file offset.
	Virt(addr.Offset) (addr.Virt, bool)

	// Close gives everything back. Nothing that came from the Symbols may be used
	// afterwards.
	Close() error
}

var (
	_ Symbols = (*symbol.Index)(nil)
	_ Symbols = (*symbol.File)(nil)
)

// A Library has the symbols of files: prepared ones, and those that a Finder finds.
// The zero value uses what is on this machine. Its fields must not change after its
// first use; its methods may be called by several goroutines at once.
//
// An index answers for files of the content that it was made of. If it was made from debug
// information, it stays in use when the debug file is gone. One that was made of less answers
// as long as no file has more to say. When one has, the index is made again. A file that
// is asked for much becomes an index that is kept, too.
type Library struct {
	Finder  Finder
	Indexes Indexes

	// IndexWhen says whether to make an index of a file with so many bytes of debug
	// information, to answer for so many addresses. Nil means WorthIndexing.
	IndexWhen func(size int64, addresses int) bool

	// Remote is asked before anything is looked for on this machine, also for a Query that is
	// Local; nil for nobody.
	Remote Remote

	making sync.Mutex // an index: it takes all processors and much memory
}

// Remote knows symbols of files that are elsewhere. Its method may be called by several goroutines at once.
type Remote interface {
	// Open returns the symbols of the file of a query, for the caller to close, nil if it has none. What is
	// known of its content has to be that of the Query, if that is known.
	Open(ctx context.Context, q Query) Symbols
}

// A Request says whose symbols are wanted.
type Request struct {
	Query

	// Addresses is how many will be looked up, as far as that is known.
	Addresses int
}

// Below smallDebugInfo reading all of the debug information takes no time to speak
// of. unitSize is what has to be read for an address: the unit that it is in, which
// has about so much in large programs.
const (
	smallDebugInfo = 1 << 20
	unitSize       = 256 << 10
)

// WorthIndexing reports whether to make an index of a file with so many bytes of debug
// information, to answer for so many addresses: when the units that they may be in make
// up all of it. To make the index takes at most some twice as long as these answers do,
// and the next ones cost nothing.
func WorthIndexing(size int64, addresses int) bool {
	return size >= smallDebugInfo && int64(addresses) >= size/unitSize
}

// Open returns the symbols of the file with this identity, for the caller to close.
// The candidates are paths where that file may be. The error is the reason.Reason why there are no
// symbols: why the first candidate that exists is not the file.
func (l *Library) Open(ctx context.Context, id buildid.ID, candidates ...string) (Symbols, error) {
	return l.Get(ctx, Request{Query: Query{ID: id, Paths: candidates}})
}

// OpenFile returns the symbols of the file with this name, which may be an index, for
// the caller to close. Where damage of its notes leaves its identity unknown, the symbols
// are those that the file and its debug link lead to.
func (l *Library) OpenFile(ctx context.Context, name string) (Symbols, error) {
	x, notIndex := symbol.OpenIndex(name)
	if notIndex == nil {
		return x, nil
	}
	file, err := symbol.OpenFile(name)
	if errors.Is(err, symbol.ErrNotELF) && !errors.Is(notIndex, symbol.ErrNotIndex) {
		return nil, notIndex // it is one, but damaged
	}
	if err != nil {
		return nil, err
	}
	id, err := identifyIfKnown(file)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s, _ := l.Get(ctx, Request{Query: Query{ID: id, File: file}})
	return s, nil
}

// Get returns the symbols that are requested, for the caller to close, or the reason.Reason why there are
// none. Its Query's File is given back, if it is not in use. Where an index turns out to be damaged while
// it answers, it is removed, and what Get returns without it answers.
func (l *Library) Get(ctx context.Context, r Request) (Symbols, error) {
	s, why := l.get(ctx, r)
	if s == nil {
		return nil, why
	}
	x, ok := s.(*symbol.Index)
	if !ok {
		return l.place(s, &r.Query), nil
	}
	if r.File != nil {
		r.Paths, r.File = append(slices.Clip(r.Paths), r.File.Name()), nil
	}
	ctx = context.WithoutCancel(ctx)
	x.Replace = func(damage error) symbol.Substitute {
		l.Indexes.discard(x, damage)
		s, _ := l.Get(ctx, r)
		if s == nil { // not an interface with a nil in it
			return nil
		}
		return s
	}
	return l.place(x, &r.Query), nil
}

func (l *Library) get(ctx context.Context, r Request) (Symbols, reason.Reason) {
	switch {
	case r.ID.IsZero():
		return l.unidentified(ctx, r)
	case r.ID.Kind() == buildid.HTL: // by which no index is kept: other builds have it, too
		return l.found(ctx, r.Query)
	}
	x := l.remote(ctx, r.Query)
	if x == nil {
		return l.local(ctx, r)
	}
	if p, ok := x.(interface{ KnowsOffsets() bool }); ok && !p.KnowsOffsets() {
		if here, why := l.local(ctx, r); here != nil {
			return here, why
		}
		return x, reason.None
	}
	if r.File != nil {
		r.File.Close()
	}
	return x, reason.None
}

// local returns what is on this machine, and what debuginfod servers have.
func (l *Library) local(ctx context.Context, r Request) (Symbols, reason.Reason) {
	s := l.Finder.newSearch(ctx, r.Query)
	if x := l.exact(s); x != nil {
		return x, reason.None
	}
	kept, _ := l.Indexes.kept(r.ID)
	why := s.findProgram(kept)
	var x *symbol.Index
	if why == reason.None {
		x = s.choice(kept)
		s.unbelieved = slices.ContainsFunc(kept, func(k keptIndex) bool { return !k.isOfAnother(s.Content) })
	}
	closeKept(kept, x)
	if why != reason.None {
		return nil, why
	}
	if x != nil && IsComplete(x) {
		s.close()
		return x, reason.None
	}
	return l.better(s, x, r)
}

// remote returns what Remote knows of a file. Where the file or a rival of it is known here, Remote has to
// have the same content.
func (l *Library) remote(ctx context.Context, q Query) Symbols {
	if l.Remote == nil {
		return nil
	}
	if q.Content.IsZero() && q.File != nil {
		q.Content = contentOf(ctx, q.File)
	}
	if q.Content.IsZero() && (q.File != nil || q.Rival) {
		return nil
	}
	return l.Remote.Open(ctx, q)
}

// exact returns the index of the content that is looked for, if no file has more to say: it
// answers without a look at anything else.
func (l *Library) exact(s *search) *symbol.Index {
	if s.Content.IsZero() {
		return nil
	}
	x, err := l.Indexes.open(Origin{ID: s.ID, Content: s.Content, Author: AuthorRoot})
	if err != nil {
		return nil
	}
	if !IsComplete(x) {
		x.Close()
		return nil
	}
	if s.File != nil {
		s.File.Close()
	}
	return x
}

// better returns the symbols of the file, unless an index, which may be nil, is as good.
func (l *Library) better(s *search, x *symbol.Index, r Request) (Symbols, reason.Reason) {
	f, why := s.complete()
	switch {
	case f.file == nil && x == nil && s.unbelieved && why == reason.NoFile:
		return nil, reason.NotBelieved
	case f.file == nil && x == nil:
		return nil, why
	case f.file == nil:
		return x, reason.None
	case x != nil && !isBetter(f.file, x, r.Kernel):
		f.file.Close()
		return x, reason.None
	}
	if x != nil {
		x.Close()
	}
	if x != nil || l.pays(f.file, r.Addresses) {
		if x, _ := l.prepare(s.ctx, r.ID, &f, symbol.IndexOptions{}, false); x != nil {
			f.file.Close()
			return x, reason.None
		}
	}
	if hasCode(f.file) {
		ctx := context.WithoutCancel(s.ctx)
		f.file.MakeIndex = func() (*symbol.Index, error) {
			x, err := l.prepare(ctx, r.ID, &f, symbol.IndexOptions{}, false)
			if x != nil {
				return x, nil
			}
			return nil, err
		}
	}
	return f.file, reason.None
}

// unidentified returns the symbols of a file without an identity. No index can be kept
// of it.
func (l *Library) unidentified(ctx context.Context, r Request) (Symbols, reason.Reason) {
	if r.File == nil {
		return nil, reason.NoIdentity
	}
	return l.found(ctx, r.Query)
}

// found returns the file that the Finder finds.
func (l *Library) found(ctx context.Context, q Query) (Symbols, reason.Reason) {
	file, err := l.Finder.Search(ctx, q)
	if err != nil {
		return nil, reason.Of(err)
	}
	return file, reason.None
}

func (l *Library) pays(file *symbol.File, addresses int) bool {
	when := l.IndexWhen
	if when == nil {
		when = WorthIndexing
	}
	return hasCode(file) && when(file.DebugSize(), addresses)
}

// IsComplete reports whether no file can have more to say than an index.
func IsComplete(x *symbol.Index) bool {
	return slices.Contains(x.Sources(), symbol.SourceDWARF) && x.HasCode()
}

// Detach gives results strings of their own, so that they can be used when the Symbols
// that they come from are closed. Equal strings become one.
func Detach(results []symbol.Result) {
	known := map[string]string{}
	own := func(s *string) {
		copied, ok := known[*s]
		if !ok {
			copied = strings.Clone(*s)
			known[copied] = copied
		}
		*s = copied
	}
	for _, r := range results {
		for i := range r.Frames {
			f := &r.Frames[i]
			own(&f.Func)
			own(&f.Linkage)
			own(&f.File)
			own(&f.Symbol)
		}
	}
}

// isBetter reports whether a file has more to say than an index: where code is in the
// file, which is of no interest in a kernel, or from a better source.
func isBetter(file *symbol.File, x *symbol.Index, isKernel bool) bool {
	if !isKernel && hasCode(file) != x.HasCode() {
		return hasCode(file)
	}
	best, has := file.Sources(), x.Sources()
	if file.DebugSize() > 0 {
		best = []symbol.Source{symbol.SourceDWARF}
	}
	return len(best) > 0 && (len(has) == 0 || best[0] < has[0])
}

// Prepare makes the index of a file with an identity, and keeps it. The user has asked for
// it, and vouches for the file. It returns the index,
// for the caller to close; if it could not be kept, both the index and the error why. One
// that lacks a part of the debug information, split off by the compiler or shared by dwz,
// in a file that is not there, is not kept: it would answer in place of that file when it
// is back. One that is kept already is read as a whole, and made again if it is damaged.
// While another process makes the same index Prepare waits, until ctx is done.
func (l *Library) Prepare(ctx context.Context, id buildid.ID, file *symbol.File, opt symbol.IndexOptions) (*symbol.Index, error) {
	f := &found{file: file, program: func() belief { return beliefOf(file, false) }}
	return l.prepare(ctx, id, f, opt, true)
}

// prepare is Prepare, where the user may not have asked.
func (l *Library) prepare(ctx context.Context, id buildid.ID, f *found, opt symbol.IndexOptions, asked bool) (*symbol.Index, error) {
	l.making.Lock()
	defer l.making.Unlock()
	o := originOf(ctx, id, f, asked)
	l.compare(o)
	unlock, err := l.Indexes.lock(ctx, o)
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	if err == nil {
		defer unlock()
		if x := l.asGood(o, f.file, opt); x != nil {
			return x, nil
		}
	}
	opt.Identity, opt.Origin = id.String(), o.String()
	if opt.Open == nil {
		opt.Open = f.file.Companion
	}
	if opt.Open == nil {
		opt.Open = l.Finder.Companion
	}
	parts := companions{open: opt.Open}
	opt.Open = parts.find
	x, err := f.file.Index(opt)
	if err != nil {
		return nil, err
	}
	if err := parts.missing(f.file.Name()); err != nil {
		return x, err
	}
	if !asked && (f.isLent() || o.Author == AuthorOthers && o.Witness == "") {
		return x, nil // it would answer where nobody vouches for it
	}
	return l.keep(o, x)
}

// compare reports an index of another content than that of a new one.
func (l *Library) compare(o Origin) {
	kept, err := l.Indexes.kept(o.ID)
	if err != nil {
		return
	}
	defer closeKept(kept, nil)
	s := l.Finder.localSearch(o.ID)
	for _, k := range kept {
		if k.isOfAnother(o.Content) {
			s.tellDifferent(o.Path, k.shownPath())
		}
	}
}

// asGood returns the index that is kept of a file, if making it again makes none that is
// better.
func (l *Library) asGood(o Origin, file *symbol.File, opt symbol.IndexOptions) *symbol.Index {
	x, err := l.Indexes.open(o)
	if err != nil {
		return nil
	}
	isAsked := OriginOf(x).Author == o.Author || o.Author == AuthorOthers
	if isAsked && !opt.NoColumns && !isBetter(file, x, false) && IsComplete(x) {
		damage := x.Check()
		if damage == nil {
			return x
		}
		l.Indexes.discard(x, damage)
	}
	x.Close()
	return nil
}

// keep stores an index, and returns it as it is stored.
func (l *Library) keep(o Origin, x *symbol.Index) (*symbol.Index, error) {
	if _, err := l.Indexes.Store(x); err != nil {
		return x, err
	}
	kept, err := l.Indexes.open(o)
	if err != nil {
		return x, err
	}
	x.Close()
	return kept, nil // it costs no memory
}

// companions remembers which files that debug information refers to were not found.
type companions struct {
	open func(symbol.Companion) *symbol.File

	mu   sync.Mutex
	lost string // the first one
}

func (c *companions) find(wanted symbol.Companion) *symbol.File {
	file := c.open(wanted)
	// A package of split units is looked for beside every program.
	if file == nil && wanted.Package == "" {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lost = cmp.Or(c.lost, wanted.Path)
	}
	return file
}

// missing returns an error if a file that name refers to was not found.
func (c *companions) missing(name string) error {
	if c.lost == "" {
		return nil
	}
	return fmt.Errorf("%s: a part of its debug information is in %s, which is not there", name, c.lost)
}
