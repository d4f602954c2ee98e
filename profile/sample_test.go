package profile

import (
	"errors"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/proftest"
)

func TestSampleIndex(t *testing.T) {
	p := proftest.Mixed()
	for _, test := range []struct {
		names []string
		want  int
	}{
		{[]string{""}, 1},
		{[]string{"cpu"}, 1},
		{[]string{"samples"}, 0},
		{[]string{"inuse_space", "samples", ""}, 0},
		{[]string{"inuse_space", ""}, 1},
	} {
		if got, err := SampleIndex(p, test.names...); err != nil || got != test.want {
			t.Errorf("SampleIndex(%q) = %d, %v; want %d", test.names, got, err, test.want)
		}
	}
	if _, err := SampleIndex(p, "inuse_space"); err == nil || !strings.Contains(err.Error(), "samples, cpu") {
		t.Errorf("error %v does not list the types", err)
	}
	if _, err := SampleIndex(&pprof.Profile{}, ""); !errors.Is(err, ErrNoSampleType) {
		t.Errorf("error %v, want %v", err, ErrNoSampleType)
	}
}
