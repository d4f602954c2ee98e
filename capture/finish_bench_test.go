package capture

import (
	"math/rand/v2"
	"testing"

	"hallmark/addr"
	"hallmark/internal/objects"
	"hallmark/profile"
	"hallmark/reason"
	"hallmark/unwind"
)

// BenchmarkManyStacks counts 30,000 stacks, and makes a profile of them.
func BenchmarkManyStacks(b *testing.B) {
	o := objects.New()
	defer o.Close()
	missing := o.Missing(reason.NotMapped)
	var all [][]place
	r := rand.New(rand.NewPCG(1, 1))
	callers := make([]place, 5000)
	for i := range callers {
		callers[i] = place{missing, 0x400000 + uint64(r.IntN(1<<24))}
	}
	for range 30_000 {
		stack := make([]place, 8+r.IntN(32))
		base := r.IntN(200)
		for i := range stack {
			if i < 4 {
				stack[i] = callers[r.IntN(len(callers))]
			} else {
				stack[i] = callers[base+i]
			}
		}
		all = append(all, stack)
	}
	walk := profile.Walk{End: unwind.Complete}
	b.ReportAllocs()
	for b.Loop() {
		s := newStacks()
		for i, stack := range all {
			s.add(stack, walk, profile.Labels{PID: i % 50, Process: "process"}, total{1, 1})
		}
		f := finisher{stacks: s, objects: o, files: map[distinct]*identified{}, ofObject: map[*objects.Object]*identified{}}
		p := f.build(profile.NewBuilder(1))
		if len(p.Sample) < 29_000 || p.Location[0].Address != uint64(addr.Abs(all[0][0].at)) {
			b.Fatal(len(p.Sample))
		}
	}
}
