package capture

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"hallmark/internal/backend"
	"hallmark/internal/procfs"
	"hallmark/launch"
	"hallmark/procmap"
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

func (s *Session) openCommand(c *launch.Command) error {
	watch, err := unix.PidfdOpen(c.PID(), 0)
	if err != nil {
		return fmt.Errorf("process %d: %w", c.PID(), err)
	}
	s.watch = append(s.watch, watch)
	return s.sampler.openCommand(c)
}

func (s *Session) openTarget(pid int) error {
	watch, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return noTarget(pid, err)
	}
	s.watch = append(s.watch, watch)
	if procfs.IsKernelThread(pid) {
		s.tally.stats.KernelThreads = append(s.tally.stats.KernelThreads, pid)
	}
	err = s.sampler.openProcess(pid)
	switch {
	case errors.Is(err, procmap.ErrNoProcess):
		return err
	case err != nil && isForeign(pid) && backend.IsRefusal(err):
		return fmt.Errorf("process %d is another user's: run as root or with CAP_PERFMON", pid)
	case err != nil:
		return fmt.Errorf("process %d: %w", pid, err)
	}
	return nil
}

// noTarget says why a process cannot be watched, which is that it is none.
func noTarget(pid int, err error) error {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	if leader := procfs.LeaderOf(pid); leader != 0 && leader != pid {
		return fmt.Errorf("%d is a thread of process %d: record that", pid, leader)
	}
	return &procmap.Error{PID: pid, Err: procmap.ErrNoProcess}
}

// isForeign reports whether a process is not of this user.
func isForeign(pid int) bool {
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) != os.Geteuid()
}

func (s *perfSampler) openAll() error { return s.open(-1) }

// openCommand opens events of the one thread of the command that will exec, which
// ends all others.
func (s *perfSampler) openCommand(c *launch.Command) error { return s.open(c.TID()) }

// openProcess opens events for each thread of the process, and looks again until
// no thread is new: those that a thread starts from then on inherit its events. A
// thread that was started meanwhile by one that had its events already has two of
// each, of which one counts: see doubles.
func (s *perfSampler) openProcess(pid int) error {
	have, opened := map[int]bool{}, false
	for {
		tids, err := procfs.ThreadsOf(pid)
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
		return &procmap.Error{PID: pid, Err: procmap.ErrNoProcess}
	}
	return nil
}
