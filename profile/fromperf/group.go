package fromperf

import (
	"slices"

	"hallmark/perfdata"
)

// group reads what the samples of a group's leader tell of an event that takes none itself
// (perf record -e '{leader,event}:S'): how much each of its counters has counted.
type group struct {
	member *perfdata.Event
	counts map[uint64]uint64 // by the number of the counter, as it was told last
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
		p.group = group{member: p.member(s), counts: map[uint64]uint64{}}
	}
	weighs = p.group.since(s.Read.Values)
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

// since returns what the event counted since the values before.
func (g *group) since(values []perfdata.ReadValue) int64 {
	var sum uint64
	for _, v := range values {
		if g.member == nil || !slices.Contains(g.member.IDs, v.Event) {
			continue
		}
		if before := g.counts[v.Event]; v.Value > before {
			sum += v.Value - before
		}
		g.counts[v.Event] = v.Value
	}
	return int64(min(sum, 1<<62))
}
