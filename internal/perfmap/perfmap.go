// Package perfmap finds the maps that runtimes write of the code that they
// generate, /tmp/perf-PID.map (the kernel's
// tools/perf/Documentation/jit-interface.txt).
package perfmap

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Open opens the map of a process: as the process sees the file and counts
// itself, else as we do. started is when the process started; when it is zero,
// /proc tells, and the process must still run.
//
// Only a map that this very process can have written is taken: a regular file of
// its user, of ours or of root, not older than the process. /tmp is anybody's,
// and process numbers are used again.
func Open(pid int, started time.Time) (*os.File, error) {
	if started.IsZero() {
		var err error
		if started, err = StartTime(pid); err != nil {
			return nil, err
		}
	}
	var errs []error
	for _, name := range names(pid) {
		f, err := open(name, pid, started)
		if err == nil {
			return f, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func names(pid int) []string {
	outside := fmt.Sprintf("/tmp/perf-%d.map", pid)
	if inner := innermostPID(pid); inner != "" {
		return []string{fmt.Sprintf("/proc/%d/root/tmp/perf-%s.map", pid, inner), outside}
	}
	return []string{outside}
}

// innermostPID returns the number that the process has for itself, "" when it is
// gone.
func innermostPID(pid int) string {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(status)) {
		if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok {
			if f := strings.Fields(numbers); len(f) > 0 {
				return f[len(f)-1]
			}
		}
	}
	return ""
}

func open(name string, pid int, started time.Time) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := check(f, pid, started); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

func check(f *os.File, pid int, started time.Time) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	switch {
	case !info.Mode().IsRegular():
		return errors.New("not a regular file")
	case owner != 0 && int(owner) != os.Geteuid() && !runsAs(pid, owner):
		return errors.New("belongs to another user than the process")
	case info.ModTime().Before(started):
		return errors.New("older than the process")
	}
	return nil
}

func runsAs(pid int, uid uint32) bool {
	var process syscall.Stat_t
	return syscall.Stat(fmt.Sprintf("/proc/%d", pid), &process) == nil && process.Uid == uid
}

// StartTime returns when a running process started, to 10 ms.
func StartTime(pid int) (time.Time, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return time.Time{}, err
	}
	// Field 22, counted behind the name in parentheses, which may hold anything.
	const startField, ticks = 22, 100 // USER_HZ is 100 on every architecture of Go's
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= startField-3 {
		return time.Time{}, fmt.Errorf("/proc/%d/stat: no start time in it", pid)
	}
	n, err := strconv.ParseInt(string(fields[startField-3]), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	return WallClock(time.Duration(n)*(time.Second/ticks), unix.CLOCK_BOOTTIME)
}

// WallClock turns a time of another of the kernel's clocks into wall-clock time.
func WallClock(t time.Duration, clock int32) (time.Time, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(clock, &now); err != nil {
		return time.Time{}, err
	}
	return time.Now().Add(t - time.Duration(now.Nano())), nil
}
