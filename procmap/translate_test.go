package procmap

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sort"
	"sync"
	"testing"

	"hallmark/addr"
)

func absPages(n uint64) addr.Abs { return addr.Abs(n * page) }

// TestTranslate checks batches of every size against a search of the whole list.
func TestTranslate(t *testing.T) {
	many := start(t, play("many"))
	few := start(t, play("wait"))
	for _, m := range methods(t) {
		for _, pid := range []int{many.pid, few.pid} {
			p := open(t, pid, m)
			list, err := p.All()
			if err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(1, uint64(len(list))))
			for _, n := range []int{0, 1, maxSpans, maxSpans + 1, 200, 1000, 10000} {
				checkTranslation(t, p, list, pick(rng, list, n))
			}
		}
	}
}

// pick chooses addresses in VMAs, at their edges and between them.
func pick(rng *rand.Rand, list []VMA, n int) []addr.Abs {
	var addrs []addr.Abs
	for range n {
		v := list[rng.IntN(len(list))]
		switch rng.IntN(8) {
		case 0:
			addrs = append(addrs, v.Start-1)
		case 1:
			addrs = append(addrs, v.Start)
		case 2:
			addrs = append(addrs, v.End-1)
		case 3:
			addrs = append(addrs, v.End)
		case 4:
			addrs = append(addrs, addr.Abs(rng.Uint64()))
		default:
			addrs = append(addrs, v.Start+addr.Abs(rng.Uint64N(uint64(v.End-v.Start))))
		}
	}
	if n > 2 {
		addrs[0], addrs[1], addrs[2] = 0, ^addr.Abs(0), ^addr.Abs(0)-1
	}
	return addrs
}

func checkTranslation(t *testing.T, p *Process, list []VMA, addrs []addr.Abs) {
	t.Helper()
	asked := slices.Clone(addrs)
	tr, err := p.Translate(addrs)
	if err != nil || len(tr.Index) != len(addrs) {
		t.Fatalf("%d addresses: %d answers, %v", len(addrs), len(tr.Index), err)
	}
	if !slices.Equal(addrs, asked) {
		t.Fatal("Translate changed its argument")
	}
	for i, a := range addrs {
		want, mapped := search(list, a)
		got, ok := tr.At(i)
		if ok != mapped || got != want {
			t.Fatalf("%v, %d addresses: %v is in %v, %v; want %v, %v", p.Method(), len(addrs), a, got, ok, want, mapped)
		}
		if i%(1+len(addrs)/20) != 0 {
			continue
		}
		found, ok, err := p.Find(a)
		if ok != mapped || found != want || err != nil {
			t.Fatalf("%v: Find(%v) = %v, %v, %v; want %v, %v", p.Method(), a, found, ok, err, want, mapped)
		}
	}
	seen := map[VMA]bool{}
	for _, v := range tr.VMAs {
		if seen[v] {
			t.Fatalf("%v is listed twice", v)
		}
		seen[v] = true
	}
}

func search(list []VMA, a addr.Abs) (VMA, bool) {
	i := sort.Search(len(list), func(i int) bool { return list[i].End > a })
	if i < len(list) && list[i].Start <= a {
		return list[i], true
	}
	return VMA{}, false
}

// TestTranslateAllocations checks that a hundred times as many addresses in the
// same VMAs cost hardly an allocation more.
func TestTranslateAllocations(t *testing.T) {
	p := open(t, start(t, play("wait")).pid, Auto)
	code, err := p.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var addrs []addr.Abs
	for i := range 10000 {
		v := code[i%len(code)]
		addrs = append(addrs, v.Start+addr.Abs(i)%(v.End-v.Start))
	}
	count := func(n int) float64 {
		return testing.AllocsPerRun(20, func() {
			if _, err := p.Translate(addrs[:n]); err != nil {
				t.Fatal(err)
			}
		})
	}
	if few, lots := count(100), count(10000); lots > few+2 {
		t.Errorf("%v allocations for 100 addresses, %v for 10,000", few, lots)
	}
}

// TestChurn asks a process that changes its mappings all the time. Whatever the
// moment, lists are in order and answers hold what was asked for.
func TestChurn(t *testing.T) {
	c := start(t, play("churn"))
	for _, m := range methods(t) {
		p := open(t, c.pid, m)
		anchor := mappingOf(t, p, func(v VMA) bool { return v.Kind() == KindFile })
		var wg sync.WaitGroup
		for worker := range 4 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(worker), 2))
				for range 50 {
					if !lookAround(t, p, rng, anchor) {
						return
					}
					runtime.Gosched()
				}
			})
		}
		wg.Wait()
	}
}

// lookAround asks p in every way and reports whether the answers were sound.
func lookAround(t *testing.T, p *Process, rng *rand.Rand, anchor VMA) bool {
	list, err := p.All()
	if err != nil || !inOrder(list) || !slices.Contains(list, anchor) {
		t.Errorf("%v: All: %v\n%v", p.Method(), err, list)
		return false
	}
	addrs := append(pick(rng, list, 200), anchor.Start)
	tr, err := p.Translate(addrs)
	if err != nil {
		t.Errorf("%v: Translate: %v", p.Method(), err)
		return false
	}
	for i, a := range addrs {
		if v, ok := tr.At(i); ok && !v.Contains(a) {
			t.Errorf("%v: %v is said to be in %v", p.Method(), a, v)
			return false
		}
	}
	if v, ok := tr.At(len(addrs) - 1); !ok || v != anchor {
		t.Errorf("%v: %v is in %v, want %v", p.Method(), anchor.Start, v, anchor)
		return false
	}
	return true
}

func inOrder(list []VMA) bool {
	for i := 1; i < len(list); i++ {
		if list[i-1].End > list[i].Start {
			return false
		}
	}
	return true
}
