package capture

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
	"hallmark/launch"
	"hallmark/profile"
)

// eachFollowing runs a test with every backend that follows processes by programs.
func eachFollowing(t *testing.T, test func(t *testing.T, b Backend)) {
	needBPF(t)
	for _, b := range []Backend{BPF, Stackmap} {
		t.Run(b.String(), func(t *testing.T) { test(t, b) })
	}
}

// TestRecordBriefProcesses records processes that each live for about one period, and
// wants as many samples as the CPU time that the kernel accounted for them gives.
func TestRecordBriefProcesses(t *testing.T) { eachFollowing(t, recordBriefProcesses) }

func recordBriefProcesses(t *testing.T, backend Backend) {
	const processes, ms, hz = 300, 3, 299
	file := proctest.BuildC(t)
	script := fmt.Sprintf("i=0; while [ $i -lt %d ]; do %s %d; i=$((i+1)); done", processes, file, ms)
	c, err := launch.Start([]string{"sh", "-c", script})
	if err != nil {
		t.Fatal(err)
	}
	p, misses, stats := recordSession(t, context.Background(), Options{Backend: backend, Command: c, Frequency: hz})
	c.Wait()
	usage := c.State().SysUsage().(*syscall.Rusage) // with the children that it waited for
	used := time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	want := uint64(used * hz / time.Second)
	if want < processes*ms*hz/1000/2 {
		testenv.Lack(t, "the kernel accounted %v", used)
	}
	if stats.Samples < want/2 || stats.Samples > want*2 {
		t.Errorf("%d samples of %v at %d Hz, want about %d", stats.Samples, used, hz, want)
	}
	counts := samplesByProcess(p, "busy-c")
	if n := sum(counts); n < processes*ms*hz/1000/2 || len(counts) < processes/4 {
		t.Errorf("%d samples in %d of %d processes of %d ms", n, len(counts), processes, ms)
	}
	if backend == Stackmap {
		return // it opens files while they are mapped, and knows nothing of others
	}
	found, id := samplesIn(p, "burn"), proctest.FileID(t, file)
	// The rest is the kernel's, which executes the program: more on a busy machine.
	if found[id] < processes*ms*hz/1000/2 || len(found) != 1 {
		t.Errorf("samples in burn by identity: %v, want about %d in %v", found, processes*ms*hz/1000, id)
	}
	checkIdentified(t, p, misses)
}

// samplesByProcess counts the samples of processes of a name by their numbers.
func samplesByProcess(p *pprof.Profile, name string) map[int64]int64 {
	counts := map[int64]int64{}
	for _, s := range p.Sample {
		if n, pid := profile.Process(s); n == name {
			counts[pid] += s.Value[0]
		}
	}
	return counts
}

func sum(counts map[int64]int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// TestRecordDescendants records a program whose child ends, and leaves a child of its own
// behind that starts a program then, while a stranger runs the same program.
func TestRecordDescendants(t *testing.T) { eachFollowing(t, recordDescendants) }

func recordDescendants(t *testing.T, backend Backend) {
	const ms, hz = 400, 499
	file, done := proctest.BuildC(t), filepath.Join(t.TempDir(), "done")
	stranger := proctest.Start(t, file)
	// The one in brackets is left behind when the first "sh" of the inner script ends.
	inner := fmt.Sprintf("(while [ -d /proc/$PPID/ ] && [ ! -e %[2]s.left ]; do :; done; %[1]s %[3]d; : >%[2]s) &", file, done, ms)
	outer := fmt.Sprintf("sh -c '%s'; : >%[2]s.left; while [ ! -e %[2]s ]; do sleep 0.05; done", inner, done)
	p, _, _ := recordCommand(t, Options{Backend: backend, Frequency: hz}, "sh", "-c", outer)
	if _, err := os.Stat(done); err != nil {
		t.Fatal(err)
	}
	counts := samplesByProcess(p, "busy-c")
	if n := counts[int64(stranger)]; n > 0 {
		t.Errorf("%d samples of a process that was started before", n)
	}
	const want = ms * hz / 1000
	if len(counts) != 1 {
		t.Errorf("samples by process: %v", counts)
	}
	for _, n := range counts {
		if n < want/2 || n > want*2 {
			t.Errorf("%d samples, want about %d", n, want)
		}
	}
	for _, s := range p.Sample {
		if _, pid := profile.Process(s); pid == int64(stranger) || pid == int64(os.Getpid()) {
			t.Fatalf("a sample of process %d", pid)
		}
	}
}

// TestRecordLaterChildren records a running process that starts brief ones later.
func TestRecordLaterChildren(t *testing.T) { eachFollowing(t, recordLaterChildren) }

func recordLaterChildren(t *testing.T, backend Backend) {
	const processes, ms, hz = 60, 3, 499
	file := proctest.BuildC(t)
	cmd := exec.Command("sh", "-c", fmt.Sprintf("read go; i=0; while [ $i -lt %d ]; do %s %d; i=$((i+1)); done", processes, file, ms))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	s := startSession(t, Options{Backend: backend, PIDs: []int{cmd.Process.Pid}, Frequency: hz})
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
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
	n := sum(samplesByProcess(r.Profile, "busy-c"))
	if want := int64(processes * ms * hz / 1000); n < want/2 {
		t.Errorf("%d samples in the children, want about %d", n, want)
	}
}
