package capture

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/backend"
	"hallmark/internal/fstimes"
	"hallmark/internal/leaktest"
	"hallmark/internal/perfring"
	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
	"hallmark/launch"
	"hallmark/profile"
)

// memoryIsBelieved says that temporary files are in memory, so that nothing can be learned about
// file systems whose times say nothing.
var memoryIsBelieved bool

// needTimes ends a test of such file systems.
func needTimes(t testing.TB) {
	t.Helper()
	testenv.Need(t, !memoryIsBelieved, "temporary files on a disk (TMPDIR)")
}

// TestMain makes the test binary its own waiting copy, as main does for
// hallmark, and fails when a test leaves a goroutine or a descriptor behind.
func TestMain(m *testing.M) {
	launch.ExecWhenReady()
	memoryIsBelieved = fstimes.BelieveTemporary()
	os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0") // helpers end at once
	goleak.VerifyTestMain(m, append(leaktest.HeldUpLooks(), goleak.Cleanup(func(status int) {
		heldUp := leaktest.AreHeldUp() // which they may not be any more a moment later
		if left := perfDescriptors(); status == 0 && len(left) > 0 && !heldUp {
			fmt.Fprintln(os.Stderr, "descriptors left open:", left)
			status = 1
		}
		os.Exit(status)
	}))...)
}

// perfDescriptors returns the descriptors of this process that a Session opens. Readers of
// rings wait by epoll, as does the Go runtime, by one.
func perfDescriptors() []string {
	entries, _ := os.ReadDir("/proc/self/fd")
	var left, polls []string
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && (strings.Contains(target, "perf_event") || strings.Contains(target, "pidfd") || strings.Contains(target, "bpf") || strings.HasPrefix(target, "/proc/")) {
			if !strings.HasSuffix(target, "/fd") && !strings.HasSuffix(target, "/mountinfo") { // which stays
				left = append(left, target)
			}
		}
		if strings.Contains(target, "eventpoll") {
			polls = append(polls, target)
		}
	}
	return append(left, polls[min(1, len(polls)):]...)
}

// needPerf ends the test where perf events cannot be opened at all.
func needPerf(t testing.TB) {
	t.Helper()
	err := perfring.Try(false, func(*unix.PerfEventAttr) {})
	testenv.Need(t, err == nil, "perf events (see hallmark doctor)")
}

// eachBackend runs a test with every backend.
func eachBackend(t *testing.T, test func(t *testing.T, b Backend)) {
	t.Run("perf", func(t *testing.T) {
		needPerf(t)
		test(t, Perf)
	})
	t.Run("bpf", func(t *testing.T) {
		needBPF(t)
		test(t, BPF)
	})
}

// triedBPF is what tryBPF says, which loads all programs and looks at what they can be
// attached to: it stays the same, and takes more than most tests.
var triedBPF = sync.OnceValue(func() error {
	_, err := backend.TryBPF()
	return err
})

// needBPF ends the test where the programs cannot be loaded.
func needBPF(t testing.TB) {
	t.Helper()
	testenv.Root(t)
	err := triedBPF()
	testenv.Need(t, err == nil, fmt.Sprint("BPF programs (see hallmark doctor): ", err))
}

// recordCommand records a command to its end.
func recordCommand(t testing.TB, opts Options, args ...string) (*pprof.Profile, profile.Misses, Stats) {
	t.Helper()
	c, err := launch.Start(args)
	if err != nil {
		t.Fatal(err)
	}
	opts.Command = c
	return recordSession(t, context.Background(), opts)
}

// recordUntil records until there are so many samples, which also on a busy machine is only
// a matter of time.
func recordUntil(t testing.TB, opts Options, samples uint64) (*pprof.Profile, profile.Misses, Stats) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	opts.Progress = func(_ time.Duration, seen Stats) {
		if seen.Samples >= samples {
			cancel()
		}
	}
	p, misses, stats := recordSession(t, ctx, opts)
	if stats.Samples < samples {
		testenv.Lack(t, "%d samples in %v, want %d", stats.Samples, testenv.Patience, samples)
	}
	return p, misses, stats
}

func recordSession(t testing.TB, ctx context.Context, opts Options) (*pprof.Profile, profile.Misses, Stats) {
	t.Helper()
	s := startSession(t, opts)
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
	if err := r.Profile.CheckValid(); err != nil {
		t.Fatal(err)
	}
	return r.Profile, misses, s.Stats()
}

// startSession starts a session that is closed with the test.
func startSession(t testing.TB, opts Options) *Session {
	t.Helper()
	if opts.Frequency == 0 {
		opts.Frequency = 499
	}
	s, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// samplesIn counts the samples of p with a function of this name on the stack,
// by the identity of its file.
func samplesIn(p *pprof.Profile, function string) map[buildid.ID]int64 {
	counts := map[buildid.ID]int64{}
	for _, s := range p.Sample {
		for c := range profile.Calls(s) {
			if c.Function != nil && c.Function.Name == function {
				id, _ := profile.Identity(c.Location.Mapping)
				counts[id] += s.Value[0]
				break
			}
		}
	}
	return counts
}

// TestRecordPrograms records programs of every kind of linking, and wants nearly
// every sample in the function that does the work, under the identity that
// readelf reads from the file.
func TestRecordPrograms(t *testing.T) { eachBackend(t, recordPrograms) }

func recordPrograms(t *testing.T, backend Backend) {
	for _, test := range []struct {
		name     string
		build    func(testing.TB, ...string) string
		flags    []string
		function string
		id       func(testing.TB, string) buildid.ID
	}{
		{"go", proctest.BuildGo, nil, "main.spin", proctest.FileID},
		{"go stripped", proctest.BuildGo, []string{"-ldflags=-s -w"}, "main.spin", proctest.FileID},
		{"go pie", proctest.BuildGo, []string{"-buildmode=pie"}, "main.spin", proctest.FileID},
		{"go without gnu note", proctest.BuildGo, []string{"-ldflags=-B none"}, "main.spin", proctest.OwnID},
		{"c pie", proctest.BuildC, nil, "burn", proctest.FileID},
		{"c at a fixed address", proctest.BuildC, []string{"-no-pie"}, "burn", proctest.FileID},
		{"c static", proctest.BuildC, []string{"-static"}, "burn", proctest.FileID},
		{"c static pie", proctest.BuildC, []string{"-static-pie"}, "burn", proctest.FileID},
		{"c 8-byte id", proctest.BuildC, []string{"-Wl,--build-id=0x0102030405060708"}, "burn", proctest.FileID},
		{"c without note", proctest.BuildC, []string{"-Wl,--build-id=none"}, "burn", proctest.OwnID},
		{"c stripped", proctest.BuildC, []string{"-s", "-rdynamic"}, "burn", proctest.FileID},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := test.build(t, test.flags...)
			duration := "150"
			if strings.HasPrefix(test.name, "go") {
				duration = "150ms"
			}
			p, misses, stats := recordCommand(t, Options{Backend: backend}, file, duration)
			want := test.id(t, file)
			found := samplesIn(p, test.function)
			checkMost(t, fmt.Sprintf("%s of %v (%v)", test.function, want, found), found[want], int64(stats.Samples), 0.1)
			checkIdentified(t, p, misses)
		})
	}
}

// checkIdentified wants identities for 99 % of the frames in mapped files. The rest is in
// mappings that change while they are looked at.
func checkIdentified(t testing.TB, p *pprof.Profile, misses profile.Misses) {
	t.Helper()
	judgeIdentified(t, profile.MeasureCoverage(p, misses))
}

func judgeIdentified(t testing.TB, c profile.Coverage) {
	t.Helper()
	what := fmt.Sprintf("frames in files without identity (%+v)", c.Gaps)
	testenv.AtMost(t, what, int64(c.FileFrames-c.FileIdentified), int64(c.FileFrames), 0.01)
}

// checkMost wants all samples of a program but a share to be where it does its work. The rest
// is what it takes to start it, which is as much CPU time on a busy machine.
func checkMost(t testing.TB, where string, there, all int64, others float64) {
	t.Helper()
	testenv.AtMost(t, "samples that are not in "+where, all-there, all, others)
}

// TestRecordLabels wants process, thread, pid and tid of a recorded program.
func TestRecordLabels(t *testing.T) { eachBackend(t, recordLabels) }

func recordLabels(t *testing.T, backend Backend) {
	c, err := launch.Start([]string{proctest.BuildC(t), "200"})
	if err != nil {
		t.Fatal(err)
	}
	p, _, _ := recordSession(t, context.Background(), Options{Backend: backend, Command: c})
	for _, s := range p.Sample {
		name, pid := profile.Process(s)
		if name != "busy-c" || pid != int64(c.PID()) || s.Label["thread"][0] != "busy-c" || s.NumLabel["tid"][0] != pid {
			t.Fatalf("labels %v %v of process %d", s.Label, s.NumLabel, c.PID())
		}
	}
	if len(p.Sample) == 0 {
		testenv.Lack(t, "no samples")
	}
}

// TestRecordRunning records processes that run already: what they have mapped is
// known by the stock that is taken. One of them runs a deleted file.
func TestRecordRunning(t *testing.T) { eachBackend(t, recordRunning) }

func recordRunning(t *testing.T, backend Backend) {
	testenv.Root(t) // only root may open a deleted file
	goFile, cFile := proctest.BuildGo(t), proctest.BuildC(t)
	wantGo, wantC := proctest.FileID(t, goFile), proctest.FileID(t, cFile)
	a, b := proctest.Start(t, goFile, "forever"), proctest.Start(t, cFile)
	time.Sleep(50 * time.Millisecond)
	if err := os.Remove(cFile); err != nil {
		t.Fatal(err)
	}
	duration := 800 * time.Millisecond
	if testenv.Emulated() {
		duration *= 10
	}
	p, misses, _ := recordSession(t, context.Background(),
		Options{Backend: backend, PIDs: []int{a, b}, Duration: duration})
	if counts := samplesOf(p); counts[int64(a)] < 10 || counts[int64(b)] < 10 && !testenv.Emulated() {
		testenv.Lack(t, "samples by process: %v", counts)
	}
	if samplesIn(p, "main.spin")[wantGo] == 0 || samplesIn(p, "burn")[wantC] == 0 {
		t.Errorf("samples in main.spin %v (want %v), in burn %v (want %v)",
			samplesIn(p, "main.spin"), wantGo, samplesIn(p, "burn"), wantC)
	}
	checkIdentified(t, p, misses)
}

// samplesOf counts the samples by processes.
func samplesOf(p *pprof.Profile) map[int64]int64 {
	counts := map[int64]int64{}
	for _, s := range p.Sample {
		_, pid := profile.Process(s)
		counts[pid] += s.Value[0]
	}
	return counts
}

// TestRecordSystem records everything while processes of a few milliseconds come
// and go, of a file that the kernel cannot identify by itself.
func TestRecordSystem(t *testing.T) { eachBackend(t, recordSystem) }

func recordSystem(t *testing.T, backend Backend) {
	testenv.Root(t)
	name := fmt.Sprintf("busy-%d", os.Getpid()) // other tests may run at the same time
	file := filepath.Join(t.TempDir(), name)
	if err := os.Rename(proctest.BuildGo(t), file); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * fstimes.Delay()) // until its times are believed
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = exec.Command(file, "3ms").Run()
		}
	}()
	p, misses, stats := recordSession(t, ctx, Options{Backend: backend, SystemWide: true, Duration: 1500 * time.Millisecond})
	cancel()
	<-done
	if stats.Existing < 2 {
		t.Errorf("took stock of %d processes", stats.Existing)
	}
	// What else runs on the machine is not for this test to judge.
	p.Sample = slices.DeleteFunc(p.Sample, func(s *pprof.Sample) bool {
		process, _ := profile.Process(s)
		return process != name
	})
	found, enough := samplesIn(p, "main.spin"), int64(10)
	if testenv.Emulated() {
		enough = 1
	}
	n := found[proctest.FileID(t, file)]
	if n > 0 && len(found) != 1 || n == 0 && samples(p) >= 10*enough {
		t.Errorf("samples in main.spin by identity: %v", found)
	}
	if n < enough {
		testenv.Lack(t, "%d samples in main.spin, %d in all", n, samples(p))
	}
	checkIdentified(t, p, misses)
}

// TestRecordEnds checks each way in which a recording comes to its end.
func TestRecordEnds(t *testing.T) { eachBackend(t, recordEnds) }

func recordEnds(t *testing.T, backend Backend) {
	file := proctest.BuildC(t)
	t.Run("with the process", func(t *testing.T) {
		cmd := exec.Command(file, "1500") // longer than it takes to open the events
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { _ = cmd.Wait(); close(done) }()
		recordSession(t, context.Background(), Options{Backend: backend, PIDs: []int{cmd.Process.Pid}})
		<-done
	})
	t.Run("when interrupted", func(t *testing.T) {
		recordUntil(t, Options{Backend: backend, PIDs: []int{proctest.Start(t, file)}}, 1)
	})
	t.Run("no such process", func(t *testing.T) {
		_, err := Start(t.Context(), Options{Backend: backend, PIDs: []int{1 << 22}})
		if err == nil || !strings.Contains(err.Error(), "no process") {
			t.Errorf("got %v", err)
		}
	})
}
