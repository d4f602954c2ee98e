package capture

import (
	"slices"
	"testing"

	"hallmark/internal/objects"
	"hallmark/profile"
	"hallmark/unwind"
)

func TestStacksComeBack(t *testing.T) {
	set := make([]*objects.Object, 301)
	for i := range set {
		set[i] = &objects.Object{Index: uint32(i)}
	}
	all := [][]place{
		{},
		{{set[0], 0}},
		{{set[300], ^uint64(0)}, {set[1], 0xffffffff81000000}, {set[0], 0x1234}},
	}
	walks := []profile.Walk{{}, {End: unwind.Complete}, {End: unwind.NoRule, Methods: profile.Methods(0).With(unwind.ByCFI)}}
	s := newStacks()
	for round := range 3 {
		for i, places := range all {
			if s.add(places, walks[i], profile.Labels{PID: i}, total{1, 10}) != 0 {
				t.Errorf("round %d: stack %d is not counted whole", round, i)
			}
		}
	}
	if s.counts.Len() != len(all) {
		t.Fatalf("%d entries", s.counts.Len())
	}
	for i, key := range s.counts.All() {
		if got := slices.Collect(s.placesOf(key.stack)); !slices.Equal(got, all[i]) || s.walk(key.stack) != walks[i] {
			t.Errorf("stack %d came back as %v, %v", i, got, s.walk(key.stack))
		}
		if got := s.totals[i]; got.samples != 3 || got.nanos != 30 || s.label(key).PID != i {
			t.Errorf("stack %d has %+v of %+v", i, got, s.label(key))
		}
	}
}

// TestStacksAreBounded adds ever new stacks and owners and wants the memory to
// stop growing, and no sample to be lost.
func TestStacksAreBounded(t *testing.T) {
	s := newStacks()
	s.most = 100
	leaf, caller := &objects.Object{Index: 1}, &objects.Object{Index: 2}
	const samples = 10_000
	coarse := int64(0)
	for i := range samples {
		coarse += s.add([]place{{leaf, 7}, {caller, uint64(i)}}, profile.Walk{}, profile.Labels{PID: i, Process: "p"}, total{1, 1})
	}
	if s.counts.Len() > 2*s.most+1 || s.owners.Len() > s.most+2 || s.walks.Len() > 2*s.most+1 || s.places.Len() > 2*s.most+2 {
		t.Errorf("%d counts, %d owners, %d stacks of %d places", s.counts.Len(), s.owners.Len(), s.walks.Len(), s.places.Len())
	}
	whole := int64(0)
	for i, key := range s.counts.All() {
		if s.label(key).PID != 0 {
			whole += s.totals[i].samples
		}
	}
	if sum := sumOf(s); sum != samples || coarse != samples-whole-1 { // PID 0 is kept by chance
		t.Errorf("%d samples are counted, %d of them coarsely; want %d and %d", sum, coarse, samples, samples-whole-1)
	}
	if s.add([]place{{leaf, 7}, {caller, 99}}, profile.Walk{}, profile.Labels{PID: 99, Process: "p"}, total{1, 1}) != 0 {
		t.Error("a stack that is known already is not counted whole")
	}
}

func (s *stacks) label(key counted) profile.Labels { return s.owners.All()[key.owner] }

func sumOf(s *stacks) (sum int64) {
	for _, n := range s.totals {
		sum += n.samples
	}
	return sum
}

// TestShortLivesAreFolded counts the same few stacks in ever new processes: the last
// ones are always distinguished, and all others by their name.
func TestShortLivesAreFolded(t *testing.T) {
	s := newStacks()
	s.most = 100
	leaf := &objects.Object{Index: 1}
	const lives = 10_000
	coarse := int64(0)
	for pid := 1; pid <= lives; pid++ {
		coarse += s.add([]place{{leaf, uint64(pid % 3)}}, profile.Walk{}, profile.Labels{PID: pid, TID: pid, Process: "p"}, total{1, 1})
	}
	if s.counts.Len() > s.most || s.fixed {
		t.Errorf("%d entries for at most %d", s.counts.Len(), s.most)
	}
	last, whole := s.owners.All()[s.owners.Len()-1], int64(0)
	for i, key := range s.counts.All() {
		if s.label(key).PID != 0 {
			whole += s.totals[i].samples
		}
	}
	if last.PID != lives || whole < int64(s.most)/3 {
		t.Errorf("the last process is %+v, %d of the last ones are told apart", last, whole)
	}
	if sum := sumOf(s); sum != lives || coarse != lives-whole {
		t.Errorf("%d samples, %d lost detail, %d did not", sum, coarse, whole)
	}
}
