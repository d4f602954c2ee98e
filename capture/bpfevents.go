package capture

import (
	"context"
	"errors"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"hallmark/internal/bpf"
	"hallmark/internal/perfring"
	"hallmark/internal/procfs"
	"hallmark/launch"
	"hallmark/profile"
)

// bpfEvents are the events whose samples BPF programs take, and what is the same
// for all samplers that work with them.
type bpfEvents struct {
	*tally
	opts    Options
	plan    *perfring.Plan
	takers  bpfPrograms
	cpus    map[int]int // events by CPU
	running bool
	notices *notices
}

// bpfPrograms take samples.
type bpfPrograms interface {
	// Attach gives them the samples of an event.
	Attach(event int) error
	// Follow has them take the samples of a process and of those that it will start,
	// where they do not take all.
	Follow(pid uint32, fromExec bool) error
}

func newBPFEvents(t *tally, opts Options, takers bpfPrograms) (bpfEvents, error) {
	e := bpfEvents{tally: t, opts: opts, plan: opts.Event.plan(opts.Frequency), takers: takers, cpus: map[int]int{}}
	e.plan.Samples.Sample_type = uint64(noticeFields) // the program asks for what it wants
	var err error
	e.notices, err = newNotices(t, e.plan)
	return e, err
}

func (e *bpfEvents) openAll() error { return e.followCPUs() }

func (e *bpfEvents) openProcess(pid int) error { return e.takers.Follow(uint32(pid), false) }

func (e *bpfEvents) openCommand(c *launch.Command) error {
	return e.takers.Follow(uint32(c.PID()), true)
}

// event opens an event whose samples the programs take.
func (e *bpfEvents) event(cpu int) (int, error) {
	fd, err := perfring.OpenEvent(&e.plan.Samples, -1, cpu)
	switch {
	case errors.Is(err, unix.ENODEV) && e.opts.Event == CPUClock:
		return -1, err
	case err != nil:
		return -1, perfring.OpenError(e.opts.Event.String(), err)
	}
	if err := e.takers.Attach(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (e *bpfEvents) prepare(context.Context) error {
	if err := e.followCPUs(); err != nil {
		return err
	}
	if e.opts.Command != nil {
		return nil
	}
	e.stats.Existing = len(e.opts.PIDs)
	if e.opts.SystemWide {
		pids, err := procfs.Processes()
		if err != nil {
			return err
		}
		e.stats.Existing = len(pids)
	}
	return nil
}

func (e *bpfEvents) begin() error {
	e.running = true
	return perfring.Enable(e.all())
}

// all are the events that sample.
func (e *bpfEvents) all() []int {
	return slices.Collect(maps.Values(e.cpus))
}

// look takes the records that the kernel emitted beside the samples, and looks after the CPUs.
func (e *bpfEvents) look() error {
	e.notices.read()
	return e.followCPUs()
}

// followCPUs opens events on the CPUs that came online since the last call, and
// closes those of the CPUs that went: they would not come back with them.
func (e *bpfEvents) followCPUs() error {
	online, err := perfring.OnlineCPUs()
	if err != nil {
		return err
	}
	for cpu := range e.notices.rings {
		if slices.Contains(online, cpu) {
			continue
		}
		if err := e.closeCPU(cpu); err != nil {
			return err
		}
	}
	for _, cpu := range online {
		if e.notices.rings[cpu] != nil {
			continue
		}
		if err := e.openCPU(cpu); err != nil && !errors.Is(err, unix.ENODEV) { // it went offline
			return err
		}
	}
	return nil
}

// openCPU opens the events of a CPU. It samples at once when the others do.
func (e *bpfEvents) openCPU(cpu int) error {
	if err := e.notices.open(cpu); err != nil {
		return err
	}
	fd, err := e.event(cpu)
	if err != nil {
		return errors.Join(err, e.notices.drop(cpu))
	}
	e.cpus[cpu] = fd
	if err := e.notices.join(fd, cpu); err != nil || !e.running {
		return err
	}
	return perfring.Enable([]int{fd})
}

func (e *bpfEvents) closeCPU(cpu int) error {
	err := e.notices.drop(cpu)
	if fd, ok := e.cpus[cpu]; ok {
		delete(e.cpus, cpu)
		err = errors.Join(err, unix.Close(fd))
	}
	return err
}

// halt ends the samples, and the records beside them.
func (e *bpfEvents) halt() {
	perfring.Disable(e.all())
	if e.notices.finish() != nil {
		e.stats.Malformed++
	}
}

func (e *bpfEvents) closeEvents() error {
	errs := []error{e.notices.close()}
	for _, fd := range e.all() {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}

func (e *bpfEvents) labels(o *bpf.Task) profile.Labels {
	l := profile.Labels{Process: o.Process, Thread: o.Thread, PID: int(o.PID), TID: int(o.TID)}
	l.Cgroup, l.Container = e.cgroups.Home(o.Cgroup)
	return l
}
