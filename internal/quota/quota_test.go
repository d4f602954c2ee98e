package quota

import (
	"os"
	"testing"
	"time"
)

// TestPool wants one greedy user to get half, two to get a third each, and a modest one what it asks for.
func TestPool(t *testing.T) {
	const all = 120_000
	for greedy := 1; greedy <= 5; greedy++ {
		p := New(all, 0)
		for range all {
			for user := range greedy {
				p.Take(user0+uint32(user), 1)
			}
		}
		want := int64(all / (greedy + 1))
		for user := range greedy {
			if got := p.taken[user0+uint32(user)]; got < want-1 || got > want+1 {
				t.Errorf("%d users: one has %d of %d, want %d", greedy, got, all, want)
			}
		}
		for range all / (greedy + 2) / 2 {
			if !p.Take(user0+99, 1) {
				t.Fatalf("%d users left nothing for another one", greedy)
			}
		}
	}
}

// user0 is a number that no test runs as.
const user0 = 1 << 30

// TestPoolOneAfterTheOther has greedy users come one after the other: a late one still has the floor, and
// all together take no more than the pool and the floors.
func TestPoolOneAfterTheOther(t *testing.T) {
	const all, floor = 1 << 20, 1000
	p := New(all, floor)
	sum := int64(0)
	for user := range uint32(2 * maxFloors) {
		for p.Take(user0+user, 1) {
		}
		if got := p.taken[user0+user]; user < maxFloors && got < floor {
			t.Errorf("user %d has %d, want %d at least", user, got, floor)
		}
		sum += p.taken[user0+user]
	}
	if sum > all+maxFloors*floor {
		t.Errorf("all took %d", sum)
	}
}

// TestReturn wants what is given back to be there again, for the user and for others, and users who have
// nothing any more to be forgotten.
func TestReturn(t *testing.T) {
	p := New(100, 10)
	for user := range uint32(maxFloors) {
		p.Take(user0+user, 1)
	}
	if p.Charge(user0, 50); p.Has(user0) {
		t.Error("a user has something left after half")
	}
	for user := range uint32(maxFloors) {
		p.Return(user0+user, 1)
	}
	p.Return(user0, 50)
	if len(p.taken) != 0 || p.left != 100 || !p.Has(user0) {
		t.Errorf("%d users have something, %d are left, want none and 100", len(p.taken), p.left)
	}
}

// TestExempt wants root, this user and a pool that is nil to have no bound.
func TestExempt(t *testing.T) {
	p := New(1, 0)
	for _, user := range []uint32{0, uint32(os.Geteuid())} {
		if p.Charge(user, 1<<40); !p.Take(user, 1) {
			t.Errorf("user %d has a bound", user)
		}
	}
	var none *Pool
	if !none.Take(user0, 1) || !none.Has(user0) {
		t.Error("no pool has a bound")
	}
	none.Charge(user0, 1)
}

// TestSpend wants a user without time not to be worked for, and others to be.
func TestSpend(t *testing.T) {
	p, worked := New(2, 0), 0
	for range 3 { // the first time takes more than there is
		p.Spend(user0, func() { worked++; time.Sleep(time.Microsecond) })
	}
	if p.Spend(0, func() { worked++ }); worked != 2 {
		t.Errorf("worked %d times, want 2", worked)
	}
}
