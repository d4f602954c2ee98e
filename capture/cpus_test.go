package capture

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"hallmark/internal/perfring"
	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
)

// TestCPUsComeOnline takes all CPUs away from a recording, as when they go offline,
// and wants samples again when they are found to be online.
func TestCPUsComeOnline(t *testing.T) { eachBackend(t, cpusComeOnline) }

func cpusComeOnline(t *testing.T, backend Backend) {
	testenv.Root(t)
	const enough = 60 // looks, one a second and more: they find the CPUs, and samples come
	proctest.Start(t, proctest.BuildC(t))
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	opts := Options{Backend: backend, SystemWide: true, Frequency: 499}
	var s *Session
	taken, before, rounds := false, uint64(0), 0
	opts.Progress = func(_ time.Duration, seen Stats) {
		if !taken {
			taken = true
			takeCPUs(t, s)
			before = s.Stats().Samples
		} else if rounds++; seen.Samples > before+10 || rounds == enough {
			cancel()
		}
	}
	s = startSession(t, opts)
	if err := s.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	switch after := s.Stats().Samples; {
	case after > before+10 && taken:
	case rounds == enough:
		t.Errorf("%d samples, then %d in %d looks", before, after, rounds)
	default:
		testenv.Lack(t, "%d samples, then %d in %d looks", before, after, rounds)
	}
}

// takeCPUs ends the events of all CPUs, and has what they reported until then counted.
func takeCPUs(t *testing.T, s *Session) {
	t.Helper()
	switch sampler := s.sampler.(type) {
	case *perfSampler:
		perfring.Disable(slices.Concat(sampler.samples, sampler.changes))
		clear(sampler.cpus)
		sampler.drain()
		sampler.sorter.Flush(^uint64(0), sampler.handle)
	case *bpfSampler:
		for _, cpu := range slices.Collect(maps.Keys(sampler.cpus)) {
			if err := sampler.closeCPU(cpu); err != nil {
				t.Error(err)
			}
		}
		if err := sampler.take(); err != nil {
			t.Error(err)
		}
	}
}
