package capture

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// exits says which processes have ended. Its descriptor is readable when one has.
type exits struct {
	epoll  int
	pidfds map[int32]*process
	most   int // processes to watch, each by a descriptor
}

// errManyExits is the error of a process too many.
var errManyExits = errors.New("too many processes are watched")

func newExits(most int) (*exits, error) {
	epoll, err := newEpoll()
	return &exits{epoll, map[int32]*process{}, most}, err
}

// newEpoll returns a descriptor that is readable when one of those that are added
// to it is: what is added may change while somebody waits for it.
func newEpoll() (int, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("epoll: %w", err)
	}
	return fd, nil
}

// addTo adds a descriptor to an epoll, which it leaves when all copies of it are closed.
func addTo(epoll, fd int) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// watch reports the end of a process. The error is ESRCH when it has ended already.
func (e *exits) watch(p *process) error {
	if len(e.pidfds) >= e.most {
		return errManyExits
	}
	fd, err := unix.PidfdOpen(int(p.PID), 0)
	if err != nil {
		return err
	}
	if err := addTo(e.epoll, fd); err != nil {
		unix.Close(fd)
		return err
	}
	e.pidfds[int32(fd)] = p
	return nil
}

// each calls ended for every process that has ended since the last call.
func (e *exits) each(ended func(*process)) error {
	var events [64]unix.EpollEvent
	for {
		n, err := unix.EpollWait(e.epoll, events[:], 0)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting for processes to end: %w", err)
		}
		if n <= 0 {
			return nil
		}
		for _, event := range events[:n] {
			p, err := e.forget(event.Fd)
			if err != nil {
				return err
			}
			ended(p)
		}
	}
}

// forget takes a process out. Closing its descriptor would not do: while a child that
// is being started has a copy of it, epoll would go on to report a number that may be
// another descriptor's by then.
func (e *exits) forget(fd int32) (*process, error) {
	p := e.pidfds[fd]
	delete(e.pidfds, fd)
	err := errors.Join(unix.EpollCtl(e.epoll, unix.EPOLL_CTL_DEL, int(fd), nil), unix.Close(int(fd)))
	if err != nil {
		return nil, fmt.Errorf("waiting for processes to end: %w", err)
	}
	return p, nil
}

func (e *exits) close() error {
	var errs []error
	for fd := range e.pidfds {
		errs = append(errs, unix.Close(int(fd)))
	}
	return errors.Join(append(errs, unix.Close(e.epoll))...)
}
