package profile

import (
	"context"
	"slices"
	"sync"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/reason"
	"hallmark/symbol"
)

// Symbols answers for the code of files, which it knows by their identity. Its
// method is called by several goroutines at once, by more than there are processors:
// who needs much memory to answer lets the others wait.
type Symbols interface {
	// Lookup returns one Result for each of the offsets in a file. Path of the Binary is
	// where the file was when the profile was made: a place to look, and no proof that
	// the file there now is that one. Segments are the mappings of the profile. When ctx is done, what
	// is not found yet is missed.
	Lookup(ctx context.Context, b *Binary, offsets []addr.Offset) []symbol.Result
}

// A Liner is Symbols that know in less time that they have no source lines.
type Liner interface {
	// Lines answers as Lookup does, or with misses if it has no lines.
	Lines(ctx context.Context, b *Binary, offsets []addr.Offset) []symbol.Result
}

// A Witness is Symbols that know whose word a file is. Others are not asked for a file whose identity is a claim.
type Witness interface {
	// Claimed answers as Lookup does, for a Binary with a Claimant: from a file of that claimant alone.
	Claimed(ctx context.Context, b *Binary, offsets []addr.Offset) []symbol.Result
}

// Misses has for locations without symbols why they have none.
type Misses map[*pprof.Location]reason.Reason

// Symbolize gives functions and lines to the locations of p that have none, and
// returns the reasons for those that stay without. Locations that have lines keep
// what they have; those that only have names, as the symbol tables of a stripped
// file know them, get lines if they are known now. Each file is asked for once,
// several files at the same time. When ctx is done, no further file is asked for: the reason of its
// locations is reason.NotLookedUp, and the error is that of ctx.
func Symbolize(ctx context.Context, p *pprof.Profile, s Symbols) (Misses, error) {
	misses := Misses{}
	files := unsymbolized(p, misses)
	lookup(ctx, files, s)
	functions := functionsOf(p)
	for _, f := range files {
		for i, l := range f.locations {
			frames := f.results[i].Frames
			switch {
			case symbolized(l) && !slices.ContainsFunc(frames, hasLine):
			case len(frames) > 0:
				l.Line = functions.lines(frames)
				noteSymbols(l.Mapping, frames)
			default:
				misses[l] = f.results[i].Reason
			}
		}
	}
	return misses, ctx.Err()
}

// maxSegments bounds the mappings of a file. One that other programs have recorded is in many processes.
const maxSegments = 1 << 10

func hasLine(f symbol.Frame) bool { return f.Line != 0 }

// file is the code of one file that has no symbols yet, or no lines.
type file struct {
	binary    Binary
	locations []*pprof.Location
	named     bool            // all of them have names
	results   []symbol.Result // one for each location
}

// unsymbolized groups the locations without lines by file, in the order of p.
// Those that have no identity to ask for become misses, and those of unknown content
// under an identity that different contents claim.
func unsymbolized(p *pprof.Profile, misses Misses) []*file {
	type key struct {
		id       buildid.ID
		content  buildid.Content
		path     string
		claimant Claimant
	}
	type mapped struct {
		file *file
		why  reason.Reason // there is nothing to ask for
	}
	var files []*file
	binaries, contested := Binaries(p), ContestedIDs(p)
	byKey := map[key]*file{}
	fileOf := func(m *pprof.Mapping) mapped {
		b := binaries[m]
		switch {
		case b.ID.IsZero():
			return mapped{why: reason.NoIdentity}
		case b.Content.IsZero() && b.Claimant == nil && contested[b.ID]:
			return mapped{why: reason.DifferentContent}
		}
		k := key{id: b.ID, content: b.Content, path: b.Path}
		if b.Claimant != nil {
			k.claimant = *b.Claimant
		}
		f := byKey[k]
		if f == nil {
			f = &file{binary: b, named: true}
			byKey[k] = f
			files = append(files, f)
		} else if len(f.binary.Segments) < maxSegments {
			f.binary.Segments = append(f.binary.Segments, b.Segments...)
		}
		return mapped{file: f}
	}
	byMapping := map[*pprof.Mapping]mapped{}
	for _, l := range p.Location {
		if hasSource(l) {
			continue
		}
		at, ok := byMapping[l.Mapping]
		if !ok {
			at = fileOf(l.Mapping)
			byMapping[l.Mapping] = at
		}
		switch {
		case at.file != nil:
			at.file.locations = append(at.file.locations, l)
			at.file.named = at.file.named && symbolized(l)
		case !symbolized(l):
			misses[l] = at.why
		}
	}
	return files
}

// atOnce is how many files are asked for at a time: more than there are processors,
// so that those that have to come from elsewhere do not keep the others waiting.
const atOnce = 16

// lookup fills in the results of the files.
func lookup(ctx context.Context, files []*file, s Symbols) {
	todo := make(chan *file)
	var workers sync.WaitGroup
	for range min(atOnce, len(files)) {
		workers.Go(func() {
			for f := range todo {
				f.lookup(ctx, s)
			}
		})
	}
	for _, f := range files {
		todo <- f
	}
	close(todo)
	workers.Wait()
}

// lookup fills in the results.
func (f *file) lookup(ctx context.Context, s Symbols) {
	offsets := make([]addr.Offset, len(f.locations))
	for i, l := range f.locations {
		offsets[i] = FileOffset(l)
	}
	liner, isLiner := s.(Liner)
	witness, isWitness := s.(Witness)
	switch {
	case ctx.Err() != nil:
		f.results = slices.Repeat([]symbol.Result{symbol.Miss(reason.NotLookedUp)}, len(offsets))
	case f.binary.Claimant != nil && isWitness:
		f.results = witness.Claimed(ctx, &f.binary, offsets)
	case f.binary.Claimant != nil:
		f.results = slices.Repeat([]symbol.Result{symbol.Miss(reason.Unproven)}, len(offsets))
	case isLiner && f.named:
		f.results = liner.Lines(ctx, &f.binary, offsets)
	default:
		f.results = s.Lookup(ctx, &f.binary, offsets)
	}
	for i, r := range f.results {
		f.results[i] = r.Named() // a profile is about functions
	}
}
