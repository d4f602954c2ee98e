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

// BenchmarkRead is the search alone, of what is in memory already.
func BenchmarkRead(b *testing.B) {
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
