package compact

import (
	pprof "github.com/google/pprof/profile"

	"hallmark/profile"
)

// Interesting returns the profile without the frames that it says are not worth to be shown, see
// profile.DropUninteresting: p itself, if it does not say that of any.
func (p *Profile) Interesting() (*Profile, error) {
	if p.dropFrames == "" {
		return p, nil
	}
	places, kinds := p.judge()
	out := &Profile{head: p.head, samples: new(samples), places: placesFrom(places)}
	out.misses = p.misses
	*out.samples = *p.samples
	var all frames
	var stacks vec[stackAt]
	known := make([]stackAt, p.tree.Nodes())
	var stack []uint32
	for row := range p.Samples() {
		node := p.Node(row)
		if known[node].n == 0 && node != 0 {
			stack = interesting(p.appendStack(stack[:0], node), kinds)
			at, list, ok := all.room(len(stack))
			if !ok {
				return nil, errTooMuch
			}
			copy(list, stack)
			known[node] = stackAt{at, uint32(len(stack))}
		}
		stacks.add(known[node])
	}
	out.tree, out.node = buildTree(&all, &stacks, len(p.locations))
	return out, nil
}

// dropped says what becomes of a location below the first one that is interesting.
type dropped uint8

const (
	kept    dropped = iota
	beneath         // what it calls is dropped: some of its inlined calls were
	whole           // it is dropped, and what it calls
)

// judge returns the places without dropped inlined calls, and what becomes of each location. That is for
// pprof's own code to say, which is asked with a stack for each location.
func (p *Profile) judge() (*pprof.Profile, []dropped) {
	places := p.Places()
	user := &pprof.Location{ID: uint64(len(places.Location) + 1)}
	samples := make([]pprof.Sample, len(places.Location))
	for i, l := range places.Location {
		samples[i].Location = []*pprof.Location{l, user}
		places.Sample = append(places.Sample, &samples[i])
	}
	profile.DropUninteresting(places)
	places.Sample = nil
	kinds := make([]dropped, len(samples))
	for i := range samples {
		switch l := places.Location[i]; {
		case len(samples[i].Location) == 1:
			kinds[i] = whole
		case len(l.Line) < len(p.Lines(&p.locations[i])):
			kinds[i] = beneath
		}
	}
	return places, kinds
}

// interesting returns the beginning of a stack, outermost frame first, that is to be shown. Nothing is dropped
// before the first frame that is interesting.
func interesting(stack []uint32, kinds []dropped) []uint32 {
	found := false
	for i, l := range stack {
		switch {
		case kinds[l] == kept:
			found = true
		case found && kinds[l] == whole:
			return stack[:i]
		case found:
			return stack[:i+1]
		}
	}
	return stack
}

// appendStack appends the stack that ends with a node, outermost frame first.
func (p *Profile) appendStack(stack []uint32, node uint32) []uint32 {
	if node != 0 {
		stack = append(p.appendStack(stack, p.tree.Parent(node)), p.tree.Frames(node)...)
	}
	return stack
}
