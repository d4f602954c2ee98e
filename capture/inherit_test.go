package capture

import (
	"io"
	"os/exec"
	"path/filepath"
	"testing"

	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
	"hallmark/profile"
)

// TestRecordInherited records a process that starts a thread and then a process,
// and wants each counted once. With perf events the thread, too, is given events of its
// own, as when it is started while they are opened.
func TestRecordInherited(t *testing.T) { eachBackend(t, recordInherited) }

func recordInherited(t *testing.T, backend Backend) {
	file := filepath.Join(t.TempDir(), "spawn")
	proctest.Compile(t, "gcc", file, "-O1", "-fno-omit-frame-pointer", "-pthread", "testdata/spawn.c")
	const budget, hz = 400, 499 // ms of each, samples a second
	cmd := exec.Command(file, "400")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	pid := cmd.Process.Pid
	s := startSession(t, Options{Backend: backend, PIDs: []int{pid}, Frequency: hz})
	send(t, in)
	thread := newThread(t, pid)
	if perf, ok := s.sampler.(*perfSampler); ok {
		if err := perf.open(thread); err != nil {
			t.Fatal(err)
		}
	}
	send(t, in)
	send(t, in)
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-done
	r, err := s.Finish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Symbolize(t.Context()); err != nil {
		t.Fatal(err)
	}
	counts := map[bool]int64{} // by whether it is the thread
	for _, sample := range r.Profile.Sample {
		for c := range profile.Calls(sample) {
			if c.Name() == "burn" {
				_, tid := profile.Thread(sample)
				counts[tid == int64(thread)] += sample.Value[0]
			}
		}
	}
	// Each has the CPU time of its budget, of which 200 samples are six deviations from 285
	// if they came by chance, and 400 if they count twice.
	const want = budget * hz / 1000
	for thread, n := range counts {
		if n*2 > want*3 {
			t.Errorf("%d samples of %d ms at %d Hz (thread: %v)", n, budget, hz, thread)
		}
	}
	if counts[true]*2 < want || counts[false]*2 < want {
		t.Errorf("samples are missing: %d in the thread, %d in the process", counts[true], counts[false])
	}
}

func send(t *testing.T, w io.Writer) {
	t.Helper()
	if _, err := w.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
}

// newThread waits for a thread of a process besides the first.
func newThread(t *testing.T, pid int) int {
	t.Helper()
	var tids []int
	testenv.Await(t, "a thread", func() bool {
		tids = otherThreads(uint32(pid))
		return len(tids) > 0
	})
	return tids[0]
}
