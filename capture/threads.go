package capture

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// threadsOf returns the numbers of the threads that the process has now. A
// process that is gone has none.
func threadsOf(pid int) ([]int, error) {
	dir, err := os.Open(fmt.Sprintf("/proc/%d/task", pid))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, nil // it ended while it was read
	}
	tids := make([]int, 0, len(names))
	for _, name := range names {
		if tid, err := strconv.Atoi(name); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids, nil
}

// leaderOf returns the number of the process that a thread is of, 0 when there is no such
// thread: proc_pid_status(5).
func leaderOf(tid int) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "Tgid:"); ok {
			return int(number(strings.TrimSpace(value)))
		}
	}
	return 0
}

// threadName returns the name of a running thread, "" when it is gone.
func threadName(pid, tid uint32) string {
	return readName(fmt.Sprintf("/proc/%d/task/%d/comm", pid, tid))
}

// processName returns the name of a running process, "" when it is gone.
func processName(pid uint32) string { return readName(fmt.Sprintf("/proc/%d/comm", pid)) }

func readName(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(b), "\n")
}

// processes returns the numbers of all processes that this user can see.
func processes() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
