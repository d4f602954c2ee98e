package capture

import (
	"slices"
	"testing"

	"hallmark/profile"
)

func TestStacksComeBack(t *testing.T) {
	objects := make([]*object, 301)
	for i := range objects {
		objects[i] = &object{index: uint32(i)}
	}
	all := [][]place{
		{},
		{{objects[0], 0}},
		{{objects[300], ^uint64(0)}, {objects[1], 0xffffffff81000000}, {objects[0], 0x1234}},
	}
	s := newStacks()
	for round := range 3 {
		for i, places := range all {
			if !s.add(places, profile.Labels{PID: i}, total{1, 10}) {
				t.Errorf("round %d: stack %d is not counted whole", round, i)
			}
		}
	}
	if len(s.order) != len(all) {
		t.Fatalf("%d entries", len(s.order))
	}
	for i, key := range s.order {
		if got := slices.Collect(s.places(key.stack, objects)); !slices.Equal(got, all[i]) {
			t.Errorf("stack %d came back as %v", i, got)
		}
		if got := s.counts[key]; got.samples != 3 || got.nanos != 30 || s.labels[key.owner].PID != i {
			t.Errorf("stack %d has %+v of %+v", i, got, s.labels[key.owner])
		}
	}
}

// TestStacksAreBounded adds ever new stacks and owners and wants the memory to
// stop growing, and no sample to be lost.
func TestStacksAreBounded(t *testing.T) {
	s := newStacks()
	s.most = 100
	leaf, caller := &object{index: 1}, &object{index: 2}
	const samples = 10_000
	coarse := 0
	for i := range samples {
		if !s.add([]place{{leaf, 7}, {caller, uint64(i)}}, profile.Labels{PID: i, Process: "p"}, total{1, 1}) {
			coarse++
		}
	}
	if len(s.counts) > 2*s.most+1 || len(s.labels) > s.most+2 || len(s.coded) > 2*s.most+1 {
		t.Errorf("%d counts, %d owners, %d stacks", len(s.counts), len(s.labels), len(s.coded))
	}
	sum := int64(0)
	for _, n := range s.counts {
		sum += n.samples
	}
	if sum != samples || coarse != samples-s.most {
		t.Errorf("%d samples are counted, %d of them coarsely; want %d and %d", sum, coarse, samples, samples-s.most)
	}
	if !s.add([]place{{leaf, 7}, {caller, 3}}, profile.Labels{PID: 3, Process: "p"}, total{1, 1}) {
		t.Error("a stack that is known already is not counted whole")
	}
}
