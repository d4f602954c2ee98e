package procmap

import (
	"io"
	"os"
	"sync"
	"syscall"
)

// maps is an open /proc/PID/maps, which pins the address space that the process
// had when it was opened: nothing else is ever seen through it. That is why
// whatever else is opened under /proc/PID counts only if maps is alive afterwards.
type maps struct {
	fd     int
	use    sync.RWMutex // held while fd is in use
	closed bool
	text   sync.Mutex // held while the text is read; the kernel remembers one position
}

func (m *maps) open(name string) error {
	fd, err := openPath(name, syscall.O_RDONLY)
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	m.fd = fd
	return nil
}

// openPath is open(2).
func openPath(name string, flags int) (int, error) {
	for {
		fd, err := syscall.Open(name, flags|syscall.O_CLOEXEC, 0)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}

// hold keeps the descriptor from being closed until release.
func (m *maps) hold() error {
	m.use.RLock()
	if m.closed {
		m.use.RUnlock()
		return os.ErrClosed
	}
	return nil
}

func (m *maps) release() { m.use.RUnlock() }

func (m *maps) close() error {
	m.use.Lock()
	defer m.use.Unlock()
	if m.closed {
		return os.ErrClosed
	}
	m.closed = true
	return syscall.Close(m.fd)
}

// alive fails with ESRCH when the address space does not exist any more. Once
// gone it does not come back; so a text that was read before is whole.
func (m *maps) alive() error {
	if err := m.hold(); err != nil {
		return err
	}
	defer m.release()
	return m.aliveHeld()
}

// aliveHeld is alive for whoever holds m.
func (m *maps) aliveHeld() error {
	m.text.Lock()
	defer m.text.Unlock()
	var b [1]byte
	_, err := (&textReader{fd: m.fd}).Read(b[:])
	if err == io.EOF {
		return syscall.ESRCH
	}
	return err
}

// scanHeld calls fn with every line of the text, for whoever holds m.
func (m *maps) scanHeld(fn func(line []byte) error) error {
	m.text.Lock()
	defer m.text.Unlock()
	return scanText(&textReader{fd: m.fd}, fn)
}

// A textReader reads the text from its start.
type textReader struct {
	fd  int
	pos int64
}

func (r *textReader) Read(b []byte) (int, error) {
	for {
		n, err := syscall.Pread(r.fd, b, r.pos)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return 0, os.NewSyscallError("pread", err)
		case n == 0:
			return 0, io.EOF
		}
		r.pos += int64(n)
		return n, nil
	}
}
