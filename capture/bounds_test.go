package capture

import (
	"context"
	"testing"
	"time"

	"hallmark/internal/objects"
	"hallmark/internal/perfring"
	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
	"hallmark/reason"
)

// TestFilesAreForgotten gives out so many serial numbers that all are forgotten,
// and wants samples before and after it in one file.
func TestFilesAreForgotten(t *testing.T) {
	needBPF(t)
	file := proctest.BuildC(t)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	var s *Session
	filled, enough := false, uint64(0)
	s = startSession(t, Options{
		Backend: BPF,
		PIDs:    []int{proctest.Start(t, file)},
		Progress: func(_ time.Duration, seen Stats) {
			sampler := s.sampler.(*bpfSampler)
			switch {
			case !filled && seen.Samples > 50:
				filled = true
				for serial := range uint32(maxFiles) {
					sampler.files[1<<30+serial] = nil
				}
			case enough == 0 && filled && len(sampler.files) < maxFiles:
				enough = seen.Samples + 100
			case enough > 0 && seen.Samples > enough:
				cancel()
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
	misses, err := r.Symbolize(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	switch n := s.Stats().Samples; {
	case enough == 0 && n > 5000:
		t.Errorf("nothing was forgotten in %d samples", n)
	case enough == 0 || n <= enough:
		testenv.Lack(t, "%d samples, nothing was forgotten or nothing came afterwards", n)
	}
	checkIdentified(t, r.Profile, misses)
	if found := samplesIn(r.Profile, "burn"); len(found) != 1 || found[proctest.FileID(t, file)] == 0 {
		t.Errorf("samples in burn: %v", found)
	}
}

// TestInheritedGeneratedCode sees a child in code that its parent, which has ended,
// generated.
func TestInheritedGeneratedCode(t *testing.T) {
	set := objects.New()
	defer set.Close()
	g := set.Generated(&objects.Process{PID: 1 << 22})
	g.Code.Release()
	g.Code.See()
	if frame := g.Code.Frame(0x1000); frame.Reason != reason.Anonymous || frame.Symbols != nil {
		t.Errorf("got %+v", frame)
	}
}

// TestEndedProcessesAreForgotten has a process that generated code and ended.
func TestEndedProcessesAreForgotten(t *testing.T) {
	exits, err := newExits(1)
	if err != nil {
		t.Fatal(err)
	}
	defer exits.close()
	s := &bpfSampler{processes: map[life]*process{}, exits: exits}
	s.tally = &tally{objects: objects.New()}
	defer s.objects.Close()
	now := perfring.Monotonic()
	s.processes[life{pid: 1}] = &process{}
	s.processes[life{pid: 2}] = &process{ended: now}
	s.processes[life{pid: 3}] = &process{ended: now - 2*uint64(reapAfter)}
	s.reap()
	if _, ok := s.processes[life{pid: 3}]; ok || len(s.processes) != 2 {
		t.Errorf("%d processes are left", len(s.processes))
	}
}
