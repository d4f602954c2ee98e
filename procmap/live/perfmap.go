package live

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"hallmark/addr"
	"hallmark/reason"
	"hallmark/symbol"
)

// generated returns what finds the names of code that the process generated.
func (p *Process) generated() lookup[addr.Abs] {
	if p.jit == nil {
		p.jit = readPerfMap(p.maps.PID())
	}
	return p.jit
}

func readPerfMap(pid int) lookup[addr.Abs] {
	f, err := OpenPerfMap(pid)
	if err != nil {
		return miss[addr.Abs](reason.NoPerfMap)
	}
	defer f.Close()
	m, err := symbol.ReadPerfMap(f)
	if err != nil {
		return miss[addr.Abs](reason.BadSymbols)
	}
	return m.Lookup
}

// OpenPerfMap opens the map that the runtime of a process wrote to
// /tmp/perf-PID.map: as the process sees that file and counts itself, else as we
// do. Only a file that the process can have written is taken: a regular one of
// its user or of root, not older than the process. /tmp is anybody's, and numbers
// of processes are used again.
func OpenPerfMap(pid int) (*os.File, error) {
	var errs []error
	for _, name := range perfMapNames(pid) {
		f, err := openPerfMap(name, pid)
		if err == nil {
			return f, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func perfMapNames(pid int) []string {
	names := []string{fmt.Sprintf("/tmp/perf-%d.map", pid)}
	if inner, ok := innermostPID(pid); ok {
		inside := fmt.Sprintf("/proc/%d/root/tmp/perf-%s.map", pid, inner)
		names = []string{inside, names[0]}
	}
	return names
}

// innermostPID returns the number that the process has for itself.
func innermostPID(pid int) (string, bool) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(status)) {
		if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok {
			if f := strings.Fields(numbers); len(f) > 0 {
				return f[len(f)-1], true
			}
		}
	}
	return "", false
}

func openPerfMap(name string, pid int) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := checkPerfMap(f, pid); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

func checkPerfMap(f *os.File, pid int) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	var process syscall.Stat_t
	if err := syscall.Stat(fmt.Sprintf("/proc/%d", pid), &process); err != nil {
		return err
	}
	if uid := info.Sys().(*syscall.Stat_t).Uid; uid != 0 && uid != process.Uid {
		return errors.New("belongs to another user than the process")
	}
	started, err := startTime(pid)
	if err != nil {
		return err
	}
	if info.ModTime().Before(started) {
		return errors.New("older than the process")
	}
	return nil
}

// startTime returns when a process started, to the second below.
func startTime(pid int) (time.Time, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return time.Time{}, err
	}
	// Field 22, counted behind the name in parentheses, which may hold anything.
	const startField, ticks = 22, 100 // USER_HZ is 100 on every architecture of Go's
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= startField-3 {
		return time.Time{}, errors.New("malformed /proc/PID/stat")
	}
	n, err := strconv.ParseInt(string(fields[startField-3]), 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	boot, err := bootTime()
	return boot.Add(time.Duration(n) * time.Second / ticks).Truncate(time.Second), err
}

// bootTime returns when the machine started, to the second.
func bootTime() (time.Time, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Time{}, err
	}
	for line := range strings.Lines(string(stat)) {
		if seconds, ok := strings.CutPrefix(line, "btime "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(seconds), 10, 64)
			return time.Unix(n, 0), err
		}
	}
	return time.Time{}, errors.New("no btime in /proc/stat")
}
