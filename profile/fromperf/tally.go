package fromperf

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"hallmark/internal/plaintext"
	"hallmark/perfdata"
)

// EventCount is how many samples a recording has of one event.
type EventCount struct {
	Name    string `json:"event"`
	Samples int64  `json:"samples"`
	Counted bool   `json:"counted"` // they are in the profile
}

// tally is what was counted of one event.
type tally struct {
	event       *perfdata.Event
	order       int // among the events of the file
	counts      *counts
	times       *times // nil when they are not wanted
	samples     int64
	unwalked    int64
	first, last uint64
}

// maxTallies is how many events are counted at once.
const maxTallies = 256

// tallies has what was counted, and chooses of which events.
//
// Unless all events are wanted it is one: of those with the name that is wanted, or of all that
// are no dummies, the first one in the file that has samples. Which one that is shows at the end
// only; so what was counted of an event goes when an earlier one has a sample.
type tallies struct {
	wanted string
	every  bool // count all events
	times  bool
	enough int // of the counts of each
	known  []*perfdata.Event
	orders map[*perfdata.Event]int
	byID   map[uint64]*perfdata.Event
	seen   []int64 // samples, by order
	ranks  []int   // of events that have samples, by order; 0 is not known yet
	all    []*tally
}

// learn takes note of events that a stream reports as it goes on.
func (t *tallies) learn(list []*perfdata.Event) {
	if t.orders == nil {
		t.orders, t.byID = map[*perfdata.Event]int{}, map[uint64]*perfdata.Event{}
	}
	for _, e := range list[len(t.known):] {
		t.orders[e] = len(t.known)
		t.known = append(t.known, e)
		t.seen, t.ranks = append(t.seen, 0), append(t.ranks, 0)
		for _, id := range e.IDs {
			t.byID[id] = e
		}
	}
}

// of returns the tally that a sample of an event goes into, nil for none.
func (t *tallies) of(e *perfdata.Event) *tally {
	order, ok := t.orders[e]
	if !ok || isDummy(e.Attr) {
		return nil
	}
	t.seen[order]++
	at, found := slices.BinarySearchFunc(t.all, order, func(a *tally, order int) int { return cmp.Compare(a.order, order) })
	if found {
		return t.all[at]
	}
	if t.ranks[order] == 0 { // names may come after the events, and before samples
		t.ranks[order] = t.rank(e)
	}
	switch {
	case t.every && len(t.all) == maxTallies, t.ranks[order] == unwanted:
		return nil
	case !t.every && len(t.all) > 0 && !t.precedes(order, t.all[0].order):
		return nil
	case !t.every:
		t.all, at = nil, 0
	}
	fresh := &tally{event: e, order: order, counts: newCounts()}
	fresh.counts.enough = t.enough
	t.all = slices.Insert(t.all, at, fresh)
	if t.times {
		fresh.times = newTimes()
	}
	return fresh
}

// How well the name of an event is the one that is wanted.
const (
	unwanted   = 1 + iota
	likeWanted // without perf's modifiers
	asWanted
)

func (t *tallies) rank(e *perfdata.Event) int {
	switch full := eventName(e); {
	case t.wanted == "" || t.wanted == full:
		return asWanted
	case isNamed(e, t.wanted):
		return likeWanted
	}
	return unwanted
}

// precedes reports whether an event is to be counted rather than another one.
func (t *tallies) precedes(a, b int) bool {
	if x, y := t.ranks[a], t.ranks[b]; x != y {
		return x > y
	}
	return a < b
}

// list returns the events of the file, and how many samples each has.
func (t *tallies) list() []EventCount {
	var all []EventCount
	for i, e := range t.known {
		if isDummy(e.Attr) {
			continue
		}
		counted := slices.ContainsFunc(t.all, func(a *tally) bool { return a.event == e })
		all = append(all, EventCount{Name: eventName(e), Samples: t.seen[i], Counted: counted})
	}
	return all
}

// eventNotes says of which events there is nothing in the profile.
func (s *Stats) eventNotes() []string {
	first := slices.IndexFunc(s.Events, func(e EventCount) bool { return e.Counted })
	if first < 0 || s.named {
		return nil
	}
	var all []string
	if first > 0 && s.Events[0].Samples == 0 {
		all = append(all, fmt.Sprintf("%s is the first event of the file and has no samples: %s has", s.Events[0].Name, s.Events[first].Name))
	}
	if others := s.others(); len(others) > 0 {
		all = append(all, fmt.Sprintf("events of the file that are not counted here: %s (--event NAME counts another one, --event all counts all)", strings.Join(others, ", ")))
	}
	return all
}

// others returns the events that are not counted, with how many samples they have.
func (s *Stats) others() []string {
	const most = 10
	var all []string
	more := 0
	for _, e := range s.Events {
		switch {
		case e.Counted:
		case len(all) == most:
			more++
		default:
			all = append(all, e.String())
		}
	}
	if more > 0 {
		all = append(all, fmt.Sprintf("%d more", more))
	}
	return all
}

// String returns the name, and how many samples there are.
func (e EventCount) String() string {
	switch e.Samples {
	case 0:
		return e.Name + " (no samples)"
	case 1:
		return e.Name + " (1 sample)"
	}
	return fmt.Sprintf("%s (%s)", e.Name, plaintext.Plural(int64(e.Samples), "sample"))
}
