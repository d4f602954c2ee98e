package fromperf

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"hallmark/buildid"
	"hallmark/internal/perfgen"
	"hallmark/perfdata"
	"hallmark/unwind"
)

// FuzzRead makes profiles of recordings that are made of the input: valid ones, in which what
// was counted is what Stats says.
func FuzzRead(f *testing.F) {
	random := rand.New(rand.NewPCG(3, 4))
	for form := range 32 {
		data := make([]byte, 700)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		data[0] = byte(form)
		f.Add(data, byte(form))
	}
	f.Fuzz(func(t *testing.T, data []byte, how byte) {
		made := perfgen.Make(data)
		o := perfdata.ReaderOptions{MaxPending: 4 << 20}
		for _, part := range made.Parts {
			o.More = append(o.More, bytes.NewReader(part))
		}
		r, err := perfdata.NewReader(bytes.NewReader(made.Head), o)
		if err != nil {
			return
		}
		defer r.Close()
		id, _ := buildid.New(buildid.GNU, []byte("0123456789abcdefghij"))
		p, stats, err := Read(r, Options{
			All: how&1 != 0, Times: how&2 != 0,
			Tables: func(buildid.ID, string) *unwind.Table { return nil },
			Identify: func(*perfdata.Mmap2, *perfdata.Mmap2) buildid.ID {
				if how&4 != 0 {
					return id
				}
				return buildid.ID{}
			},
		})
		if err != nil {
			return
		}
		if err := p.CheckValid(); err != nil {
			t.Fatal(err)
		}
		var samples, counted int64
		for _, s := range p.Sample {
			samples += s.Value[0]
		}
		for _, e := range stats.Events {
			if e.Counted {
				counted += e.Samples
			}
		}
		if samples != stats.Samples || counted != samples {
			t.Errorf("%d samples in the profile, %+v", samples, stats)
		}
	})
}
