package trust

import (
	"bufio"
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// mountTable is the mounts that were read last. Where files are looked for in many places, as
// for a profile that names thousands, reading them takes far more than all else.
type mountTable struct {
	mu        sync.Mutex
	namespace string // that they are of
	fd        int    // the kernel's list, which knows when it has changed
	mounts    mounts // nil where fd is none
}

var theMounts mountTable

// readMounts returns the mounts of this thread's mount namespace: proc_pid_mountinfo(5). The
// caller does not change them.
func readMounts() (mounts, error) { return theMounts.read() }

// ForgetMounts gives back the descriptor that knows when mounts change. They are read again when they are needed.
func ForgetMounts() {
	t := &theMounts
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget()
}

func (t *mountTable) forget() {
	if t.mounts != nil {
		unix.Close(t.fd)
		t.mounts = nil
	}
}

func (t *mountTable) read() (mounts, error) {
	namespace, err := os.Readlink("/proc/thread-self/ns/mnt")
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mounts != nil && t.namespace == namespace && !hasChanged(t.fd) {
		return t.mounts, nil
	}
	t.forget()
	// An os.File would be watched by Go's runtime, to which the kernel reports a change then.
	fd, err := unix.Open("/proc/thread-self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	m, err := parseMounts(descriptor(fd))
	if err != nil || m == nil {
		unix.Close(fd)
		return nil, err
	}
	t.namespace, t.fd, t.mounts = namespace, fd, m
	return m, nil
}

// hasChanged reports whether mounts were made or removed since it was last asked, or the file
// was opened: mounts_poll of fs/proc_namespace.c. An unknown state counts as a change.
func hasChanged(fd int) bool {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}, 0)
		if !errors.Is(err, unix.EINTR) {
			return err != nil || n > 0
		}
	}
}

// descriptor reads from a file.
type descriptor int

func (d descriptor) Read(p []byte) (int, error) {
	n, err := unix.Read(int(d), p)
	switch {
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

func parseMounts(r io.Reader) (mounts, error) {
	var m mounts
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20) // an overlay of many layers has long options
	for lines.Scan() {
		if mount, ok := parseMount(lines.Text()); ok {
			m = append(m, mount)
		}
	}
	return m, lines.Err()
}
