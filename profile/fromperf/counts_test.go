package fromperf

import (
	"maps"
	"math/rand/v2"
	"testing"

	"hallmark/profile"
)

// byName is what is counted whatever the numbers of processes.
type byName struct {
	stack           uint32
	process, thread string
}

// TestNumbersAreBounded has processes without end. Nothing is lost but numbers, and what had
// its number keeps it.
func TestNumbersAreBounded(t *testing.T) {
	const enough, places, names = 100, 10, 3
	c, random := newCounts(), rand.New(rand.NewPCG(1, 7))
	c.enough = enough
	want := map[byName]int64{}
	var bare int64
	for i := range 20000 {
		place := uint32(random.IntN(places))
		l := profile.Labels{Process: string(rune('a' + random.IntN(names))), Thread: "t"}
		if random.IntN(4) > 0 {
			l.PID = 1 + random.IntN(5+i/10)
			l.TID = l.PID + random.IntN(2)
		}
		at := c.add([]uint32{place}, profile.Walk{}, &l, 2)
		stack := c.all[at].stack
		want[byName{stack, l.Process, l.Thread}] += 2
		switch got := c.owners.all[c.all[at].owner]; {
		case got == l:
		case got != profile.Labels{Process: l.Process, Thread: l.Thread}:
			t.Fatalf("%+v is counted as %+v", l, got)
		default:
			bare++
		}
	}
	got := map[byName]int64{}
	for _, one := range c.all {
		l := c.owners.all[one.owner]
		got[byName{one.stack, l.Process, l.Thread}] += one.weight
	}
	if !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	if most := enough + places*names; len(c.all) > most || len(c.owners.all) > most {
		t.Errorf("%d stacks of %d owners, want at most %d", len(c.all), len(c.owners.all), most)
	}
	if c.bare != bare || bare < 10000 {
		t.Errorf("%d samples without numbers, want %d", c.bare, bare)
	}
}

// TestNumbersAreKept wants the numbers of a stack and owner that were counted early.
func TestNumbersAreKept(t *testing.T) {
	c := newCounts()
	c.enough = 2
	add := func(place uint32, pid int) profile.Labels {
		at := c.add([]uint32{place}, profile.Walk{}, &profile.Labels{PID: pid, TID: pid, Process: "a"}, 1)
		return c.owners.all[c.all[at].owner]
	}
	for _, test := range []struct {
		place     uint32
		pid, want int
	}{{1, 5, 5}, {1, 6, 6}, {1, 5, 5}, {1, 7, 0}, {2, 5, 0}, {1, 6, 6}, {1, 5, 5}, {2, 0, 0}} {
		if got := add(test.place, test.pid); got.PID != test.want || got.TID != test.want {
			t.Errorf("place %d of %d is counted for %+v", test.place, test.pid, got)
		}
	}
	if c.bare != 2 || len(c.all) != 4 {
		t.Errorf("%d without numbers, %d counted", c.bare, len(c.all))
	}
}
