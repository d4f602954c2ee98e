package fromperf

import (
	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/profile"
	"hallmark/reason"
	"hallmark/symbol"
	"hallmark/unwind"
)

// build makes the profile of what was counted of some events, at least one.
func (p *replay) build(events []*tally) *pprof.Profile {
	p.stats.Samples, p.stats.Unwalked, p.stats.Untimed, p.stats.Unnumbered, p.stats.Unrecorded = 0, 0, 0, 0, 0
	p.unrecorded = map[*file]bool{}
	b := profile.NewBuilder(samplePeriod(events[0].event.Attr))
	b.Expect(len(p.known.all), stackCount(events))
	p.files.learnContents(p.known.all)
	first, last := events[0].first, uint64(0)
	move, wall := toWall(p.r.Info(), events[0].event)
	for i, t := range events {
		p.buildEvent(b, t, i, move)
		first, last = min(first, t.first), max(last, t.last)
	}
	out := b.Profile()
	if len(events) == 1 {
		nameValues(out, events[0].event)
	} else {
		nameEvents(out, events)
	}
	out.DurationNanos = int64(last - first)
	if wall {
		out.TimeNanos = int64(first) + move
	}
	out.Comments = append(out.Comments, p.stats.Notes()...)
	return out
}

// stackCount returns how many stacks of owners were counted.
func stackCount(events []*tally) int {
	n := 0
	for _, t := range events {
		n += len(t.counts.all)
	}
	return n
}

// buildEvent adds what was counted of an event, which has the number i in the profile.
func (p *replay) buildEvent(b *profile.Builder, t *tally, i int, move int64) {
	p.stats.Samples += t.samples
	p.stats.Unwalked += t.unwalked
	p.stats.Unnumbered += t.counts.bare
	if t.times != nil {
		p.stats.Untimed += t.times.cut
	}
	b.Apart()
	stacks, owners := p.newStackBuilder(b, t.counts), ownersOf(b, t.counts)
	times := t.timesOf(move)
	for k, c := range t.counts.all {
		stack, owner := stacks.build(c.stack), owners[c.owner]
		if i == 0 {
			sample := b.Count(stack, owner, c.samples, c.weight)
			if times != nil {
				b.AddTimes(sample, times[k])
			}
			continue
		}
		sample := b.Count(stack, owner, c.samples, 0)
		widen(sample, i+2)
		sample.Value[i+1] += c.weight
	}
}

// widen gives a sample at least n values.
func widen(s *pprof.Sample, n int) {
	for len(s.Value) < n {
		s.Value = append(s.Value, 0)
	}
}

// ownersOf returns the profile's numbers of the labels.
func ownersOf(b *profile.Builder, c *counts) []profile.Owner {
	all := make([]profile.Owner, len(c.owners.all))
	for i := range all {
		all[i] = b.Owner(&c.owners.all[i])
	}
	return all
}

// stackBuilder brings stacks and their places into a profile, each of them once.
type stackBuilder struct {
	replay    *replay
	builder   *profile.Builder
	counts    *counts
	stacks    []profile.Stack   // and one more, by the number of the stack; 0 for none
	locations []*pprof.Location // by the number of the place
	places    []uint32
	stack     []*pprof.Location
}

func (p *replay) newStackBuilder(b *profile.Builder, c *counts) *stackBuilder {
	return &stackBuilder{replay: p, builder: b, counts: c, stacks: make([]profile.Stack, len(c.stacks.nodes)), locations: make([]*pprof.Location, len(p.known.all))}
}

func (b *stackBuilder) build(number uint32) profile.Stack {
	if built := b.stacks[number]; built != 0 {
		return built - 1
	}
	places, walk := b.counts.stacks.appendTo(b.places[:0], number)
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
	built := b.builder.Stack(b.stack, walk)
	b.stacks[number] = built + 1
	return built
}

// frame says what is known of a place, now that all records were read.
func (p *replay) frame(at *place) profile.Frame {
	if at.file != nil && at.file.code != "" {
		return profile.Frame{Reason: reason.Anonymous, Addr: addr.Abs(at.at), Symbols: named(at.file.code)}
	}
	if at.file != nil {
		if at.file.binary == nil {
			if at.file.why == reason.NotRecorded && !p.unrecorded[at.file] {
				p.unrecorded[at.file] = true
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
		if f := p.known.all[at].file; f != nil && f.looked && (f.binary == nil || f.binary.Claimed() != f.by) {
			return stack[:i+1], profile.Walk{End: unwind.NotIdentified, Methods: walk.Methods}
		}
	}
	return stack, walk
}
