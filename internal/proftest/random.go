package proftest

import (
	"math/rand/v2"

	pprof "github.com/google/pprof/profile"
)

// Random returns a profile of so many samples with everything that profiles have, the same for
// the same seed.
func Random(seed uint64, samples int) *pprof.Profile {
	r := rand.New(rand.NewPCG(seed, 1))
	p := New().Profile
	p.Comments, p.TimeNanos, p.DurationNanos = []string{"a comment"}, 1e18, 5e9
	for i := range 5 {
		p.Mapping = append(p.Mapping, &pprof.Mapping{ID: uint64(7 * (5 - i)), Start: uint64(i) << 20, Limit: uint64(i+1) << 20, Offset: 4096, File: "/bin/f" + string(rune('a'+i)), BuildID: "ab0" + string(rune('0'+i)), HasFunctions: true})
	}
	for i := range 30 {
		p.Function = append(p.Function, &pprof.Function{ID: 1 << (i % 40), Name: "f" + string(rune('a'+i)), SystemName: "s", Filename: "x.c", StartLine: int64(i)})
	}
	for i := range 60 {
		l := &pprof.Location{ID: uint64(i*i*i*i*i + 1), Address: r.Uint64()}
		if i%7 != 0 {
			l.Mapping = p.Mapping[i%5]
		}
		for range i % 3 {
			l.Line = append(l.Line, pprof.Line{Function: p.Function[r.IntN(30)], Line: r.Int64N(1000)})
		}
		p.Location = append(p.Location, l)
	}
	for range samples {
		s := &pprof.Sample{Value: []int64{r.Int64N(5), r.Int64() >> (14 + r.IntN(49))}}
		for range r.IntN(9) {
			s.Location = append(s.Location, p.Location[r.IntN(2+r.IntN(58))])
		}
		if r.IntN(2) == 0 {
			s.Label = map[string][]string{"process": {"p" + string(rune('a'+r.IntN(5)))}, "x": {"1", "2"}}
			s.NumLabel = map[string][]int64{"pid": {1 + r.Int64N(9)}}
		}
		if r.IntN(3) == 0 {
			if s.NumLabel == nil {
				s.NumLabel = map[string][]int64{}
			}
			s.NumLabel["timestamp"] = []int64{1e18 + r.Int64N(1e9), 1e18 + r.Int64N(1e9)}
			s.NumUnit = map[string][]string{"timestamp": {"nanoseconds", "nanoseconds"}}
		}
		p.Sample = append(p.Sample, s)
	}
	return p
}
