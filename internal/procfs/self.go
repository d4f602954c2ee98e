package procfs

import (
	"bufio"
	"errors"
	"math/bits"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// OwnPID returns the number of this process in /proc, which may be mounted for a PID
// namespace further out.
func OwnPID() int { return ownPID() }

var ownPID = sync.OnceValue(func() int {
	link, err := os.Readlink("/proc/self")
	if err != nil {
		return os.Getpid()
	}
	pid, err := strconv.Atoi(link)
	if err != nil {
		return os.Getpid()
	}
	return pid
})

// ErrPIDNamespace says that BPF's process numbers mean nothing here.
var ErrPIDNamespace = errors.New("not in the PID namespace of the machine")

// initPIDNamespace is what the link reads in it: PROC_PID_INIT_INO of
// include/linux/proc_ns.h.
const initPIDNamespace = "pid:[4026531836]"

// CheckPIDNamespace returns an error unless this process is in the first PID namespace, whose
// numbers the kernel's records and BPF programs have.
func CheckPIDNamespace() error {
	if link, err := os.Readlink("/proc/self/ns/pid"); err != nil || link != initPIDNamespace {
		return ErrPIDNamespace
	}
	return nil
}

// EachInParallel calls f for each of the list, on as many CPUs as there are.
func EachInParallel[T any](list []T, f func(T)) {
	var taken atomic.Int64
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(list)) {
		workers.Go(func() {
			for i := taken.Add(1) - 1; i < int64(len(list)); i = taken.Add(1) - 1 {
				f(list[i])
			}
		})
	}
	workers.Wait()
}

// Deleted is the mark that the kernel puts behind the path of a file that was unlinked: d_path of
// fs/d_path.c.
const Deleted = " (deleted)"

// ProgramOf returns the path of the program that a process executes, and the number of the thread
// whose /proc/TID/exe has it: the first one, or another where that has ended; 0 where none has.
func ProgramOf(pid int) (tid int, path string) {
	if path, err := Readlink(pid, "exe"); err == nil {
		return pid, strings.TrimSuffix(path, Deleted)
	}
	tids, _ := ThreadsOf(pid)
	for _, tid := range tids {
		if path, err := Readlink(tid, "exe"); err == nil {
			return tid, strings.TrimSuffix(path, Deleted)
		}
	}
	return 0, ""
}

// AddressBits returns how many bits addresses of programs have on this kernel, 0 if that is
// not known. The stack of a process, as this one, is at the end of its addresses.
var AddressBits = sync.OnceValue(func() uint8 {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		start, _, _ := strings.Cut(lines.Text(), "-")
		if at, err := strconv.ParseUint(start, 16, 64); err == nil && strings.HasSuffix(lines.Text(), "[stack]") {
			return uint8(bits.Len64(at))
		}
	}
	return 0
})
