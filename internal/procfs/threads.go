// Package procfs reads facts about processes and threads that /proc lists: which there are, their
// names, users, arguments and control groups. Everything is read by number, so a fact may be of
// another process that got the number meanwhile: callers compare start times where that matters.
package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ThreadsOf returns the numbers of the threads that the process has now. A
// process that is gone has none.
func ThreadsOf(pid int) ([]int, error) {
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

// LeaderOf returns the number of the process that a thread is of, 0 when there is no such
// thread: proc_pid_status(5).
func LeaderOf(tid int) int {
	status, err := read(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "Tgid:"); ok {
			return int(Number(strings.TrimSpace(value)))
		}
	}
	return 0
}

// ThreadName returns the name of a running thread, "" when it is gone.
func ThreadName(pid, tid uint32) string {
	return readName(fmt.Sprintf("/proc/%d/task/%d/comm", pid, tid))
}

// NameOf returns the name of a running process, "" when it is gone.
func NameOf(pid uint32) string { return readName(fmt.Sprintf("/proc/%d/comm", pid)) }

func readName(file string) string {
	b, err := read(file)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(b), "\n")
}

// Processes returns the numbers of all processes that this user can see.
func Processes() ([]int, error) {
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

// NoUser is whom processes belong to that are gone: to no user, include/linux/uidgid.h.
const NoUser = ^uint32(0)

// UserOf returns the effective user of a process. The directory of a process in /proc has that
// owner, whether or not others may look into the process: task_dump_owner, fs/proc/base.c.
func UserOf(pid uint32) uint32 {
	var st unix.Stat_t
	if unix.Lstat("/proc/"+strconv.FormatUint(uint64(pid), 10), &st) != nil {
		return NoUser
	}
	return st.Uid
}

// IsKernelThread reports whether a process is a thread of the kernel.
func IsKernelThread(pid int) bool {
	stat, err := Read(pid, "stat")
	if err != nil {
		return false
	}
	words := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(words) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(words[6], 10, 32) // proc_pid_stat(5)
	return err == nil && flags&kernelThread != 0
}

// kernelThread is PF_KTHREAD of include/linux/sched.h.
const kernelThread = 0x00200000

// Number returns a number that the kernel wrote in decimal digits, 0 for other text.
func Number(s string) uint32 {
	n, _ := strconv.ParseUint(s, 10, 32) // the kernel wrote it
	return uint32(n)
}
