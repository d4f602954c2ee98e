package profile

import (
	"errors"
	"fmt"
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

// TestTypesAsPprof finds types by the rules of pprof's own package.
func TestTypesAsPprof(t *testing.T) {
	types := []string{"objects", "space", "inuse_space", "space", "", "1", "99"}
	names := append([]string{"inuse_objects", "inuse_", "0", "-1", "6", "7", "+2", "other"}, types...)
	for _, byDefault := range append([]string{"other"}, types...) {
		p := &pprof.Profile{DefaultSampleType: byDefault}
		for _, name := range types {
			p.SampleType = append(p.SampleType, &pprof.ValueType{Type: name})
			for _, name := range names {
				want, wantErr := p.SampleIndexByName(name)
				got, err := SampleIndex(p, name)
				if (err == nil) != (wantErr == nil) || err == nil && got != want {
					t.Errorf("%q of %d types, by default %q: %d, %v; pprof has %d, %v", name, len(p.SampleType), byDefault, got, err, want, wantErr)
				}
			}
		}
	}
}

// TestManyTypes wants an error to list some of a million types.
func TestManyTypes(t *testing.T) {
	asked := 0
	typeOf := func(i int) string { asked++; return fmt.Sprint("type", i) }
	const n = 1_000_000
	_, err := TypeIndex(n, typeOf, "", "cpu", "other")
	if err == nil || !strings.Contains(err.Error(), "cpu or other") || !strings.HasSuffix(err.Error(), "and 999980 more") || len(err.Error()) > 1000 {
		t.Errorf("%.2000v", err)
	}
	if asked > 2*n+maxListed {
		t.Errorf("types are asked for %d times", asked)
	}
}
