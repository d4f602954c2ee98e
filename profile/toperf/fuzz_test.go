package toperf

import (
	"bytes"
	"testing"

	"hallmark/internal/proftest"
	"hallmark/perfdata"
	"hallmark/profile"
)

// FuzzWrite writes any profile, and reads what it wrote.
func FuzzWrite(f *testing.F) {
	for _, p := range []func(*bytes.Buffer) error{
		func(b *bytes.Buffer) error { return profile.WriteUncompressed(b, made()) },
		func(b *bytes.Buffer) error { return profile.WriteUncompressed(b, proftest.Mixed()) },
	} {
		var b bytes.Buffer
		if err := p(&b); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := profile.Read(bytes.NewReader(data), profile.ReadOptions{MaxSize: 1 << 20})
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := Write(&out, p, Options{MaxSamples: 1000}); err != nil {
			return
		}
		r, err := perfdata.NewReader(&out, perfdata.ReaderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for {
			rec, err := r.Next()
			if err != nil {
				break
			}
			if bad, ok := rec.(*perfdata.Malformed); ok {
				t.Errorf("%v", bad.Err)
			}
		}
	})
}
