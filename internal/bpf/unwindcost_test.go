package bpf

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"hallmark/internal/testenv"
)

// BenchmarkUnwinding says what a sample takes by the kernel's own account of the program:
// without the walk of the kernel's part, by frame pointers (which lead nowhere in these
// programs) and by tables.
func BenchmarkUnwinding(b *testing.B) {
	testenv.Root(b)
	program := buildStacks(b)
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		b.Skip(err)
	}
	defer stats.Close()
	for _, kind := range []string{"recursion", "deep", "qsort", "aligned"} {
		for _, by := range []string{"frame pointers", "tables"} {
			b.Run(kind+"/"+by, func(b *testing.B) {
				s := newTestSampler(b, Options{Unwind: by == "tables", UserOnly: true})
				process := startStill(b, program, kind)
				files := sampleThread(b, s, process.tid, 20*time.Millisecond).files
				if by == "tables" {
					putTables(b, s, files)
				}
				sampleThread(b, s, process.tid, 100*time.Millisecond)
				before, _ := s.objects.Sample.Stats()
				frames := statsOf(b, s).Frames
				for b.Loop() {
					sampleThread(b, s, process.tid, 200*time.Millisecond)
				}
				after, err := s.objects.Sample.Stats()
				if err != nil || after.RunCount == before.RunCount {
					b.Fatalf("%d samples, %v", after.RunCount-before.RunCount, err)
				}
				ns := float64(after.Runtime - before.Runtime)
				b.ReportMetric(ns/float64(after.RunCount-before.RunCount), "ns/sample")
				b.ReportMetric(ns/float64(statsOf(b, s).Frames-frames), "ns/frame")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
