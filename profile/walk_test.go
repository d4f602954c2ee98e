package profile_test

import (
	"bytes"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/profile"
	"hallmark/reason"
	"hallmark/unwind"
)

func methods(all ...unwind.Method) (set profile.Methods) {
	for _, m := range all {
		set = set.With(m)
	}
	return set
}

// TestWalksAreLabels writes one stack of one owner found in several ways, and reads
// from pprof's own parser how each ended.
func TestWalksAreLabels(t *testing.T) {
	tests := []struct {
		walk     profile.Walk
		stack    string // labels, "" for none
		unwound  string
		told     bool
		complete bool
	}{
		{profile.Walk{}, "", "", false, false},
		{profile.Walk{End: unwind.Complete, Methods: methods(unwind.ByRegs, unwind.ByCFI)}, "complete", "cfi", true, true},
		{profile.Walk{End: unwind.NoRule, Methods: methods(unwind.ByRegs)}, "no-rule", "regs", true, false},
		{profile.Walk{End: unwind.NotCode, Methods: methods(unwind.BySignal, unwind.ByFP, unwind.ByCFI, unwind.NoMethod)}, "not-executable", "cfi fp signal", true, false},
	}
	b := profile.NewBuilder(1)
	locations := []*pprof.Location{b.Location(&profile.Frame{Reason: reason.Anonymous, Addr: 0x1000})}
	owner := b.Owner(&profile.Labels{PID: 7, Process: "p"})
	for _, test := range tests {
		for range 3 {
			b.Count(b.Stack(locations, test.walk), owner, 1, 1)
		}
	}
	var file bytes.Buffer
	if err := profile.Write(&file, b.Profile()); err != nil {
		t.Fatal(err)
	}
	p, err := pprof.Parse(&file)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Sample) != len(tests) {
		t.Fatalf("%d samples of %d walks", len(p.Sample), len(tests))
	}
	for i, test := range tests {
		s := p.Sample[i]
		end, told := profile.StackEnd(s)
		if s.Value[0] != 3 || told != test.told || (told && end == reason.None) != test.complete {
			t.Errorf("%v: %d samples, %v, told %v", test.walk, s.Value[0], end, told)
		}
		if got := first(s.Label["stack"]); got != test.stack {
			t.Errorf("%v: stack is %q, want %q", test.walk, got, test.stack)
		}
		if got := first(s.Label["unwound"]); got != test.unwound {
			t.Errorf("%v: unwound is %q, want %q", test.walk, got, test.unwound)
		}
		if s.Label["process"][0] != "p" {
			t.Errorf("%v: the labels of the owner are lost", test.walk)
		}
	}
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// TestEveryEndHasACode wants a label for every end, so that none is taken for another.
func TestEveryEndHasACode(t *testing.T) {
	b := profile.NewBuilder(1)
	seen := map[string]unwind.End{}
	for end := unwind.Complete; end <= unwind.FramePointers; end++ {
		s := b.Count(b.Stack(nil, profile.Walk{End: end}), b.Owner(&profile.Labels{}), 1, 1)
		code := first(s.Label["stack"])
		if other, ok := seen[code]; ok || code == "" {
			t.Errorf("ends %d and %d have the code %q", end, other, code)
		}
		seen[code] = end
		if _, ok := profile.StackEnd(s); !ok {
			t.Errorf("end %d cannot be read from %q", end, code)
		}
	}
}

// TestNotOurLabel reads a label of that name that somebody else wrote.
func TestNotOurLabel(t *testing.T) {
	s := &pprof.Sample{Label: map[string][]string{"stack": {"overflow"}}}
	if r, ok := profile.StackEnd(s); ok {
		t.Errorf("taken for %v", r)
	}
}
