package procmap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"hallmark/buildid"
	"hallmark/internal/aside"
	"hallmark/internal/patience"
	"hallmark/reason"
)

// ErrUnresponsive says that a file is on a file system (FUSE, a network) whose server did not
// answer in time, or which this process does not ask because it might wait for ever.
var ErrUnresponsive = errors.New(reason.FileUnresponsive.String())

// Program returns the identity of the program that a process runs, as buildid.ReadProcess
// does, but does not wait for a file system that does not answer: the error is then
// ErrUnresponsive.
func Program(pid int) (buildid.Info, error) { return ProgramContext(context.Background(), pid) }

// ProgramContext is Program. Hashing ends early when ctx is done, and keeps to its budget.
func ProgramContext(ctx context.Context, pid int) (buildid.Info, error) {
	tid := pid
	fd, err := openProgram(pid)
	if errors.Is(err, os.ErrNotExist) { // its first thread has ended, maybe
		for _, other := range threads(pid) {
			if other == pid {
				continue
			}
			of, wrong := openProgram(other)
			if wrong == nil && isThread(pid, other) {
				tid, fd, err = other, of, nil
				break
			}
			if wrong == nil {
				syscall.Close(of)
			}
		}
	}
	if errors.Is(err, patience.ErrSilent) { // the process is executing a program, which waits for a file system
		return buildid.Info{}, &Error{pid, ErrUnresponsive}
	}
	if err != nil {
		return buildid.Info{}, &os.PathError{Op: "open", Path: procDir(pid) + "/exe", Err: err}
	}
	defer syscall.Close(fd)
	if (&Process{tid: tid}).view().AnswersFD(fd) {
		return buildid.ReadFileContext(ctx, descriptor(fd))
	}
	if !aside.Available() {
		return buildid.Info{}, &Error{pid, ErrUnresponsive}
	}
	sent, err := programAside.Ask(fmt.Sprintf("program of process %d", pid), tid)
	var failed *aside.RemoteError
	switch {
	case errors.As(err, &failed):
		return buildid.Info{}, err
	case err != nil:
		return buildid.Info{}, &Error{pid, ErrUnresponsive}
	}
	id, err := sent.identity()
	return id.Info, err
}

// openProgram opens the program that a thread runs, and nothing behind it.
func openProgram(tid int) (fd int, err error) {
	open := func() (int, error) { return openPath(procDir(tid)+"/exe", oPath) }
	return patience.InTimeOr(tid, patience.LookTime, open, func(fd int) { syscall.Close(fd) })
}

// programAside is Program in a helper.
var programAside = aside.New("procmap.program", func(pid int) (identified, error) {
	ctx, cancel := context.WithTimeout(hashing(), aside.AnswerTime)
	defer cancel()
	info, err := buildid.ReadProcessContext(ctx, pid)
	if errors.Is(err, context.DeadlineExceeded) {
		info, err = buildid.Info{Where: buildid.OverBudget, ELF: true}, nil
	}
	return send(Identity{Info: info}), err
})
