// Package indexer makes the index of a file that a stranger may have sent: in a process of its
// own, with bounds on memory and time, that can open no file and reach no network. What goes
// wrong there costs the index of that file and nothing else.
package indexer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/symbol"
)

// childName is the name under which the copy of the executable is started.
const childName = "hallmark-makes-index"

// Descriptors of the child. A file that is not there is /dev/null.
const (
	outputFD = 3
	exeFD    = 4
	debugFD  = 5
	dwzFD    = 6
)

// Files are those that an index is made of. One of Executable and Debug must be there.
type Files struct {
	Executable, Debug, Dwz *os.File
	Identity               string // kept in the index
	Origin                 string
}

// Limits bound the process.
type Limits struct {
	Memory int64         // bytes, besides what the files take; 4 GiB when 0
	Time   time.Duration // of the processor; 10 minutes when 0
}

// ErrRefused says that no index can be made of the files. It arrives wrapped, with what the
// child said.
var ErrRefused = errors.New("no index can be made of it")

// maxMessage is how much of what the child says is kept.
const maxMessage = 1000

// Make makes an index in a new process, and writes it to a file. The program's main must call
// RunIfChild first.
func Make(ctx context.Context, out *os.File, f Files, lim Limits) error {
	if lim.Memory == 0 {
		lim.Memory = 4 << 30
	}
	if lim.Time == 0 {
		lim.Time = 10 * time.Minute
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	present := ""
	files := []*os.File{out}
	for i, file := range []*os.File{f.Executable, f.Debug, f.Dwz} {
		if file == nil {
			file = null
		} else {
			present += "edz"[i : i+1]
		}
		files = append(files, file)
	}
	// The time of the processor bounds the work, and the clock what waits.
	ctx, cancel := context.WithTimeout(ctx, 3*lim.Time)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{childName, present, f.Identity, f.Origin, strconv.FormatInt(lim.Memory, 10), strconv.FormatInt(int64(lim.Time/time.Second), 10), strconv.Itoa(os.Getpid())}
	cmd.Env = []string{"GOTRACEBACK=none"}
	cmd.Dir = "/"
	cmd.ExtraFiles = files
	said := &tail{}
	cmd.Stderr = said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// The signal is sent when the thread that started the child ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return ctx.Err()
	case errors.As(err, &exit):
		return fmt.Errorf("%w: %v: %s", ErrRefused, exit, strings.TrimSpace(said.String()))
	}
	return err
}

// tail keeps the first bytes of what is written.
type tail struct{ bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	t.Buffer.Write(p[:min(len(p), max(0, maxMessage-t.Len()))])
	return len(p), nil
}

// RunIfChild makes the index and ends the process, if this one was started to do so.
func RunIfChild() {
	if len(os.Args) != 7 || filepath.Base(os.Args[0]) != childName {
		return
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(present, identity, origin, memory, seconds, parent string) error {
	most, err := strconv.ParseInt(memory, 10, 64)
	if err != nil {
		return err
	}
	cpu, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return err
	}
	files := map[byte]*os.File{}
	for i := range len(present) {
		fd := map[byte]uintptr{'e': exeFD, 'd': debugFD, 'z': dwzFD}[present[i]]
		files[present[i]] = os.NewFile(fd, map[byte]string{'e': "the executable", 'd': "the debug file", 'z': "the file of dwz"}[present[i]])
	}
	if err := confine(most, cpu, files); err != nil {
		return fmt.Errorf("the process cannot be confined: %w", err)
	}
	if err := endWith(parent); err != nil {
		return err
	}
	return makeIndex(os.NewFile(outputFD, "the index"), files, identity, origin)
}

// endWith has this process end with its parent. The kernel forgets that where a process changes its user (prctl(2),
// PR_SET_PDEATHSIG), so this comes last. A parent that is gone by then sends no signal any more.
func endWith(parent string) error {
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0)
	if errno == syscall.ENOTSUP { // a program with cgo: the signal is that of a thread, which must not end before
		runtime.LockOSThread()
		errno = 0
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
			return err
		}
	}
	if errno != 0 {
		return errno
	}
	if strconv.Itoa(os.Getppid()) != parent {
		return errors.New("the server is gone")
	}
	return nil
}

// addressSpace is what Go and the program take of it before anything is read.
const addressSpace = 2 << 30

// confine bounds this process, and takes from it what it does not need: the right to open files
// where the kernel has Landlock, and the rights of root.
func confine(memory, cpu int64, files map[byte]*os.File) error {
	space := uint64(addressSpace + memory)
	for _, f := range files {
		if info, err := f.Stat(); err == nil {
			space += uint64(info.Size()) // they are mapped
		}
	}
	debug.SetMemoryLimit(memory * 3 / 4)
	for _, l := range []struct {
		what int
		most uint64
	}{{unix.RLIMIT_AS, space}, {unix.RLIMIT_CPU, uint64(cpu)}, {unix.RLIMIT_CORE, 0}} {
		if err := unix.Setrlimit(l.what, &unix.Rlimit{Cur: l.most, Max: l.most}); err != nil {
			return err
		}
	}
	if err := giveWay(); err != nil {
		return err
	}
	// Programs that were built with cgo cannot do so for all of their threads: releases are not.
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); errno != 0 && errno != syscall.ENOTSUP {
		return errno
	}
	if err := forbidFiles(); err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		const nobody = 65534
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
			return err
		}
	}
	return nil
}

// giveWay has this process take the processors when the server does not want them: who waits for an index
// waits for seconds anyway, and others ask for files meanwhile.
func giveWay() error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		const lowest = 19
		if err := unix.Setpriority(unix.PRIO_PROCESS, id, lowest); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil // threads that come later are started by these
}

// makeIndex makes the index and writes it.
func makeIndex(out *os.File, files map[byte]*os.File, identity, origin string) error {
	var file *symbol.File
	var err error
	if f := files['e']; f != nil {
		if file, err = symbol.Take(f, f.Name(), nil); err != nil {
			return err
		}
	}
	if f := files['d']; f != nil {
		d, err := symbol.Take(f, f.Name(), nil)
		switch {
		case err != nil:
			return err
		case file == nil:
			file = d
		default:
			file = symbol.Join(file, d)
		}
	}
	if file == nil {
		return errors.New("no file")
	}
	index, err := file.Index(symbol.IndexOptions{Identity: identity, Origin: origin, Open: func(c symbol.Companion) *symbol.File {
		f := files['z']
		if c.BuildID == nil || f == nil {
			return nil
		}
		// The executable and the debug file can refer to two of them, and the server looked for that of one.
		if info, err := buildid.Read(f); err != nil || !bytes.Equal(info.ID.Bytes(), c.BuildID) {
			return nil
		}
		dwz, err := symbol.NewFile(f, f.Name())
		if err != nil {
			return nil
		}
		return dwz
	}})
	if err != nil {
		return err
	}
	_, err = io.Copy(out, bytes.NewReader(index.Bytes()))
	return err
}
