package profile

import (
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

// NameUnknown gives the locations without symbols a function that has the name
// of their binary, or of the reason why they have none: "[libc.so.6]",
// "[not-mapped]". It is for programs that show a profile and would pass over
// them; a profile to be kept is better without.
func NameUnknown(p *pprof.Profile) {
	functions := functionsOf(p)
	for _, l := range p.Location {
		if !symbolized(l) {
			name := UnknownName(l.Mapping)
			l.Line = functions.lines([]symbol.Frame{{Func: name, Linkage: name}})
		}
	}
}
