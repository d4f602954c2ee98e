package profile

import (
	"maps"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/reason"
	"hallmark/symbol"
)

// NameGenerated names frames in generated code that have no name, by what each process
// says of its own: the map of a process, nil where there is none. Processes may have other
// code at the same address, and then they get locations of their own.
func NameGenerated(p *pprof.Profile, mapOf func(pid int64) *symbol.PerfMap) {
	n := &generatedNames{profile: p, functions: functionsOf(p), made: map[namedLocation]*pprof.Location{}}
	for _, l := range p.Location {
		n.last = max(n.last, l.ID)
	}
	unnamed := map[int64][]*pprof.Sample{}
	for _, s := range p.Sample {
		if _, pid := Process(s); pid != 0 && slices.ContainsFunc(s.Location, isUnnamedCode) {
			unnamed[pid] = append(unnamed[pid], s)
		}
	}
	// In order, so that the same profile comes out each time, and one after the other: a map
	// may be large, and whoever has many processes may have written as many.
	for _, pid := range slices.Sorted(maps.Keys(unnamed)) {
		names := mapOf(pid)
		if names == nil {
			continue
		}
		for _, s := range unnamed[pid] {
			s.Location = n.named(s.Location, names)
		}
	}
	if len(n.made) > 0 {
		n.dropReplaced()
	}
}

// isUnnamedCode reports whether a location is in generated code of a process.
func isUnnamedCode(l *pprof.Location) bool {
	return !symbolized(l) && l.Mapping != nil && ReasonOf(l.Mapping) == reason.Anonymous && l.Address < 1<<63
}

type generatedNames struct {
	profile   *pprof.Profile
	functions *functions
	made      map[namedLocation]*pprof.Location
	last      uint64 // the highest ID of a location
}

type namedLocation struct {
	unnamed *pprof.Location
	name    string
}

// named returns a stack with names, and leaves the one that it was, which samples may share.
func (n *generatedNames) named(stack []*pprof.Location, names *symbol.PerfMap) []*pprof.Location {
	stack = slices.Clone(stack)
	for i, l := range stack {
		if !isUnnamedCode(l) {
			continue
		}
		frames := names.Lookup(addr.Abs(l.Address)).Frames
		if len(frames) == 0 {
			continue
		}
		key := namedLocation{l, frames[0].Func}
		at := n.made[key]
		if at == nil {
			// Names of their own, that do not keep all those of the map.
			frames[0].Func, frames[0].Linkage = strings.Clone(frames[0].Func), strings.Clone(frames[0].Linkage)
			key.name = frames[0].Func
			n.last++
			at = &pprof.Location{ID: n.last, Mapping: l.Mapping, Address: l.Address, Line: n.functions.lines(frames)}
			l.Mapping.HasFunctions = true
			n.made[key] = at
			n.profile.Location = append(n.profile.Location, at)
		}
		stack[i] = at
	}
	return stack
}

// dropReplaced takes the locations out that no sample has any more.
func (n *generatedNames) dropReplaced() {
	used := map[*pprof.Location]bool{}
	for _, s := range n.profile.Sample {
		for _, l := range s.Location {
			used[l] = true
		}
	}
	n.profile.Location = slices.DeleteFunc(n.profile.Location, func(l *pprof.Location) bool {
		return isUnnamedCode(l) && !used[l]
	})
}
