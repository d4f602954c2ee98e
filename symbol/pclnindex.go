package symbol

import (
	"math"
	"slices"

	"hallmark/addr"
)

// goPart makes an indexPart of a pclntab.
type goPart struct {
	*goTable
	part      *indexPart
	base      uint64
	functions map[goFunction]int32
	sites     map[partSite]int32
	lists     [3]goList // of a function
	cuts      []uint64  // addresses of a function where its answer may change
	frames    []Frame
	budget    int // steps that may still be taken
}

type goFunction struct {
	name string
	line int
}

// maxSteps bounds the steps through all tables of a pclntab by its size. Functions may
// share tables, and a hostile one has nothing but functions that do.
const maxSteps = 16

// indexPart returns the functions of the pclntab that are wanted as a part, and false
// if its tables are longer than their bytes.
func (t *goTable) indexPart(base uint64, wanted func(pc uint64) bool) (*indexPart, bool) {
	p := goPart{
		goTable: t, part: &indexPart{from: newPartTables()}, base: base,
		functions: map[goFunction]int32{}, sites: map[partSite]int32{},
		budget: 1<<20 + maxSteps*len(t.Data),
	}
	for i := range t.NFunc {
		f := t.function(i)
		if f.Entry < base || f.End-base > math.MaxUint32 || !wanted(f.Entry) {
			continue
		}
		p.add(i, &f)
		if p.budget < 0 {
			return nil, false
		}
	}
	p.part.findRuns()
	return p.part, true
}

// add adds the pieces of function i.
func (p *goPart) add(i uint64, f *goFunc) {
	p.cuts = append(p.cuts[:0], f.Entry)
	for list, off := range []uint32{f.PCFile, f.PCLn, f.pcinline} {
		p.decode(&p.lists[list], off, f)
		p.cuts = append(p.cuts, p.lists[list].ends...)
	}
	f.decoded = p.lists[:]
	slices.Sort(p.cuts)
	for _, pc := range slices.Compact(p.cuts) {
		if pc < f.End {
			p.piece(i, f, pc)
		}
	}
	p.part.pieces = append(p.part.pieces, partPiece{start: uint32(f.End - p.base), site: siteNone})
}

// decode decodes a list of a function, up to its end.
func (p *goPart) decode(l *goList, off uint32, f *goFunc) {
	l.off, l.ends, l.values = off, l.ends[:0], l.values[:0]
	pc := f.Entry
	p.EachValue(off, func(value int32, advance uint32) bool {
		before := pc
		if pc += uint64(advance) * p.Quantum; pc < before { // beyond all addresses
			return false
		}
		l.ends, l.values = append(l.ends, pc), append(l.values, value)
		p.budget--
		return pc < f.End && p.budget >= 0
	})
}

// piece adds the piece of function i that starts at pc. Of functions that overlap, another one may
// answer there.
func (p *goPart) piece(i uint64, f *goFunc, pc uint64) {
	var frames []Frame
	if at, ok := p.Search(pc); ok && at == i {
		p.frames = p.goTable.frames(p.frames[:0], f, pc)
		frames = p.frames
	} else {
		frames = p.find(addr.Virt(pc))
	}
	piece := partPiece{start: uint32(pc - p.base), site: siteNone}
	if len(frames) > 0 {
		piece.line = uint32(frames[0].Line)
	}
	for i := len(frames) - 1; i >= 0; i-- {
		site := partSite{parent: -1, function: p.functionNumber(&frames[i]), file: p.part.from.file([]byte(frames[i].File)), source: SourcePclntab}
		if i+1 < len(frames) {
			site.parent, site.callLine = piece.site, uint32(frames[i+1].Line)
		}
		piece.site = p.siteNumber(site)
	}
	p.budget -= len(frames)
	p.part.pieces = append(p.part.pieces, piece)
}

func (p *goPart) functionNumber(f *Frame) int32 {
	key := goFunction{f.Linkage, f.Start}
	n, ok := p.functions[key]
	if !ok {
		n = p.part.from.add(f.Linkage, uint32(f.Start), LangGo)
		p.functions[key] = n
	}
	return n
}

func (p *goPart) siteNumber(site partSite) int32 {
	n, ok := p.sites[site]
	if !ok {
		n = int32(len(p.part.sites))
		p.part.sites = append(p.part.sites, site)
		p.sites[site] = n
	}
	return n
}
