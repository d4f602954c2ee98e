package unwind

import (
	"os"
	"testing"
)

// BenchmarkBuildGo builds the table of a Go program: this test, or the one that
// HALLMARK_BENCH_GO names.
func BenchmarkBuildGo(b *testing.B) {
	name := os.Getenv("HALLMARK_BENCH_GO")
	if name == "" {
		name, _ = os.Executable()
	}
	f, err := os.Open(name)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(info.Size())
	b.ReportAllocs()
	for b.Loop() {
		t, err := Build(f, BuildOptions{Threads: 1})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(t.Bytes()))/float64(t.Rows()), "bytes/row")
		b.ReportMetric(float64(t.Rows()), "rows")
	}
}
