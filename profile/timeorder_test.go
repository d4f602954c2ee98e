package profile_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"hallmark/profile"
)

// at is a time and where it is from.
type at struct {
	time        int64
	list, index int
}

// TestTimeOrder compares with a stable sort, for lists in order and not, with times that are equal.
func TestTimeOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		lists := make([][]int64, random.IntN(20))
		var want []at
		for i := range lists {
			for range random.IntN(30) {
				lists[i] = append(lists[i], int64(random.IntN(100))-50)
			}
			if random.IntN(3) > 0 {
				slices.Sort(lists[i])
			}
			for k, time := range lists[i] {
				want = append(want, at{time, i, k})
			}
		}
		slices.SortStableFunc(want, func(a, b at) int { return cmp.Compare(a.time, b.time) })
		o := profile.OrderTimes(lists)
		if o.Len() != len(want) {
			t.Fatalf("%d times of %d", o.Len(), len(want))
		}
		for range 2 { // it can be gone through again
			var got []at
			for list, index := range o.All() {
				got = append(got, at{lists[list][index], list, index})
			}
			if !slices.Equal(got, want) {
				t.Fatalf("of %v the order is %v, want %v", lists, got, want)
			}
		}
	}
}

// TestTimeOrderStops leaves the loop early.
func TestTimeOrderStops(t *testing.T) {
	o := profile.OrderTimes([][]int64{{3, 1}, nil, {2}})
	for list, index := range o.All() {
		if list != 0 || index != 1 {
			t.Errorf("the first is %d of list %d", index, list)
		}
		break
	}
}
