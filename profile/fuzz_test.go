package profile

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"hallmark/internal/proftest"
)

// FuzzRead reads anything as a profile, and does with it what reports and
// exporters do. The memory that it takes must stay in proportion to the input.
func FuzzRead(f *testing.F) {
	compressed, plain := encoded(f)
	f.Add(compressed)
	f.Add(plain)
	f.Add(compress(f, compressed))
	f.Add([]byte("heap profile: 1: 2 [3: 4] @ heap/1\n1: 2 [3: 4] @ 0x1 0x2\n"))
	f.Add([]byte("--- contention\ncycles/second = 1\n1 2 @ 0x1\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		const limit = 1 << 20
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p, err := Read(bytes.NewReader(data), ReadOptions{MaxSize: limit})
		if err != nil {
			if errors.Is(err, ErrTooLarge) && len(data) < limit/2000 {
				t.Fatalf("%d bytes are said to unpack to more than %d", len(data), limit)
			}
			return
		}
		misses, _ := Symbolize(t.Context(), p, &fakeSymbols{names: map[string]string{proftest.AppID: "app"}})
		if err := p.CheckValid(); err != nil {
			t.Fatalf("symbolized profile: %v", err)
		}
		c := MeasureCoverage(p, misses)
		overflow := c.Frames < 0 || c.Frames > 1<<32 // the counts in a profile may be anything
		if !overflow && (c.Identified > c.Frames || c.Symbolized > c.Frames || c.FileIdentified > c.FileFrames) {
			t.Errorf("impossible coverage %+v", c)
		}
		for _, s := range p.Sample {
			for call := range Calls(s) {
				if call.Name() == "" {
					t.Errorf("a call without a name at %#x", call.Location.Address)
				}
			}
		}
		runtime.ReadMemStats(&after)
		if spent := after.TotalAlloc - before.TotalAlloc; spent > 256*limit {
			t.Errorf("%d bytes of input took %d bytes of memory", len(data), spent)
		}
	})
}
