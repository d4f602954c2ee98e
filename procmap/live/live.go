// Package live answers for the addresses of a running process: which file, which
// offset in it, which function and line.
//
// Everything is asked of the machine at that moment: the mappings of the process,
// the mapped files themselves, prepared indexes and installed debug files, the running
// kernel, and the map that a runtime writes for code which it generates. No server is
// asked.
package live

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/debuginfo"
	"hallmark/internal/contested"
	"hallmark/procmap"
	"hallmark/reason"
	"hallmark/symbol"
)

// Place is what is known of one address. What is not known has a reason in
// Identity and in Symbol.
type Place struct {
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
	maps    *procmap.Process
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

// Close closes everything that was opened for p. The symbols of a Place may lie in there, and
// may not be used any more.
func (p *Process) Close() error {
	errs := []error{p.maps.Close()}
	for _, c := range p.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Lookup answers for a batch of addresses, in their order. An error means that
// the process could not be asked, because it is gone for instance.
func (p *Process) Lookup(addrs []addr.Abs) ([]Place, error) {
	t, err := p.maps.Translate(addrs)
	if err != nil {
		return nil, err
	}
	sites := make([]*site, len(t.VMAs))
	for _, n := range t.Index {
		if n >= 0 && sites[n] == nil {
			if sites[n], err = p.visit(t.VMAs[n]); err != nil {
				return nil, err
			}
		}
	}
	p.findContested(sites)
	places := make([]Place, len(addrs))
	for i, a := range addrs {
		if n := t.Index[i]; n < 0 {
			places[i] = p.unmapped(a)
		} else {
			places[i] = sites[n].place(a)
		}
	}
	return places, nil
}

// findContested marks the sites in files whose identity others claim. A site that was not
// visited is nil.
func (p *Process) findContested(sites []*site) {
	var visited []*site
	var mappings []contested.Mapping
	for _, s := range sites {
		if s != nil {
			visited = append(visited, s)
			mappings = append(mappings, contested.Mapping{VMA: s.file, ID: s.identity.ID})
		}
	}
	for i, found := range contested.FindMapped(p.maps, mappings, contested.Limits{}) {
		visited[i].contested, visited[i].content = found.IsContested(), found.Content
	}
}

// kernelHalf is where the addresses of the kernel begin.
const kernelHalf addr.Abs = 1 << 63

// unmapped answers for an address in no VMA.
func (p *Process) unmapped(a addr.Abs) Place {
	if a < kernelHalf {
		return Place{
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

// A site is what is known of all addresses in one VMA.
type site struct {
	file     procmap.VMA // whose offsets count; the VMA itself or its origin
	identity procmap.Identity
	// contested and content are those of a Place.
	contested bool
	content   buildid.Content
	// rewritten are the pages that the process has rewritten in its memory: not the file's code.
	rewritten []procmap.Pages
	unlooked  error // of a Place

	inFile   lookup[addr.Offset] // nil if there is no file
	inMemory lookup[addr.Abs]    // nil if there is one
}

func (s *site) place(a addr.Abs) Place {
	place := Place{Addr: a, Name: s.file.Name, Identity: s.identity, Contested: s.contested, Unlooked: s.unlooked}
	if s.contested {
		place.Content = s.content
	}
	if path := s.file.Path(); path != "" {
		place.Name = path
	}
	if s.inFile == nil {
		place.Symbol = s.inMemory(a)
		return place
	}
	place.Offset, place.InFile = s.file.FileOffset(a), true
	if slices.ContainsFunc(s.rewritten, func(pages procmap.Pages) bool { return pages.Contains(a) }) {
		place.Identity = procmap.Identity{Reason: reason.Rewritten}
		place.Symbol, place.Contested, place.Content = symbol.Miss(reason.NoIdentity), false, buildid.Content{}
		return place
	}
	place.Symbol = s.inFile(place.Offset)
	return place
}

// visit finds out about one VMA.
func (p *Process) visit(v procmap.VMA) (*site, error) {
	id, err := p.maps.Identity(v)
	if err != nil {
		return nil, err
	}
	s := &site{file: v, identity: id}
	if v.Perm&procmap.Exec != 0 {
		s.rewritten, s.unlooked = p.maps.Rewritten(v)
	}
	if errors.Is(s.unlooked, os.ErrProcessDone) {
		return nil, s.unlooked
	}
	if id.Inferred {
		origin, ok, err := p.maps.Origin(v)
		if err != nil {
			return nil, err
		}
		if ok {
			s.file = origin
		}
	}
	switch {
	case s.file.FileBacked() || v.Kind() == procmap.KindVDSO:
		s.inFile, err = p.tableOf(s.file, id)
	case id.Reason == reason.Anonymous && v.Perm&procmap.Exec != 0:
		s.inMemory = p.generated()
	default:
		s.inMemory = miss[addr.Abs](reason.NoIdentity)
	}
	return s, err
}

// mappedFile tells files apart. A process may map two that have one build ID.
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
	table, why := p.library.Get(context.Background(), debuginfo.Request{Query: q})
	return table, why, nil
}

// unreadable tells a file that is no ELF file from a broken one.
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
	f, why, err := p.maps.Open(v)
	if f == nil {
		return nil, why, err
	}
	p.closers = append(p.closers, f)
	return f, reason.None, nil
}
