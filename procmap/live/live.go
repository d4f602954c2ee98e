// Package live answers for the addresses of a running process: which file, which
// offset in it, which function and line.
//
// Everything is asked of the machine at that moment: the mappings of the process,
// the mapped files themselves, prepared indexes and installed debug files, the running
// kernel, and the map that a runtime writes for code which it generates. No server is
// asked.
package live

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/debuginfo"
	"hallmark/internal/contested"
	"hallmark/procmap"
	"hallmark/reason"
	"hallmark/symbol"
)

// A Location is what is known of one address. Unknown parts have a reason in
// Identity and in Symbol.
type Location struct {
	Addr addr.Abs

	// Name is what to show for the file: its path, "[vdso]", "[kernel]", the name
	// of a kernel module in brackets; without a file it is the name of the VMA,
	// which may be empty.
	Name string

	Offset   addr.Offset // of the byte in the file, if InFile
	InFile   bool        // false for the kernel, whose files are not mapped, and where no file is
	Identity procmap.Identity
	Symbol   symbol.Result

	// Contested says that another one of the files that were asked for claims the identity
	// and has other content; or, where Content is zero, that nobody knows.
	Contested bool
	Content   buildid.Content

	// Unlooked is why nobody knows whether the process has rewritten the page in its memory, so
	// that its code is not the file's; nil where that is known.
	Unlooked error
}

// Process is a running process whose files and tables stay open for further
// addresses. Its methods may not be called by several goroutines at once.
type Process struct {
	// Patiently calls a function that looks at the mappings of the process, and returns its error, or
	// one of its own where that does not end in time: a process can see to it that nobody's look
	// ends. Such a look is left behind, and Close leaves it what it uses. Nil calls it.
	Patiently func(look func() error) error

	maps    *procmap.Process
	late    bool // a look was left behind
	library debuginfo.Library
	files   map[mappedFile]debuginfo.Symbols
	closers []io.Closer
	kernel  *kernel          // nil until a kernel address is asked for
	jit     lookup[addr.Abs] // nil until generated code is asked for
}

// Library returns what the symbols of files come from. It may be changed before the first
// Lookup.
func (p *Process) Library() *debuginfo.Library { return &p.library }

// Open opens a process; its errors are those of procmap.Open.
func Open(pid int) (*Process, error) {
	maps, err := procmap.Open(pid)
	if err != nil {
		return nil, err
	}
	p := &Process{maps: maps, files: map[mappedFile]debuginfo.Symbols{}}
	p.library.Finder.Careful = true
	return p, nil
}

// Close closes everything that was opened for p. The symbols of a Location may lie in there, and
// may not be used any more.
func (p *Process) Close() error {
	var errs []error
	if !p.late {
		errs = append(errs, p.maps.Close())
	}
	for _, c := range p.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Lookup answers for a batch of addresses, in their order. An error means that
// the process could not be asked, because it is gone for instance.
func (p *Process) Lookup(addrs []addr.Abs) ([]Location, error) {
	located, err := p.locate(addrs)
	if err != nil {
		return nil, err
	}
	sites := map[procmap.VMA]*site{}
	var order []*site
	for i := range located {
		l := &located[i]
		if l.File == (procmap.VMA{}) || sites[l.File] != nil {
			continue
		}
		s := &site{file: l.File, identity: l.Identity}
		if s.identity.Reason == reason.Rewritten { // of another page the VMA may have an identity
			continue
		}
		if err := p.visit(s); err != nil {
			return nil, err
		}
		sites[l.File], order = s, append(order, s)
	}
	p.findContested(order)
	places := make([]Location, len(addrs))
	for i := range located {
		l := &located[i]
		if l.File == (procmap.VMA{}) {
			places[i] = p.unmapped(l.Addr)
		} else {
			places[i] = placeOf(l, sites[l.File])
		}
	}
	return places, nil
}

// locate asks for the files of addresses.
func (p *Process) locate(addrs []addr.Abs) (located []procmap.Location, err error) {
	if p.Patiently == nil {
		return p.maps.Locate(addrs)
	}
	answer := make(chan []procmap.Location, 1)
	err = p.Patiently(func() error {
		located, err := p.maps.Locate(addrs)
		answer <- located
		return err
	})
	if err != nil {
		p.late = errors.Is(err, os.ErrDeadlineExceeded)
		return nil, err
	}
	return <-answer, nil
}

// findContested marks the sites in files whose identity others claim.
func (p *Process) findContested(sites []*site) {
	var mappings []contested.Mapping
	for _, s := range sites {
		mappings = append(mappings, contested.Mapping{VMA: s.file, ID: s.identity.ID})
	}
	for i, found := range contested.FindMapped(p.maps, mappings, contested.Limits{}) {
		sites[i].contested, sites[i].content = found.IsContested(), found.Content
	}
}

// kernelHalf is where the addresses of the kernel begin.
const kernelHalf addr.Abs = 1 << 63

// unmapped answers for an address in no VMA.
func (p *Process) unmapped(a addr.Abs) Location {
	if a < kernelHalf {
		return Location{
			Addr:     a,
			Identity: procmap.Identity{Reason: reason.NotMapped},
			Symbol:   symbol.Miss(reason.NoIdentity),
		}
	}
	if p.kernel == nil {
		p.kernel = readKernel(&p.library)
		p.closers = append(p.closers, p.kernel)
	}
	return p.kernel.place(a)
}

// lookup finds the symbol of a kind of address.
type lookup[A addr.Abs | addr.Offset] func(A) symbol.Result

// miss is the lookup that finds nothing.
func miss[A addr.Abs | addr.Offset](why reason.Reason) lookup[A] {
	return func(A) symbol.Result { return symbol.Miss(why) }
}

// A site is what is known of all addresses in one VMA, but for those in rewritten pages.
type site struct {
	file     procmap.VMA // of a procmap.Location
	identity procmap.Identity
	// contested and content are those of a Location.
	contested bool
	content   buildid.Content

	inFile   lookup[addr.Offset] // nil if there is no file
	inMemory lookup[addr.Abs]    // nil if there is one
}

// placeOf returns the Location of a place in a VMA. s is nil for a rewritten page of a VMA of which
// no other page was asked for.
func placeOf(l *procmap.Location, s *site) Location {
	place := Location{
		Addr: l.Addr, Name: cmp.Or(l.File.Path(), l.File.Name), Identity: l.Identity,
		Offset: l.Offset, InFile: l.InFile, Unlooked: l.Unlooked,
	}
	switch {
	case l.Identity.Reason == reason.Rewritten:
		place.Symbol = symbol.Miss(reason.NoIdentity)
		return place
	case l.InFile:
		place.Symbol = s.inFile(l.Offset)
	default:
		place.Symbol = s.inMemory(l.Addr)
	}
	if place.Contested = s.contested; s.contested {
		place.Content = s.content
	}
	return place
}

// visit finds what has the symbols of one VMA.
func (p *Process) visit(s *site) (err error) {
	v := s.file
	switch {
	case v.FileBacked() || v.Kind() == procmap.KindVDSO:
		s.inFile, err = p.tableOf(v, s.identity)
	case s.identity.Reason == reason.Anonymous && v.Perm&procmap.Exec != 0:
		s.inMemory = p.generated()
	default:
		s.inMemory = miss[addr.Abs](reason.NoIdentity)
	}
	return err
}

// mappedFile distinguishes files. A process may map two that have one build ID.
type mappedFile struct {
	id    buildid.ID
	dev   procmap.Dev
	inode uint64
	name  string
}

// tableOf returns what finds the symbols of the file that v maps.
func (p *Process) tableOf(v procmap.VMA, id procmap.Identity) (lookup[addr.Offset], error) {
	if id.ID.IsZero() {
		return miss[addr.Offset](reason.NoIdentity), nil
	}
	file := mappedFile{id.ID, v.Dev, v.Inode, v.Name}
	if f := p.files[file]; f != nil {
		return f.LookupOffset, nil
	}
	f, why, err := p.open(v, id.ID)
	if f == nil || err != nil {
		return miss[addr.Offset](why), err
	}
	p.files[file] = f
	p.closers = append(p.closers, f)
	return f.LookupOffset, nil
}

// open opens the symbols of the file that v maps, from the file or, where that
// cannot be reached, from wherever its identity is found.
func (p *Process) open(v procmap.VMA, id buildid.ID) (debuginfo.Symbols, reason.Reason, error) {
	q := debuginfo.Query{ID: id, Paths: []string{v.Path()}, Local: true}
	r, why, err := p.content(v)
	if err != nil {
		return nil, reason.None, err
	}
	if why == reason.None {
		if q.File, err = symbol.NewFile(r, v.Name); err != nil {
			return nil, unreadable(err), nil
		}
	}
	table, err := p.library.Get(context.Background(), debuginfo.Request{Query: q})
	return table, reason.Of(err), nil
}

// unreadable distinguishes a file that is no ELF file from a broken one.
func unreadable(err error) reason.Reason {
	if errors.Is(err, symbol.ErrNotELF) {
		return reason.NoSymbolTable
	}
	return reason.BadSymbols
}

// content returns what v maps, for reading until p is closed.
func (p *Process) content(v procmap.VMA) (io.ReaderAt, reason.Reason, error) {
	if v.Kind() == procmap.KindVDSO {
		mem, err := p.maps.ReadMemory()
		if err != nil {
			return nil, reason.NotPermitted, nil
		}
		p.closers = append(p.closers, mem)
		return io.NewSectionReader(mem, int64(v.Start), int64(v.End-v.Start)), reason.None, nil
	}
	f, err := p.maps.Open(v)
	if why := reason.Of(err); why != reason.None {
		return nil, why, nil
	}
	if err != nil {
		return nil, reason.None, err
	}
	p.closers = append(p.closers, f)
	return f, reason.None, nil
}
