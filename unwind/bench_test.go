package unwind

import (
	"bytes"
	"path/filepath"
	"testing"
)

// BenchmarkBuild makes tables of files in memory.
func BenchmarkBuild(b *testing.B) {
	for _, pattern := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libcrypto.so.3", "/usr/lib/x86_64-linux-gnu/libLLVM.so.19.1"} {
		names, _ := filepath.Glob(pattern)
		for _, name := range names {
			b.Run(filepath.Base(name), func(b *testing.B) {
				raw := readFile(b, name)
				b.ReportAllocs()
				rows := 0
				for b.Loop() {
					table, err := Build(bytes.NewReader(raw), BuildOptions{})
					if err != nil {
						b.Fatal(err)
					}
					rows = table.Rows()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(rows), "ns/row")
			})
		}
	}
}
