package buildid_test

import (
	"bytes"
	"os"
	"testing"

	"hallmark/buildid"
)

// BenchmarkReadFile is one open, one pread and one close in most cases; the
// comparison with other programs is in bench/id.
func BenchmarkReadFile(b *testing.B) {
	name := "/bin/sh"
	b.ReportAllocs()
	for b.Loop() {
		if _, err := buildid.ReadFile(name); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRead is the search alone.
func BenchmarkRead(b *testing.B) {
	for _, c := range []struct {
		name    string
		content []byte
	}{
		{"linked", linked(forms[0]).Build()},
		{"hash", cases[len(cases)-1].build(forms[0])},
	} {
		b.Run(c.name, func(b *testing.B) {
			count := &counter{r: bytes.NewReader(c.content)}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := buildid.Read(count); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(count.reads)/float64(b.N), "reads/op")
		})
	}
}

func BenchmarkReadSh(b *testing.B) {
	content, err := os.ReadFile("/bin/sh")
	if err != nil {
		b.Fatal(err)
	}
	r := bytes.NewReader(content)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := buildid.Read(r); err != nil {
			b.Fatal(err)
		}
	}
}
