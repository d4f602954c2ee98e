package profile_test

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/proftest"
	"hallmark/profile"
)

// TestTimes sends times through pprof's format, and wants them in one of two
// samples that share their labels.
func TestTimes(t *testing.T) {
	m := proftest.New()
	m.Sample("app", 7, 3)
	m.Sample("app", 7, 1)
	m.Profile.Sample[1].NumLabel = m.Profile.Sample[0].NumLabel
	profile.AddTimes(m.Profile.Sample[0], []int64{1_800_000_000_000_000_003, 5})
	profile.AddTimes(m.Profile.Sample[0], []int64{4})
	profile.AddTimes(m.Profile.Sample[1], nil)
	p := throughFile(t, m.Profile)
	got := profile.Times(p.Sample[0])
	slices.Sort(got)
	if want := []int64{4, 5, 1_800_000_000_000_000_003}; !slices.Equal(got, want) {
		t.Errorf("times %v, want %v", got, want)
	}
	if got := profile.Times(p.Sample[1]); got != nil {
		t.Errorf("the other sample has times %v", got)
	}
	if _, pid := profile.Process(p.Sample[0]); pid != 7 {
		t.Errorf("pid %d", pid)
	}
}

// TestBuilderTimes wants in the file what the function AddTimes gives, of samples that have
// no, few and many times, and of one that gets more later.
func TestBuilderTimes(t *testing.T) {
	b := profile.NewBuilder(1)
	plain := proftest.New()
	for i, n := range []int{3, 0, 40, 5, 1000, 999} {
		owner := b.Owner(&profile.Labels{Process: "app", PID: i + 1})
		s := b.Count(b.Stack(nil, profile.Walk{}), owner, 1, 1)
		plain.Sample("app", int64(i+1), 1)
		for range 2 {
			times := make([]int64, n)
			for k := range times {
				times[k] = int64(1e18) + int64(i*k)
			}
			if i == 3 { // has a label of its caller's
				s.NumLabel, s.NumUnit = map[string][]int64{"size": {7}}, map[string][]string{"size": {"bytes"}}
				plain.Profile.Sample[i].NumLabel, plain.Profile.Sample[i].NumUnit = s.NumLabel, s.NumUnit
			}
			b.AddTimes(s, times)
			profile.AddTimes(plain.Profile.Sample[i], times)
		}
	}
	got := throughFile(t, b.Profile())
	for i, s := range throughFile(t, plain.Profile).Sample {
		if !slices.Equal(profile.Times(got.Sample[i]), profile.Times(s)) {
			t.Errorf("sample %d has times %v, want %v", i, profile.Times(got.Sample[i]), profile.Times(s))
		}
		if !reflect.DeepEqual(got.Sample[i].NumUnit, s.NumUnit) {
			t.Errorf("sample %d has units %v, want %v", i, got.Sample[i].NumUnit, s.NumUnit)
		}
	}
}

// throughFile returns what pprof reads of what it wrote.
func throughFile(t *testing.T, p *pprof.Profile) *pprof.Profile {
	t.Helper()
	var file bytes.Buffer
	if err := p.Write(&file); err != nil {
		t.Fatal(err)
	}
	p, err := pprof.Parse(&file)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
