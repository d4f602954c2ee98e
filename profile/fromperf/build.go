package fromperf

import (
	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/profile"
	"hallmark/reason"
	"hallmark/symbol"
	"hallmark/unwind"
)

// build makes the profile of what was counted.
func (p *replay) build() *pprof.Profile {
	p.files.settle(p.r.Info())
	b := profile.NewBuilder(samplePeriod(p.event.Attr))
	stacks, owners := p.newStackBuilder(b), p.owners(b)
	move, wall := toWall(p.r.Info(), p.event)
	times := p.timesOf(move)
	for i, c := range p.counts.all {
		sample := b.Count(stacks.build(c.stack), owners[c.owner], c.samples, c.weight)
		if times != nil {
			b.AddTimes(sample, times[i])
		}
	}
	out := b.Profile()
	nameValues(out, p.event)
	out.DurationNanos = int64(p.last - p.first)
	if wall {
		out.TimeNanos = int64(p.first) + move
	}
	out.Comments = append(out.Comments, p.stats.Notes()...)
	return out
}

// owners returns the profile's numbers of the labels.
func (p *replay) owners(b *profile.Builder) []profile.Owner {
	all := make([]profile.Owner, len(p.counts.owners.all))
	for i := range all {
		all[i] = b.Owner(&p.counts.owners.all[i])
	}
	return all
}

// stackBuilder brings stacks and their places into a profile, each of them once.
type stackBuilder struct {
	replay    *replay
	builder   *profile.Builder
	stacks    map[uint32]profile.Stack
	locations []*pprof.Location // by the number of the place
	places    []uint32
	stack     []*pprof.Location
}

func (p *replay) newStackBuilder(b *profile.Builder) *stackBuilder {
	return &stackBuilder{replay: p, builder: b, stacks: map[uint32]profile.Stack{}, locations: make([]*pprof.Location, len(p.known.all))}
}

func (b *stackBuilder) build(number uint32) profile.Stack {
	built, ok := b.stacks[number]
	if ok {
		return built
	}
	places, walk := b.replay.counts.stacks.appendTo(b.places[:0], number)
	b.places = places
	places, walk = b.replay.trusted(places, walk)
	b.stack = b.stack[:0]
	for _, n := range places {
		if b.locations[n] == nil {
			frame := b.replay.frame(&b.replay.known.all[n])
			b.locations[n] = b.builder.Location(&frame)
		}
		b.stack = append(b.stack, b.locations[n])
	}
	built = b.builder.Stack(b.stack, walk)
	b.stacks[number] = built
	return built
}

// frame says what is known of a place, now that all records were read.
func (p *replay) frame(at *place) profile.Frame {
	if at.file != nil && at.file.code != "" {
		return profile.Frame{Reason: reason.Anonymous, Addr: addr.Abs(at.at), Symbols: named(at.file.code)}
	}
	if at.file != nil {
		if at.file.binary == nil {
			if at.file.why == reason.NotRecorded && !at.file.told {
				at.file.told = true
				p.stats.Unrecorded++
			}
			return profile.Frame{Reason: at.file.why, Path: at.file.name, Addr: addr.Abs(at.at)}
		}
		return profile.Frame{Binary: at.file.binary, Offset: addr.Offset(at.at)}
	}
	f := profile.Frame{Reason: at.why, Addr: addr.Abs(at.at)}
	if at.program != "" {
		f.Symbols = named(at.program)
	}
	return f
}

// named is generated code of which only the name is known.
func named(function string) []symbol.Frame {
	return []symbol.Frame{{Func: function, Linkage: function}}
}

// trusted returns a stack without what followed from a table of a file whose identity is
// in doubt, now that all is read.
func (p *replay) trusted(stack []uint32, walk profile.Walk) ([]uint32, profile.Walk) {
	if !walk.Methods.Has(unwind.ByCFI) {
		return stack, walk
	}
	for i, at := range stack {
		if f := p.known.all[at].file; f != nil && f.looked && (f.binary == nil || f.binary.ID != f.by) {
			return stack[:i+1], profile.Walk{End: unwind.NotIdentified, Methods: walk.Methods}
		}
	}
	return stack, walk
}
