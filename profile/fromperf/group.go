package fromperf

import "hallmark/perfdata"

// group reads what the samples of a group's leader say of events that take none themselves
// (perf record -e '{leader,event}:S'): how much each of the counters has counted.
type group struct {
	counts  map[counter]uint64 // as it was reported last
	members []member           // of the sample at hand
}

// counter is one of the counters of an event. Those that threads inherit count in each thread
// what it counted itself, by the number of the first one (since Linux 6.13, and only so).
type counter struct {
	id  uint64
	tid uint32 // 0 where it is not inherited
}

// member is an event of a group, and how much it counted since the leader's sample before.
type member struct {
	event  *perfdata.Event
	counts uint64
}

// read returns the other events of the group that a sample of an event reports, as far as
// they have counted anything. An event with a period takes samples of its own.
func (g *group) read(s *perfdata.Sample, of *perfdata.Event, byID map[uint64]*perfdata.Event) []member {
	g.members = g.members[:0]
	if len(s.Read.Values) < 2 {
		return nil
	}
	if g.counts == nil {
		g.counts = map[counter]uint64{}
	}
	tid := counterThread(s, of)
	for _, v := range s.Read.Values {
		e := byID[v.Event]
		if e == nil || e == of || e.Attr.Period != 0 {
			continue
		}
		at := counter{v.Event, tid}
		before := g.counts[at]
		g.counts[at] = v.Value
		if v.Value > before {
			g.add(e, v.Value-before)
		}
	}
	return g.members
}

func (g *group) add(e *perfdata.Event, n uint64) {
	for i := range g.members {
		if m := &g.members[i]; m.event == e {
			m.counts = min(m.counts+n, 1<<62)
			return
		}
	}
	g.members = append(g.members, member{e, min(n, 1<<62)})
}

// counterThread returns the thread whose counters a sample reports, 0 for those of all.
func counterThread(s *perfdata.Sample, e *perfdata.Event) uint32 {
	if e.Attr.Flags&perfdata.AttrInherit != 0 && e.Attr.Fields&perfdata.SampleTID != 0 {
		return s.TID
	}
	return 0
}
