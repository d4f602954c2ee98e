package fromany

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"hallmark/internal/proftest"
	"hallmark/profile"
	"hallmark/profile/otlp"
	"hallmark/profile/toperf"
)

// samples are profiles in each format.
func samples(t testing.TB) map[Kind][]byte {
	t.Helper()
	mixed := proftest.Mixed()
	var pb bytes.Buffer
	if err := mixed.Write(&pb); err != nil {
		t.Fatal(err)
	}
	m, err := otlp.FromProfile(mixed)
	if err != nil {
		t.Fatal(err)
	}
	message, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	var recording bytes.Buffer
	if err := toperf.Write(&recording, mixed, toperf.Options{}); err != nil {
		t.Fatal(err)
	}
	return map[Kind][]byte{
		Pprof: pb.Bytes(), OTLP: message, Perf: recording.Bytes(),
		Folded: []byte("main;walk;step 42\nmain;rest 3\n"),
		Script: []byte("web 123/124 [001] 22977.565696:   10 cpu-clock:u:\n\t    1137 inner+0x2 (/bin/x)\n\n"),
	}
}

func TestRead(t *testing.T) {
	for kind, b := range samples(t) {
		p, got, err := Read(t.Context(), bytes.NewReader(b), int64(len(b)))
		if err != nil || got != kind {
			t.Errorf("%s: %s %v", kind, got, err)
			continue
		}
		n, binaries := Counts(p)
		if n == 0 || p.Stacks().Len() == 0 || kind == Folded && n != 45 || kind == Pprof && binaries < 3 {
			t.Errorf("%s: %d samples, %d binaries, %d stacks", kind, n, binaries, p.Stacks().Len())
		}
	}
}

// TestReadEnds ends with its context, and never with a part of the profile.
func TestReadEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	for kind, b := range samples(t) {
		if p, _, err := Read(ctx, bytes.NewReader(b), int64(len(b))); p != nil || !errors.Is(err, why) {
			t.Errorf("%s: %v %v", kind, p, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, b := range samples(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, _, err := Read(t.Context(), bytes.NewReader(b), int64(len(b)))
		if (p == nil) == (err == nil) {
			t.Fatal(p, err)
		}
		if p == nil {
			return
		}
		if n, binaries := Counts(p); n < 0 || binaries < 0 {
			t.Fatal(n, binaries)
		}
		var out bytes.Buffer
		if err := profile.Write(&out, p.Pprof()); err != nil {
			t.Fatal(err)
		}
	})
}
