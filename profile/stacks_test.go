package profile_test

import (
	"encoding/json"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/profile"
	"hallmark/reason"
	"hallmark/unwind"
)

// TestMeasureStacks counts stacks of every sort: whole ones, kernel threads and those
// that do not say.
func TestMeasureStacks(t *testing.T) {
	b := profile.NewBuilder(1)
	inner := b.Location(&profile.Frame{Binary: &profile.Binary{ID: gnuID(t, 1), Path: "/lib/inner.so"}, Offset: 1})
	outer := b.Location(&profile.Frame{Binary: &profile.Binary{ID: gnuID(t, 2), Path: "/bin/outer"}, Offset: addr.Offset(2)})
	owner := b.Owner(&profile.Labels{PID: 1})
	count := func(end unwind.End, n int64, locations ...*pprof.Location) {
		b.Count(b.Stack(locations, profile.Walk{End: end}), owner, n, n)
	}
	count(unwind.Complete, 90, inner, outer)
	count(unwind.NoRule, 2, inner, outer)
	count(unwind.NoRule, 3, inner)
	count(unwind.NoTable, 1)
	count(unwind.NoUserStack, 50, outer)
	count(unwind.EndUnknown, 7, inner)
	got := profile.MeasureCoverage(b.Profile(), nil).Stacks
	if got == nil || got.Samples != 96 || got.Complete != 90 || got.KernelOnly != 50 || len(got.Gaps) != 2 {
		t.Fatalf("%+v", got)
	}
	first, second := got.Gaps[0], got.Gaps[1]
	want := []profile.StackBinary{
		{File: "/lib/inner.so", BuildID: gnuID(t, 1).String(), Samples: 3},
		{File: "/bin/outer", BuildID: gnuID(t, 2).String(), Samples: 2},
	}
	if first.Reason != reason.NoRule || first.Samples != 5 || len(first.Binaries) != 2 || first.Binaries[0] != want[0] || first.Binaries[1] != want[1] {
		t.Errorf("the largest gap is %+v", first)
	}
	if second.Reason != reason.NoTable || second.Samples != 1 || second.Binaries[0] != (profile.StackBinary{Samples: 1}) {
		t.Errorf("the other gap is %+v", second)
	}
	text, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	var fields struct{ Reason, Text, Advice string }
	if err := json.Unmarshal(text, &fields); err != nil || fields.Reason != "no-rule" || fields.Advice != reason.NoRule.Advice() {
		t.Errorf("in JSON: %s", text)
	}
}

// TestNoStacksTold wants no share where no sample says: other people's profiles.
func TestNoStacksTold(t *testing.T) {
	p := build(t, []profile.Frame{{Reason: reason.NotMapped}})
	if got := profile.MeasureStacks(p); got != nil {
		t.Errorf("%+v", got)
	}
}
