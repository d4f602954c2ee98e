package bpf

import (
	"math"
	"testing"

	"golang.org/x/sys/unix"

	"hallmark/internal/testenv"
)

// BenchmarkStart loads what a recording of everything loads, and reports the least CPU time that
// this took.
func BenchmarkStart(b *testing.B) {
	testenv.Root(b)
	for name, o := range map[string]Options{"all": {Running: true, Unwind: true}, "fp": {Running: true}, "command": {Follow: true, Unwind: true}} {
		b.Run(name, func(b *testing.B) {
			user, system, both := math.Inf(1), math.Inf(1), math.Inf(1)
			b.ReportAllocs()
			for range b.N {
				userBefore, systemBefore := cpuUsed(b)
				s, err := NewSampler(o)
				userAfter, systemAfter := cpuUsed(b)
				if err != nil {
					b.Fatal(err)
				}
				u, k := userAfter-userBefore, systemAfter-systemBefore
				user, system, both = min(user, u), min(system, k), min(both, u+k)
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(user, "user-ms")
			b.ReportMetric(system, "kernel-ms")
			b.ReportMetric(both, "cpu-ms")
		})
	}
}

// cpuUsed returns what this process has used so far, in ms.
func cpuUsed(b *testing.B) (user, system float64) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()) / 1e6, float64(u.Stime.Nano()) / 1e6
}
