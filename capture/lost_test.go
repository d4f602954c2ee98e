package capture

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/internal/perfring"
	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
	"hallmark/profile"
)

// TestLostIsCounted lets the ring of a busy process overflow before it is read,
// and wants the loss to be counted and to stand in the profile.
func TestLostIsCounted(t *testing.T) {
	needPerf(t)
	pid := proctest.Start(t, proctest.BuildC(t))
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	before, rounds := cpuTimeOf(t, pid), 0
	s := startSession(t, Options{
		Backend:   Perf, // BPF programs count in the kernel
		PIDs:      []int{pid},
		Frequency: 20_000,
		Progress: func(_ time.Duration, seen Stats) {
			if rounds++; seen.Lost > 0 || rounds == 20 {
				cancel()
			}
			// A reader that is far too slow: the process fills its ring in less CPU time.
			for end := cpuTimeOf(t, pid) + 700*time.Millisecond; cpuTimeOf(t, pid) < end && ctx.Err() == nil; {
				time.Sleep(10 * time.Millisecond)
			}
		},
	})
	if err := s.Run(ctx); err != nil {
		t.Fatal(err)
	}
	r, err := s.Finish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := s.Stats(); n.Lost == 0 {
		// It is a loss that was not counted if the process has run for twice as long.
		if ran := cpuTimeOf(t, pid) - before; uint64(ran*20_000/time.Second) > 2*n.Samples {
			t.Fatalf("%d samples of %v, and none were lost", n.Samples, ran)
		}
		testenv.Lack(t, "%d samples, and none were lost", n.Samples)
	}
	if notes := profile.Notes(r.Profile); len(notes) != 1 || !strings.Contains(notes[0], "records were lost") {
		t.Errorf("the profile says %q", notes)
	}
}

// TestLastLossIsCounted lets the ring of a process overflow which then is killed, before the
// ring is read for the first time. So no record reports the loss; the kernel counts it.
func TestLastLossIsCounted(t *testing.T) {
	needPerf(t)
	probe := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_DUMMY, Read_format: perfring.FormatLost}
	fd, err := unix.PerfEventOpen(&probe, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	testenv.Need(t, err == nil, "a kernel that counts lost records (6.0)")
	unix.Close(fd)
	pid := proctest.Start(t, proctest.BuildC(t))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ran time.Duration
	s := startSession(t, Options{
		Backend:   Perf,
		PIDs:      []int{pid},
		Frequency: 20_000,
		Progress: func(time.Duration, Stats) {
			if ctx.Err() != nil {
				return
			}
			before := cpuTimeOf(t, pid)
			testenv.Await(t, "the overflow", func() bool {
				ran = cpuTimeOf(t, pid) - before
				return ran > 2*time.Second
			})
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Error(err)
			}
			testenv.Await(t, "the end", func() bool { return proctest.FirstEnded(pid) })
			cancel()
		},
	})
	if err := s.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := s.Stats()
	if uint64(ran*20_000/time.Second) < 2*n.Samples && n.Lost == 0 {
		testenv.Lack(t, "%d samples of %v, and none were lost", n.Samples, ran)
	}
	if n.Lost == 0 {
		t.Errorf("%d samples of %v, and none were lost", n.Samples, ran)
	}
}

// cpuTimeOf returns how long a process has run.
func cpuTimeOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	var ran unix.Timespec
	// The number of a clock: include/linux/posix-timers.h, CPUCLOCK_SCHED.
	if err := unix.ClockGettime(int32(^pid<<3|2), &ran); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ran.Nano())
}

// TestThrottledIsCounted lowers the kernel's limit while a recording runs above it.
func TestThrottledIsCounted(t *testing.T) { eachBackend(t, throttledIsCounted) }

func throttledIsCounted(t *testing.T, backend Backend) {
	testenv.Root(t)
	const limit = "/proc/sys/kernel/perf_event_max_sample_rate"
	before, err := os.ReadFile(limit)
	if err != nil {
		t.Fatal(err)
	}
	pid := proctest.Start(t, proctest.BuildC(t))
	for name, opts := range map[string]Options{"everything": {SystemWide: true}, "a process": {PIDs: []int{pid}}} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() {
				if err := os.WriteFile(limit, before, 0); err != nil {
					t.Error(err)
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
			defer cancel()
			opts.Backend, opts.Frequency = backend, 10_000
			lowered, after := false, uint64(0)
			opts.Progress = func(_ time.Duration, seen Stats) {
				if !lowered {
					lowered, after = os.WriteFile(limit, []byte("5000"), 0) == nil, seen.Samples
				}
				if seen.Throttled > 0 || lowered && seen.Samples > after+100_000 {
					cancel()
				}
			}
			_, _, stats := recordSession(t, ctx, opts)
			if stats.Throttled == 0 {
				if stats.Samples > after+50_000 {
					t.Fatalf("%d samples, and none were held back", stats.Samples-after)
				}
				testenv.Lack(t, "%d samples with the limit lowered (%v), and none were held back", stats.Samples-after, lowered)
			}
		})
	}
}

// TestRecordsWithoutRoom has no room for a record of a change that waits for its turn: it counts as lost, and what
// processes have mapped is looked at again.
func TestRecordsWithoutRoom(t *testing.T) {
	needPerf(t)
	s := startSession(t, Options{Backend: Perf, PIDs: []int{os.Getpid()}})
	p := s.sampler.(*perfSampler)
	p.drain()
	full := p.sorter
	p.sorter = perfring.Sorter{Most: 1}
	m, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(m)
	if p.drain(); p.stats.Lost == 0 || p.gap.until == 0 {
		t.Errorf("%d records were lost, and there is a gap until %d", p.stats.Lost, p.gap.until)
	}
	if full.Most < maxPending {
		t.Errorf("%d bytes of records may wait", full.Most)
	}
	if _, err := s.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
}
