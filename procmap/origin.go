package procmap

import (
	"os"

	"hallmark/addr"
)

// Programs that want their code in huge pages copy it to anonymous memory, or to
// a memory file, and put that in the place of the file's mapping (mremap). What is
// left of the file on both sides says what was there before.

// maxPieces bounds how many adjacent VMAs the copied code may consist of.
const maxPieces = 64

// Origin returns the file mapping that v, executable memory of no file, has most
// likely taken the place of: a hole in the mappings of one file that v fills,
// alone or with its like, so that the offsets on both sides fit. The VMA returned
// has the addresses and permissions of v, and the file and the offset that were
// there. That it is a copy of the file is not checked: see UnlikeOrigin.
func (p *Process) Origin(v VMA) (file VMA, ok bool, err error) {
	o, ok, err := p.origin(v)
	if err != nil || !ok {
		return VMA{}, false, p.wrap(err)
	}
	return o.fill(v), true, nil
}

// maxCopied bounds the pages of a process that Rewritten compares with their origins: 256 MiB of
// 4 KiB.
const maxCopied = 1 << 16

// UnlikeOrigin returns the pages among these, which are of v, that are not known to have the bytes
// of the Origin of v now. These are all of them where v has none, where its file cannot be opened,
// and where the process moved v or its neighbours meanwhile. It may wait for a file system, and for
// the memory of the process.
func (p *Process) UnlikeOrigin(v VMA, pages []Pages) ([]Pages, error) {
	before, ok, err := p.origin(v)
	if err != nil || !ok {
		return pages, p.wrap(err)
	}
	found := p.unlikeHole(before, v, pages)
	now, ok, err := p.find(v.Start)
	if err != nil {
		return pages, p.wrap(err)
	}
	if !ok || now != v {
		return pages, nil
	}
	after, ok, err := p.origin(v)
	if err != nil || !ok || after != before {
		return pages, p.wrap(err)
	}
	return found, nil
}

// unlikeHole returns the pages of v that have not the bytes of the file that the hole is in, or are
// not known to have them.
func (p *Process) unlikeHole(h hole, v VMA, pages []Pages) []Pages {
	file, err := p.OpenFile(h.below)
	if err != nil {
		return pages
	}
	defer file.Close()
	mem, err := p.ReadMemory()
	if err != nil {
		return pages
	}
	defer mem.Close()
	was := h.fill(v)
	var found pageList
	for _, r := range pages {
		found.differing(mem, file, r, was.FileOffset(r.Start))
	}
	return found
}

// notCopied returns the pages of v, which has an origin, that are not known to have its bytes: those
// beyond the first maxCopied of p as well.
func (p *Process) notCopied(v VMA) ([]Pages, error) {
	page := addr.Abs(os.Getpagesize())
	end := v.Start + page*addr.Abs(granted(&p.copies, maxCopied, int64((v.End-v.Start)/page)))
	var found pageList
	if end > v.Start {
		pages, err := p.UnlikeOrigin(v, []Pages{{v.Start, end}})
		if err != nil {
			return nil, err
		}
		found = pages
	}
	if end < v.End {
		found.add(Pages{end, v.End})
	}
	return found, nil
}

// hole is what surrounds memory that was put in the place of a file's mapping.
type hole struct{ below, above VMA }

// fits reports whether both sides map the same file, with room for the hole.
func (h hole) fits() bool {
	return h.below.sameFile(h.above) &&
		h.below.Offset < h.above.Offset &&
		h.below.FileOffset(h.above.Start) == h.above.Offset
}

// fill returns the file mapping that was where v is now.
func (h hole) fill(v VMA) VMA {
	file := h.below
	file.Start, file.End, file.Perm = v.Start, v.End, v.Perm
	file.Offset = h.below.FileOffset(v.Start)
	return file
}

// origin returns the hole that v is in.
func (p *Process) origin(v VMA) (h hole, ok bool, err error) {
	if !v.copied() {
		return hole{}, false, nil
	}
	h.below, ok, err = p.beside(v, func(w VMA) addr.Abs { return w.Start - 1 })
	if err != nil || !ok {
		return hole{}, false, err
	}
	h.above, ok, err = p.beside(v, func(w VMA) addr.Abs { return w.End })
	if err != nil || !ok || !h.fits() || h.below.sameFile(v) {
		return hole{}, false, err
	}
	return h, true, nil
}

// beside steps from v to its neighbours, over memory that can be part of the same
// copy, up to the first that cannot.
func (p *Process) beside(v VMA, step func(VMA) addr.Abs) (VMA, bool, error) {
	for range maxPieces {
		next, ok, err := p.find(step(v))
		if err != nil || !ok || !next.copied() {
			return next, ok, err
		}
		v = next
	}
	return VMA{}, false, nil
}

// copied reports whether v can be a copy of a file's code.
func (v VMA) copied() bool {
	switch v.Kind() {
	case KindAnonymous, KindMemfd, KindShm, KindHugetlb:
		return v.Perm&Exec != 0
	default:
		return false
	}
}
