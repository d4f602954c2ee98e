package capture

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// cpuRings are the rings that all events of a CPU write into.
type cpuRings struct{ samples, changes *ring }

// openEvents opens the events of what is to be recorded, not yet running, and
// the rings of each CPU.
func (s *Session) openEvents() error {
	cpus, err := onlineCPUs()
	if err != nil {
		return err
	}
	rings := make(map[int]*cpuRings, len(cpus))
	for _, cpu := range cpus {
		rings[cpu] = &cpuRings{}
	}
	switch {
	case s.opts.SystemWide:
		return s.openThread(-1, rings)
	case s.opts.Command != nil:
		return s.openCommand(s.opts.Command, rings)
	}
	for _, pid := range slices.Compact(slices.Sorted(slices.Values(s.opts.PIDs))) {
		if err := s.openTarget(pid, rings); err != nil {
			return err
		}
	}
	return nil
}

// openCommand opens events of the one thread of the command that will exec, which
// ends all others.
func (s *Session) openCommand(c *Command, rings map[int]*cpuRings) error {
	s.plan.enableOnExec()
	watch, err := unix.PidfdOpen(c.PID(), 0)
	if err != nil {
		return fmt.Errorf("process %d: %w", c.PID(), err)
	}
	s.watch = append(s.watch, watch)
	return s.openThread(c.tid, rings)
}

func (s *Session) openTarget(pid int, rings map[int]*cpuRings) error {
	watch, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("process %d: not running", pid)
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	s.watch = append(s.watch, watch)
	if err := s.openProcess(pid, rings); err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	return nil
}

// openProcess opens events for each thread of the process, and looks again until
// no thread is new: those that a thread starts from then on inherit its events. A
// thread that was started meanwhile by one that had its events already is counted
// twice; it would be worse to miss one.
func (s *Session) openProcess(pid int, rings map[int]*cpuRings) error {
	have := map[int]bool{}
	for {
		tids, err := threadsOf(pid)
		if err != nil {
			return err
		}
		found := false
		for _, tid := range tids {
			if have[tid] {
				continue
			}
			have[tid], found = true, true
			if err := s.openThread(tid, rings); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
		if !found {
			break
		}
	}
	if len(s.rings) == 0 {
		return errors.New("it has ended")
	}
	return nil
}

// openThread opens the events of a thread (-1: all threads) on each CPU.
func (s *Session) openThread(tid int, rings map[int]*cpuRings) error {
	for cpu, r := range rings {
		samples, changes, err := s.plan.open(tid, cpu)
		if errors.Is(err, unix.ENODEV) && s.opts.Event == CPUClock {
			continue // the CPU went offline
		}
		if errors.Is(err, unix.ESRCH) {
			return err
		}
		if err != nil {
			return openError(s.opts.Event, err)
		}
		s.samples = append(s.samples, samples)
		s.changes = append(s.changes, changes)
		if r.samples, err = s.connect(samples, r.samples, samplePages); err != nil {
			return err
		}
		if r.changes, err = s.connect(changes, r.changes, changePages); err != nil {
			return err
		}
	}
	return nil
}

// connect lets an event write into r, or into a new ring where there is none yet.
func (s *Session) connect(fd int, r *ring, pages int) (*ring, error) {
	if r != nil {
		if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_OUTPUT, r.fd); err != nil {
			return r, fmt.Errorf("sharing a perf ring buffer: %w", err)
		}
		return r, nil
	}
	r, err := newRing(fd, pages)
	if err == nil {
		s.rings = append(s.rings, r)
	}
	return r, err
}

// stockWorkers read the mappings of as many processes at a time.
const stockWorkers = 4

// takeStock reads name and mappings of the processes that run already, and goes
// on emptying the rings meanwhile.
func (s *Session) takeStock() error {
	pids := s.opts.PIDs
	if s.opts.SystemWide {
		var err error
		if pids, err = processes(); err != nil {
			return err
		}
	}
	done := make(chan []*process, 1)
	go func() { done <- s.readProcesses(pids) }()
	tick := time.NewTicker(time.Second / 50)
	defer tick.Stop()
	for {
		select {
		case found := <-done:
			for _, p := range found {
				s.tracker.processes[p.pid] = p
			}
			s.stats.Existing = len(found)
			return nil
		case <-tick.C:
			s.drain()
		}
	}
}

func (s *Session) readProcesses(pids []int) []*process {
	found := make([]*process, len(pids))
	next := make(chan int)
	var workers sync.WaitGroup
	for range stockWorkers {
		workers.Go(func() {
			for i := range next {
				found[i] = &process{pid: uint32(pids[i])}
				s.objects.inventory(found[i])
			}
		})
	}
	for i := range pids {
		next <- i
	}
	close(next)
	workers.Wait()
	return found
}
