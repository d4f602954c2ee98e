package profile

import (
	"context"

	pprof "github.com/google/pprof/profile"
)

// Resymbolize gives functions and lines to the locations of p, also to those that
// have some already, which keep them only where s has none. It returns the reasons for
// those that stay without, and an error as Symbolize does.
func Resymbolize(ctx context.Context, p *pprof.Profile, s Symbols) (Misses, error) {
	kept := map[*pprof.Location][]pprof.Line{}
	for _, l := range p.Location {
		if symbolized(l) {
			kept[l], l.Line = l.Line, nil
		}
	}
	misses, err := Symbolize(ctx, p, s)
	for l, lines := range kept {
		if !symbolized(l) {
			l.Line = lines
			delete(misses, l)
		}
	}
	dropUnused(p)
	return misses, err
}

// dropUnused takes the functions out of p that no location has any more.
func dropUnused(p *pprof.Profile) {
	used := map[*pprof.Function]bool{}
	for _, l := range p.Location {
		for _, line := range l.Line {
			used[line.Function] = true
		}
	}
	all := p.Function
	p.Function = p.Function[:0]
	for _, f := range all {
		if used[f] {
			p.Function = append(p.Function, f)
		}
	}
	clear(all[len(p.Function):])
}
