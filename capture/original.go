package capture

import (
	"bytes"
	"io"

	"hallmark/addr"
	"hallmark/procmap"
)

// Programs that want their code in huge pages put a copy of it, in anonymous memory,
// in the place of the file's mapping. What is left of the mapping on both sides tells
// which file and offset were there (procmap.Process.Origin), and the bytes whether it
// is still the file's code.

const (
	pageSize = 4096
	// maxOriginals bounds what is remembered of a process: pages that were looked
	// at, and areas of code that is no copy.
	maxOriginals = 1 << 14
)

// originals remembers where the anonymous code of a process comes from.
type originals struct {
	pages map[addr.Abs]place // by the page's address; without an object for none
	own   []span             // code of the process's own making
}

// span is a range of addresses.
type span struct{ start, end addr.Abs }

// original returns the place in a file that code of a process was copied from, as long
// as the process runs and the page is the same in both. Else it is generated code.
func (s *objects) original(p *process, a addr.Abs) (place, bool) {
	page := a &^ (pageSize - 1)
	from, known := p.originals.find(page)
	if !known {
		from = s.findOriginal(p, page)
		p.originals.remember(page, from)
	}
	if from.object == nil {
		return place{}, false
	}
	return place{from.object, from.at + uint64(a-page)}, true
}

func (o *originals) find(page addr.Abs) (from place, known bool) {
	for _, v := range o.own {
		if v.start <= page && page < v.end {
			return place{}, true
		}
	}
	from, known = o.pages[page]
	return from, known || len(o.pages)+len(o.own) >= maxOriginals
}

func (o *originals) remember(page addr.Abs, from place) {
	if o.pages == nil {
		o.pages = map[addr.Abs]place{}
	}
	o.pages[page] = from
}

// findOriginal asks the process.
func (s *objects) findOriginal(p *process, page addr.Abs) place {
	proc, err := procmap.Open(int(p.pid))
	if err != nil {
		return place{}
	}
	defer proc.Close()
	v, ok, err := proc.Find(page)
	if err != nil || !ok {
		return place{}
	}
	was, ok, err := proc.Origin(v)
	if err != nil || !ok {
		p.originals.own = append(p.originals.own, span{v.Start, v.End})
		return place{}
	}
	offset := was.FileOffset(page)
	left, ok := leftOf(proc, was)
	if !ok || !isCopy(proc, page, left, offset) {
		return place{}
	}
	return place{s.ofVMA(left, p), uint64(offset)}
}

// leftOf returns what is left of the mapping of a file that was replaced in part.
func leftOf(proc *procmap.Process, was procmap.VMA) (procmap.VMA, bool) {
	vmas, err := proc.All()
	if err != nil {
		return procmap.VMA{}, false
	}
	for _, v := range vmas {
		if v.Dev == was.Dev && v.Inode == was.Inode && v.FileBacked() {
			return v, true
		}
	}
	return procmap.VMA{}, false
}

// isCopy reports whether a page of memory is that of a file at an offset, whatever
// became of the other pages.
func isCopy(proc *procmap.Process, page addr.Abs, left procmap.VMA, offset addr.Offset) bool {
	file, _, err := proc.OpenFile(left)
	if err != nil || file == nil {
		return false
	}
	defer file.Close()
	mem, err := proc.ReadMemory()
	if err != nil {
		return false
	}
	defer mem.Close()
	var have, want [pageSize]byte
	return full(mem, have[:], int64(page)) && full(file.File, want[:], int64(offset)) && bytes.Equal(have[:], want[:])
}

// full reads b from a file at an offset. What is behind the end of a file is 0 in its
// last page.
func full(f io.ReaderAt, b []byte, at int64) bool {
	n, _ := f.ReadAt(b, at)
	return n > 0
}
