package profile_test

import (
	"bytes"
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
	var file bytes.Buffer
	if err := m.Profile.Write(&file); err != nil {
		t.Fatal(err)
	}
	p, err := pprof.Parse(&file)
	if err != nil {
		t.Fatal(err)
	}
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
