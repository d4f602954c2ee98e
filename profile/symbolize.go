package profile

import (
	"runtime"
	"sync"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/reason"
	"hallmark/symbol"
)

// Symbols answers for the code of files, which it knows by their identity. Its
// method may be called by several goroutines at once.
type Symbols interface {
	// Lookup returns one Result for each of the offsets in the file whose
	// identity is id. path is where the file was when the profile was made: a
	// place to look, and no proof that what is there now is that file.
	Lookup(id buildid.ID, path string, offsets []addr.Offset) []symbol.Result
}

// Misses tells for locations without symbols why they have none.
type Misses map[*pprof.Location]reason.Reason

// Symbolize gives functions and lines to the locations of p that have none, and
// returns the reasons for those that stay without. Locations that have symbols
// keep them. Each file is asked for once, several files at the same time.
func Symbolize(p *pprof.Profile, s Symbols) Misses {
	misses := Misses{}
	files := unsymbolized(p, misses)
	lookup(files, s)
	functions := functionsOf(p)
	for _, f := range files {
		for i, l := range f.locations {
			if frames := f.results[i].Frames; len(frames) > 0 {
				l.Line = functions.lines(frames)
				noteSymbols(l.Mapping, frames)
			} else {
				misses[l] = f.results[i].Reason
			}
		}
	}
	return misses
}

// file is the code of one file that has no symbols yet.
type file struct {
	id        buildid.ID
	path      string
	locations []*pprof.Location
	results   []symbol.Result // one for each location
}

// unsymbolized groups the locations without symbols by file, in the order of p.
// Those that have no identity to ask for become misses.
func unsymbolized(p *pprof.Profile, misses Misses) []*file {
	type key struct {
		id   buildid.ID
		path string
	}
	var files []*file
	byKey := map[key]*file{}
	for _, l := range p.Location {
		if symbolized(l) {
			continue
		}
		id, ok := Identity(l.Mapping)
		if !ok {
			misses[l] = reason.NoIdentity
			continue
		}
		k := key{id, l.Mapping.File}
		if byKey[k] == nil {
			byKey[k] = &file{id: k.id, path: k.path}
			files = append(files, byKey[k])
		}
		byKey[k].locations = append(byKey[k].locations, l)
	}
	return files
}

// lookup fills in the results of the files, as many at a time as there are
// processors.
func lookup(files []*file, s Symbols) {
	todo := make(chan *file)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(files)) {
		workers.Go(func() {
			for f := range todo {
				offsets := make([]addr.Offset, len(f.locations))
				for i, l := range f.locations {
					offsets[i] = FileOffset(l)
				}
				f.results = s.Lookup(f.id, f.path, offsets)
			}
		})
	}
	for _, f := range files {
		todo <- f
	}
	close(todo)
	workers.Wait()
}
