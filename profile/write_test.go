package profile_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/proftest"
	"hallmark/profile"
)

// everything returns a profile that has a value in every field.
func everything() *pprof.Profile {
	p := proftest.Mixed()
	p.DropFrames, p.KeepFrames = "drop", "keep"
	p.Comments = []string{"one", "two", "three", "one"}
	p.DocURL = "https://example.org"
	p.TimeNanos, p.DurationNanos = math.MinInt64, -1
	p.Mapping[0].HasFunctions, p.Mapping[1].HasFilenames = true, true
	p.Mapping[2].HasLineNumbers, p.Mapping[3].HasInlineFrames = true, true
	p.Location[0].IsFolded = true
	p.Location[0].Line[0].Column = 3
	p.Location[1].Line[0].Function = nil
	p.Location[2].Mapping = nil
	p.Function[0].StartLine, p.Function[0].Filename = math.MaxInt64, "main.c"
	s := p.Sample[0]
	s.Label["empty"], s.Label["many"] = []string{""}, []string{"a", "b", "a"}
	s.NumLabel["bytes"], s.NumLabel["zero"] = []int64{1, -2}, []int64{0}
	s.NumUnit = map[string][]string{"bytes": {"bytes", "kilobytes"}}
	return p
}

// many returns a profile whose samples share stacks and labels, larger than what
// is written at once.
func many(t testing.TB) *pprof.Profile {
	r := rand.New(rand.NewPCG(1, 2))
	b := profile.NewBuilder(10_000_000)
	binary := &profile.Binary{ID: gnuID(t, 1, 2, 3), Path: "/bin/x"}
	for range 5000 {
		var stack []profile.Frame
		for range r.IntN(6) {
			stack = append(stack, profile.Frame{Binary: binary, Offset: 1 << r.IntN(40)})
		}
		b.Add(stack, &profile.Labels{PID: r.IntN(3), Process: "x"}, 1, r.Int64())
	}
	return b.Profile()
}

// TestWriteAsPprof wants the very bytes that pprof writes.
func TestWriteAsPprof(t *testing.T) {
	for name, p := range map[string]*pprof.Profile{
		"empty":      {PeriodType: new(pprof.ValueType)},
		"mixed":      proftest.Mixed(),
		"everything": everything(),
		"many":       many(t),
		"cpu":        proftest.CPU(t),
		"heap":       proftest.Heap(t),
	} {
		var ours, theirs, file bytes.Buffer
		if err := profile.WriteUncompressed(&ours, p); err != nil {
			t.Fatal(err)
		}
		if err := p.WriteUncompressed(&theirs); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(ours.Bytes(), theirs.Bytes()) {
			t.Errorf("%s: %d bytes, pprof writes %d others", name, ours.Len(), theirs.Len())
		}
		if err := profile.Write(&file, p); err != nil {
			t.Fatal(err)
		}
		if p.CheckValid() != nil {
			continue // which pprof writes, but does not read
		}
		back, err := pprof.Parse(&file)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if back.String() != p.String() {
			t.Errorf("%s is another profile when it was read again", name)
		}
	}
}

// TestWriteTellsErrors wants the error of a place that takes only so many bytes.
func TestWriteTellsErrors(t *testing.T) {
	p := many(t)
	var whole bytes.Buffer
	if err := profile.Write(&whole, p); err != nil {
		t.Fatal(err)
	}
	for _, room := range []int{0, 100, whole.Len() - 1} {
		if err := profile.Write(&full{room}, p); err != errFull {
			t.Errorf("with room for %d bytes of %d: %v", room, whole.Len(), err)
		}
	}
}

var errFull = errors.New("no room")

type full struct{ room int }

func (f *full) Write(b []byte) (int, error) {
	if len(b) > f.room {
		return 0, errFull
	}
	f.room -= len(b)
	return len(b), nil
}

func BenchmarkWrite(b *testing.B) {
	p := many(b)
	for name, write := range map[string]func(*bytes.Buffer) error{
		"hallmark": func(w *bytes.Buffer) error { return profile.Write(w, p) },
		"pprof":    func(w *bytes.Buffer) error { return p.Write(w) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := write(new(bytes.Buffer)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
