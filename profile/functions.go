package profile

import (
	"slices"

	pprof "github.com/google/pprof/profile"

	"hallmark/symbol"
)

// functions finds or adds a profile's functions, each of which is there once.
type functions struct {
	p     *pprof.Profile
	known map[functionName]*pprof.Function
	ids   map[uint64]bool
	next  uint64 // no ID below it is free
}

type functionName struct {
	name, linkage, file string
	start               int64
}

func functionsOf(p *pprof.Profile) *functions {
	fs := &functions{p: p, known: map[functionName]*pprof.Function{}, ids: map[uint64]bool{}, next: 1}
	for _, f := range p.Function {
		fs.known[functionName{f.Name, f.SystemName, f.Filename, f.StartLine}] = f
		fs.ids[f.ID] = true
	}
	return fs
}

func (fs *functions) lines(frames []symbol.Frame) []pprof.Line {
	lines := make([]pprof.Line, len(frames))
	for i, f := range frames {
		lines[i] = pprof.Line{Function: fs.function(f), Line: int64(f.Line)}
	}
	return lines
}

func (fs *functions) function(f symbol.Frame) *pprof.Function {
	n := functionName{f.Func, f.Linkage, f.File, int64(f.Start)}
	if have := fs.known[n]; have != nil {
		return have
	}
	for fs.ids[fs.next] {
		fs.next++
	}
	added := &pprof.Function{ID: fs.next, Name: n.name, SystemName: n.linkage, Filename: n.file, StartLine: n.start}
	fs.next++
	fs.known[n] = added
	fs.p.Function = append(fs.p.Function, added)
	return added
}

// NameUnknown gives the locations without symbols, but for those that NameStarts named,
// the function of UnknownName: one for all of them in a binary. It is for showing a
// profile: one to be kept is better without. Nothing takes such a function for a symbol
// (IsUnnamed): Symbolize replaces it once the name is known.
func NameUnknown(p *pprof.Profile) {
	functions := functionsOf(p)
	for _, l := range p.Location {
		if !shown(l) {
			l.Line = functions.lines([]symbol.Frame{{Func: UnknownName(l.Mapping), Linkage: UnnamedCode}})
		}
	}
}

// shown reports whether a function is known at l, or where one starts.
func shown(l *pprof.Location) bool {
	return slices.ContainsFunc(l.Line, func(line pprof.Line) bool { return named(line.Function) })
}
