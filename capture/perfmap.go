package capture

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/symbol"
)

// readPerfMap reads the names that a runtime wrote for the code it generated,
// /tmp/perf-PID.map, seen from the process while it lives. It may be called more
// than once; a later map has all that an earlier one had.
func (o *object) readPerfMap() {
	p := o.process
	for _, name := range perfMapNames(p.pid) {
		f, err := openPerfMap(name, p)
		if err != nil {
			continue
		}
		m, err := symbol.ReadPerfMap(f)
		f.Close()
		if err == nil {
			o.jit = m
			return
		}
	}
}

// perfMapNames returns where the map of a process may be: in its own mount
// namespace under its number in its own PID namespace, or in ours.
func perfMapNames(pid uint32) []string {
	names := []string{}
	if inner := innermostPID(pid); inner != "" {
		names = append(names, fmt.Sprintf("/proc/%d/root/tmp/perf-%s.map", pid, inner))
	}
	return append(names, fmt.Sprintf("/tmp/perf-%d.map", pid))
}

// innermostPID returns the process's number as it sees it itself.
func innermostPID(pid uint32) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "NSpid:"); ok {
			numbers := strings.Fields(rest)
			if len(numbers) > 0 {
				return numbers[len(numbers)-1]
			}
		}
	}
	return ""
}

// openPerfMap opens a map that this very process can have written: a regular
// file of its user or of ours, younger than the process. /tmp is anybody's, and
// process numbers are used again.
func openPerfMap(name string, p *process) (*os.File, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	switch {
	case err != nil:
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		err = fmt.Errorf("%s is not a regular file", name)
	case int(st.Uid) != os.Geteuid() && st.Uid != 0 && !ownedBy(p.pid, st.Uid):
		err = fmt.Errorf("%s belongs to another user", name)
	case time.Unix(st.Mtim.Unix()).Before(p.startTime()):
		err = fmt.Errorf("%s is older than the process", name)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func ownedBy(pid, uid uint32) bool {
	var st syscall.Stat_t
	return syscall.Stat(fmt.Sprintf("/proc/%d", pid), &st) == nil && st.Uid == uid
}

// startTime returns when the process started: as its records say, else as /proc
// says. A process that neither knows has always been there.
func (p *process) startTime() time.Time {
	if p.since != 0 {
		return wallClock(time.Duration(p.since), unix.CLOCK_MONOTONIC)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		return time.Time{}
	}
	// Field 22, counted behind the name in parentheses, which may hold anything.
	const startField, ticks = 22, 100 // USER_HZ is 100 on every architecture of Go's
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= startField-3 {
		return time.Time{}
	}
	n, err := strconv.ParseInt(string(fields[startField-3]), 10, 64)
	if err != nil {
		return time.Time{}
	}
	return wallClock(time.Duration(n)*(time.Second/ticks), unix.CLOCK_BOOTTIME)
}

// wallClock turns a time of another clock into wall-clock time.
func wallClock(t time.Duration, clock int32) time.Time {
	var now unix.Timespec
	if unix.ClockGettime(clock, &now) != nil {
		return time.Time{}
	}
	return time.Now().Add(t - time.Duration(now.Nano()))
}
