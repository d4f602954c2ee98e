package capture

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// openTargets opens the events of what is to be recorded, not yet running.
func (s *Session) openTargets() error {
	switch {
	case s.opts.SystemWide:
		return s.sampler.openAll()
	case s.opts.Command != nil:
		return s.openCommand(s.opts.Command)
	}
	for _, pid := range slices.Compact(slices.Sorted(slices.Values(s.opts.PIDs))) {
		if err := s.openTarget(pid); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) openCommand(c *Command) error {
	watch, err := unix.PidfdOpen(c.PID(), 0)
	if err != nil {
		return fmt.Errorf("process %d: %w", c.PID(), err)
	}
	s.watch = append(s.watch, watch)
	return s.sampler.openCommand(c)
}

func (s *Session) openTarget(pid int) error {
	watch, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("process %d: not running", pid)
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	s.watch = append(s.watch, watch)
	if err := s.sampler.openProcess(pid); err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	return nil
}

func (s *perfSampler) openAll() error { return s.open(-1) }

// openCommand opens events of the one thread of the command that will exec, which
// ends all others.
func (s *perfSampler) openCommand(c *Command) error { return s.open(c.tid) }

// openProcess opens events for each thread of the process, and looks again until
// no thread is new: those that a thread starts from then on inherit its events. A
// thread that was started meanwhile by one that had its events already has two of
// each, of which one counts: see doubles.
func (s *perfSampler) openProcess(pid int) error {
	have, opened := map[int]bool{}, false
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
			err := s.open(tid)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
			opened = opened || err == nil
		}
		if !found {
			break
		}
	}
	if !opened {
		return errors.New("it has ended")
	}
	return nil
}
