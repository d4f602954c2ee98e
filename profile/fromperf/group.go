package fromperf

import (
	"slices"

	"hallmark/perfdata"
)

// group reads what the samples of a group's leader tell of an event that takes none itself
// (perf record -e '{leader,event}:S'): how much each of its counters has counted.
type group struct {
	member *perfdata.Event
	counts map[counter]uint64 // as it was told last
}

// counter is one of the counters of an event. Those that threads inherit tell in each thread
// what it counted itself, by the number of the first one (since Linux 6.13, and only so).
type counter struct {
	id  uint64
	tid uint32 // 0 where it is not inherited
}

// counted returns how much a sample counts for the event that is wanted: all of it if it
// is of that event; and if it is of the leader of its group, what the event counted since
// the leader's sample before. ok is false if that is nothing.
func (p *replay) counted(s *perfdata.Sample) (weighs int64, ok bool) {
	if p.chosen(p.r.Event()) {
		return weight(p.event.Attr, s), true
	}
	if p.wanted == "" || len(s.Read.Values) < 2 {
		return 0, false
	}
	if p.group.member == nil {
		p.group = group{member: p.member(s), counts: map[counter]uint64{}}
	}
	weighs = p.group.since(s.Read.Values, p.counterThread(s))
	if weighs > 0 {
		p.event = p.group.member
	}
	return weighs, weighs > 0
}

// member returns the event that is wanted if a sample's group has it, nil otherwise.
func (p *replay) member(s *perfdata.Sample) *perfdata.Event {
	for _, e := range p.r.Events() {
		if isNamed(e, p.wanted) && slices.ContainsFunc(s.Read.Values, func(v perfdata.ReadValue) bool { return slices.Contains(e.IDs, v.Event) }) {
			return e
		}
	}
	return nil
}

// counterThread returns the thread whose counters a sample tells of, 0 for those of all.
func (p *replay) counterThread(s *perfdata.Sample) uint32 {
	if e := p.r.Event(); e != nil && e.Attr.Flags&perfdata.AttrInherit != 0 && e.Attr.Fields&perfdata.SampleTID != 0 {
		return s.TID
	}
	return 0
}

// since returns what the event counted since the values before, of the same thread.
func (g *group) since(values []perfdata.ReadValue, tid uint32) int64 {
	var sum uint64
	for _, v := range values {
		if g.member == nil || !slices.Contains(g.member.IDs, v.Event) {
			continue
		}
		at := counter{v.Event, tid}
		if before := g.counts[at]; v.Value > before {
			sum += v.Value - before
		}
		g.counts[at] = v.Value
	}
	return int64(min(sum, 1<<62))
}
