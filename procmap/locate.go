package procmap

import (
	"errors"
	"os"
	"slices"

	"hallmark/addr"
	"hallmark/reason"
)

// Location is where in which file the byte at an address of a process is from.
type Location struct {
	Addr addr.Abs

	// Identity is that of the file. Its ID is zero where there is none, and Reason says why:
	// reason.NotMapped where nothing is mapped, reason.Rewritten where the process has rewritten the
	// page in its memory, or the page is not as in the origin.
	Identity Identity

	// File is the VMA of which the offset counts: the one that holds Addr, or where
	// Identity.Inferred its origin. It is zero where nothing is mapped.
	File VMA

	// Offset is that of the byte in the file, if InFile.
	Offset addr.Offset
	InFile bool

	// Unlooked is why nobody knows whether the process has rewritten the page, so that its code is
	// not the file's; nil where that is known.
	Unlooked error
}

// Locate returns the Location of each address of a batch, in their order. It asks once for each
// VMA that holds some of them. An error means that p could not be asked.
func (p *Process) Locate(addrs []addr.Abs) ([]Location, error) {
	t, err := p.Translate(addrs)
	if err != nil {
		return nil, err
	}
	asked := make([][]addr.Abs, len(t.VMAs))
	for i, a := range addrs {
		if n := t.Index[i]; n >= 0 {
			asked[n] = append(asked[n], a)
		}
	}
	areas := make([]area, len(t.VMAs))
	for i, v := range t.VMAs {
		if areas[i], err = p.area(v, asked[i]); err != nil {
			return nil, err
		}
	}
	all := make([]Location, len(addrs))
	for i, a := range addrs {
		if n := t.Index[i]; n >= 0 {
			all[i] = areas[n].locate(a)
		} else {
			all[i] = Location{Addr: a, Identity: Identity{Reason: reason.NotMapped}}
		}
	}
	return all, nil
}

// area is what all addresses in one VMA have in common.
type area struct {
	file      VMA // of a Location
	identity  Identity
	rewritten []Pages
	unlooked  error
}

// area returns what addresses in a VMA have in common.
func (p *Process) area(v VMA, asked []addr.Abs) (a area, err error) {
	a.file = v
	if a.identity, err = p.Identity(v); err != nil {
		return area{}, err
	}
	if a.identity.Inferred {
		err = p.inferred(v, asked, &a)
		return a, err
	}
	if v.Perm&Exec != 0 {
		a.rewritten, a.unlooked = p.Rewritten(v)
	}
	if errors.Is(a.unlooked, os.ErrProcessDone) {
		return area{}, a.unlooked
	}
	return a, nil
}

// inferred fills in an area that has an origin. Only the pages that are asked for are compared with
// it: programs copy more code than anybody would wait for.
func (p *Process) inferred(v VMA, asked []addr.Abs, a *area) error {
	origin, ok, err := p.Origin(v)
	if err != nil {
		return err
	}
	if ok {
		a.file = origin
	}
	a.rewritten, err = p.UnlikeOrigin(v, pagesOf(asked))
	return err
}

// pagesOf returns the pages that addresses are in.
func pagesOf(addrs []addr.Abs) []Pages {
	page := addr.Abs(os.Getpagesize())
	starts := make([]addr.Abs, len(addrs))
	for i, a := range addrs {
		starts[i] = a &^ (page - 1)
	}
	slices.Sort(starts)
	var all pageList
	for _, start := range slices.Compact(starts) {
		all.add(Pages{start, start + page})
	}
	return all
}

func (a *area) locate(at addr.Abs) Location {
	l := Location{Addr: at, Identity: a.identity, File: a.file, Unlooked: a.unlooked}
	if l.InFile = a.file.FileBacked() || a.file.Kind() == KindVDSO; l.InFile {
		l.Offset = a.file.FileOffset(at)
	}
	if slices.ContainsFunc(a.rewritten, func(pages Pages) bool { return pages.Contains(at) }) {
		l.Identity = Identity{Reason: reason.Rewritten}
	}
	return l
}
