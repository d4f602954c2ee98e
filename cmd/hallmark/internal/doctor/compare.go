package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/capture"
	"hallmark/internal/backend"
	"hallmark/internal/bpf"
	"hallmark/internal/capability"
	"hallmark/internal/perfring"
	"hallmark/profile"
)

// CompareOptions say how Compare measures.
type CompareOptions struct {
	Frequency int           // samples a second and CPU, of each way; DefaultFrequency when 0
	Duration  time.Duration // of all three parts together
	// Load is a command that is run again and again. All figures are of it
	// and all that it starts, costs of the whole machine meanwhile. Nil is for the whole
	// machine as it is.
	Load []string
}

// Comparison is what the ways of knowing the file of a frame cost, and what they
// know, on the load that was measured.
type Comparison struct {
	Frequency int           `json:"frequency"`
	Duration  time.Duration `json:"duration_ns"`
	// Costs are those of ways to take the user's part of a stack, and of whole backends,
	// with kernel code and counting, all at the same time in the first part.
	Costs []WayCost `json:"costs"`
	// Stacks is how many the kernel's own way was looked at in, in the second part,
	// and Frames what it said of their user frames by where they were.
	Stacks uint64       `json:"stack_count"`
	Frames []FrameShare `json:"frame_shares"`
	// Backends are those that recorded in the third part.
	Backends []BackendResult `json:"backends"`
}

// WayCost is what one way costs, as the kernel accounts it to the BPF program (BPF
// run statistics).
type WayCost struct {
	Way     string  `json:"way"`
	Samples uint64  `json:"samples"`
	Nanos   float64 `json:"ns_a_sample"`
}

// FrameShare is the frames in one kind of place, by what the kernel's own way said
// of them.
type FrameShare struct {
	Where string `json:"where"`
	Valid uint64 `json:"valid"` // build ID and offset
	IP    uint64 `json:"ip"`    // the address only
	Empty uint64 `json:"empty"`
}

// BackendResult is what one backend recorded.
type BackendResult struct {
	Backend  string           `json:"backend"`
	Samples  uint64           `json:"samples"`
	Lost     uint64           `json:"lost"` // samples, and for perf records
	Coverage profile.Coverage `json:"coverage"`
}

// Compare measures in three parts of the same length, which takes CAP_SYS_ADMIN: costs, what
// the kernel's own way says of each frame, and whole backends. They are apart because
// with interrupts off only one can hold the lock of the mappings: who asks for build
// IDs in the kernel's own way at the same time as another one gets addresses.
func Compare(ctx context.Context, opts CompareOptions) (*Comparison, error) {
	if opts.Frequency == 0 {
		opts.Frequency = capture.DefaultFrequency
	}
	costs, err := bpf.CountCosts()
	if backend.IsRefusal(err) && capability.LackingForBPF() == "" && !capability.Has(unix.CAP_SYS_ADMIN) {
		return nil, fmt.Errorf("counting what BPF programs cost needs CAP_SYS_ADMIN: %w", err)
	}
	if err != nil {
		return nil, backend.Unusable(capture.BPF, err)
	}
	defer costs.Close()
	programs, err := bpf.NewComparison()
	if err != nil {
		return nil, backend.Unusable(capture.BPF, err)
	}
	defer programs.Close()
	c := &comparer{opts: opts, programs: programs, out: &Comparison{Frequency: opts.Frequency, Duration: opts.Duration}}
	for _, part := range []func(context.Context) error{c.compareCosts, c.compareFrames, c.compareBackends} {
		if err := part(ctx); err != nil {
			return nil, err
		}
	}
	return c.out, nil
}

// comparer makes a Comparison.
type comparer struct {
	opts     CompareOptions
	programs *bpf.Comparison
	out      *Comparison
}

// costed are the ways whose cost is compared.
var costed = []struct {
	way  bpf.Way
	name string
}{
	{bpf.Addresses, "addresses only (bpf_get_stack)"},
	{bpf.BuildIDs, "the kernel's build IDs (bpf_get_stack, BPF_F_USER_BUILD_ID)"},
	{bpf.StackIDs, "the kernel's build IDs (bpf_get_stackid, BPF_F_STACK_BUILD_ID)"},
	{bpf.Offsets, "file and offset"},
}

// compareCosts samples the whole machine: the events of one task are all started
// when the task is, and would run in the wake of each other for ever.
func (c *comparer) compareCosts(ctx context.Context) error {
	var ways []bpf.Way
	for _, w := range costed {
		ways = append(ways, w.way)
	}
	results, err := c.measure(ctx, everybody, ways, []capture.Backend{capture.BPF, capture.Stackmap})
	if err != nil {
		return err
	}
	for _, w := range costed {
		n, err := c.programs.Cost(w.way)
		if err != nil {
			return err
		}
		c.out.Costs = append(c.out.Costs, wayCost(w.name, n))
	}
	for _, r := range results {
		c.out.Costs = append(c.out.Costs, wayCost(fmt.Sprintf("the whole backend %s, with kernel code and counting", r.Backend), r.cost))
	}
	return nil
}

func wayCost(way string, n bpf.Cost) WayCost {
	return WayCost{way, n.Runs, float64(n.Time) / float64(max(n.Runs, 1))}
}

func (c *comparer) compareFrames(ctx context.Context) error {
	if _, err := c.measure(ctx, onlyLoad, []bpf.Way{bpf.Both}, nil); err != nil {
		return err
	}
	f, err := c.programs.Frames()
	if err != nil {
		return err
	}
	c.out.Stacks = f.Stacks
	for _, part := range []struct {
		where string
		n     bpf.Statuses
	}{
		{"in executable mappings of files", f.Code},
		{"in other mappings of files", f.Data},
		{"in memory without a file", f.Memory},
		{"in no mapping", f.Nowhere},
		{"unknown: the mappings changed", f.Changed},
	} {
		c.out.Frames = append(c.out.Frames, FrameShare{part.where, part.n.Valid, part.n.IP, part.n.Empty})
	}
	return nil
}

func (c *comparer) compareBackends(ctx context.Context) error {
	results, err := c.measure(ctx, onlyLoad, nil, []capture.Backend{capture.BPF, capture.Stackmap, capture.Perf})
	for _, r := range results {
		c.out.Backends = append(c.out.Backends, r.BackendResult)
	}
	return err
}

// whose are the samples that are taken.
type whose bool

const (
	everybody whose = false
	onlyLoad  whose = true
)

// measure lets ways and backends sample at the same time while the load runs.
func (c *comparer) measure(ctx context.Context, who whose, ways []bpf.Way, backends []capture.Backend) (results []recorded, err error) {
	l, err := startLoad(c.opts.Load)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.stop(), ctx.Err()) }()
	opts, tid := capture.Options{SystemWide: true}, -1
	if who == onlyLoad && l != nil {
		tid = l.shell.Process.Pid
		opts = capture.Options{PIDs: []int{tid}}
	}
	var events []int
	for i, w := range ways {
		fds, err := c.open(w, tid, c.frequency(i))
		for _, fd := range fds {
			defer unix.Close(fd)
		}
		if err != nil {
			return nil, err
		}
		events = append(events, fds...)
	}
	var sessions []*capture.Session
	for i, b := range backends {
		opts.Backend, opts.Frequency = b, c.frequency(len(ways)+i)
		s, err := capture.Start(ctx, opts)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		sessions = append(sessions, s)
	}
	return c.run(ctx, l, events, sessions)
}

// open opens events whose samples are taken in one way: of a thread and all that it
// starts, or of everybody (-1) on each CPU. The caller closes them, also after an error.
func (c *comparer) open(w bpf.Way, tid, hz int) (fds []int, err error) {
	plan := perfring.NewPlan(hz)
	plan.Samples.Sample_type = 0 // the program asks for what it wants
	cpus := []int{-1}
	if tid == -1 {
		if cpus, err = perfring.OnlineCPUs(); err != nil {
			return nil, err
		}
	}
	for _, cpu := range cpus {
		fd, err := perfring.OpenEvent(&plan.Samples, tid, cpu)
		if err != nil {
			return fds, perfring.OpenError(capture.CPUClock.String(), err)
		}
		fds = append(fds, fd)
		if err := c.programs.Attach(w, fd); err != nil {
			return fds, err
		}
	}
	return fds, nil
}

// run lets the load, the events and the sessions run for a part of the time.
func (c *comparer) run(ctx context.Context, l *load, events []int, sessions []*capture.Session) ([]recorded, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Duration/3)
	defer cancel()
	if err := perfring.Enable(events); err != nil {
		return nil, err
	}
	results := make([]recorded, len(sessions))
	var running sync.WaitGroup
	for i, s := range sessions {
		running.Go(func() { results[i] = compared(ctx, s) })
	}
	err := l.run(ctx)
	perfring.Disable(events)
	cancel()
	running.Wait()
	for _, r := range results {
		err = errors.Join(err, r.err)
	}
	return results, err
}

// frequency returns that of the sampler with this number: a little apart from the
// others, so that none always runs in the wake of another one.
func (c *comparer) frequency(number int) int { return c.opts.Frequency + 2*number }

// recorded is what a session gave, and its cost if a BPF program samples.
type recorded struct {
	BackendResult
	cost bpf.Cost
	err  error
}

// compared runs a session to its end.
func compared(ctx context.Context, s *capture.Session) recorded {
	err := s.Run(ctx)
	recording, finishErr := s.Finish(context.WithoutCancel(ctx))
	if finishErr != nil {
		return recorded{err: errors.Join(err, finishErr)}
	}
	stats := s.Stats()
	r := recorded{err: err}
	r.BackendResult = BackendResult{stats.Backend.String(), stats.Samples, stats.Lost + stats.Collided, profile.MeasureCoverage(recording.Profile, nil)}
	r.cost.Runs, r.cost.Time, err = s.Cost()
	r.err = errors.Join(r.err, err)
	return r
}

// load is a command that is run again and again, by a shell that waits for a line
// before it begins, and ends the loop if this process is gone. A nil load is that of the
// whole machine.
type load struct {
	shell *exec.Cmd
	start io.WriteCloser
	ended chan error
}

const loadScript = `read start && while kill -0 $PPID; do "$@" || exit; done >/dev/null 2>&1 </dev/null`

// startLoad starts the shell. The caller stops it.
func startLoad(command []string) (*load, error) {
	if len(command) == 0 {
		return nil, nil
	}
	if _, err := exec.LookPath(command[0]); err != nil {
		return nil, err
	}
	l := &load{shell: exec.Command("sh", append([]string{"-c", loadScript, "sh"}, command...)...), ended: make(chan error, 1)}
	l.shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if l.start, err = l.shell.StdinPipe(); err != nil {
		return nil, err
	}
	if err := l.shell.Start(); err != nil {
		return nil, err
	}
	go func() { l.ended <- l.shell.Wait() }()
	return l, nil
}

// run lets the command run until ctx is done. A load that ends before has failed.
func (l *load) run(ctx context.Context) error {
	if l == nil {
		<-ctx.Done()
		return nil
	}
	if _, err := io.WriteString(l.start, "\n"); err != nil {
		return err
	}
	select {
	case err := <-l.ended:
		l.ended <- err // for stop
		return fmt.Errorf("the load %s: %w", l.shell.Args[4], err)
	case <-ctx.Done():
		return nil
	}
}

// stop ends the load with all that it has started.
func (l *load) stop() error {
	if l == nil {
		return nil
	}
	err := syscall.Kill(-l.shell.Process.Pid, syscall.SIGKILL)
	<-l.ended
	if errors.Is(err, syscall.ESRCH) {
		return nil // it has failed, which was reported
	}
	return err
}
