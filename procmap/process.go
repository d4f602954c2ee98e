package procmap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/mounts"
)

// ErrNoMemory says that a process exists and has no memory of its own: it is a
// kernel thread, or it exited and its parent has not noticed yet.
var ErrNoMemory = errors.New("no memory of its own (a kernel thread or a zombie)")

// ErrNoProcess says that no process has the number. It wraps os.ErrProcessDone.
var ErrNoProcess = fmt.Errorf("no such process: %w", os.ErrProcessDone)

// An Error is a question about a process that could not be answered.
//
// errors.Is distinguishes the cases: os.ErrProcessDone when the process exited or
// executed another program, and ErrNoProcess as well when there was none, os.ErrPermission when this user may not look,
// ErrNoMemory, errors.ErrUnsupported when a Method was demanded that the kernel
// does not have, and os.ErrClosed.
type Error struct {
	PID int
	Err error
}

// Error returns what failed, with the process ID.
func (e *Error) Error() string {
	switch e.Err {
	case ErrNoProcess:
		return fmt.Sprintf("no process %d", e.PID)
	case os.ErrProcessDone:
		return fmt.Sprintf("process %d: gone, or not running the same program any more", e.PID)
	}
	return fmt.Sprintf("process %d: %v", e.PID, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Options say how a process is looked at. The zero value is right.
type Options struct {
	Method Method // Query or Text forces one way
	Files  *Files // remembers the identities of files for several processes; may be nil

	// Context bounds how files without notes are hashed: by its end, and by its budget, see
	// [buildid.WithBudget]. Nil means a budget of 4 GiB for the process.
	Context context.Context
}

// Process is one address space, open for questions: that which a process had
// when it was opened. When the process exits or executes another program, the
// methods fail with os.ErrProcessDone; they never answer for another process
// that got the same ID. The process is not stopped, so two answers may belong to
// two moments.
//
// The methods may be called by several goroutines at once.
type Process struct {
	pid    int
	tid    int    // of the thread that is asked
	dir    string // /proc/TID
	maps   maps
	method Method // as asked for
	query  bool   // PROCMAP_QUERY works on maps

	width  width
	files  *Files
	ctx    context.Context
	opened time.Time // where there are files
	known  sync.Map  // fileKey to Identity, of files that were read

	compared atomic.Int64 // pages, with their files: see Rewritten
	copies   atomic.Int64 // pages, with the files of their origins: see Rewritten

	mounted  *mounts.View
	viewOnce sync.Once
}

// Open opens the process with this ID, or the thread.
func Open(pid int) (*Process, error) { return OpenOptions(pid, Options{}) }

// OpenOptions opens the process with this ID as opts say. If its first thread has ended, and so
// has no memory any more, another one is asked.
func OpenOptions(pid int, opts Options) (*Process, error) {
	p, err := openProcess(strconv.Itoa(pid), opts)
	tid := pid
	if errors.Is(err, ErrNoMemory) {
		if other, of := openThread(pid, opts); other != nil {
			p, tid, err = other, of, nil
		}
	}
	if err != nil {
		return nil, &Error{pid, err}
	}
	p.pid, p.tid = pid, tid
	return p, nil
}

// openThread opens a process by a thread that has its memory still, nil if there is none.
func openThread(pid int, opts Options) (p *Process, tid int) {
	for _, tid := range threads(pid) {
		p, err := openProcess(strconv.Itoa(tid), opts)
		if err != nil {
			continue
		}
		if isThread(pid, tid) {
			return p, tid
		}
		p.Close()
	}
	return nil, 0
}

// threads returns the numbers of the threads of a process, none if it is gone.
func threads(pid int) (tids []int) {
	dir, err := os.Open(procDir(pid) + "/task")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if tid, err := strconv.Atoi(name); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids
}

// isThread reports whether a thread is of a process: its number may have become that of another one
// since it was listed.
func isThread(pid, tid int) bool {
	_, err := os.Stat(procDir(pid) + "/task/" + strconv.Itoa(tid))
	return err == nil
}

const procRoot = "/proc/"

func procDir(pid int) string { return procRoot + strconv.Itoa(pid) }

// openProcess opens the process that has this name in /proc.
func openProcess(name string, opts Options) (*Process, error) {
	p := &Process{dir: procRoot + name, method: opts.Method, files: opts.Files, ctx: opts.Context}
	if p.ctx == nil {
		p.ctx = buildid.WithBudget(context.Background(), buildid.Budget{Bytes: 4 << 30})
	}
	if p.files != nil {
		p.opened = time.Now()
	}
	if err := p.maps.open(p.dir + "/maps"); err != nil {
		return nil, p.refused(err)
	}
	if err := p.choose(); err != nil {
		p.Close()
		return nil, p.refused(err)
	}
	return p, nil
}

// refused returns the cause that a process cannot be opened because of err.
func (p *Process) refused(err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return ErrNoProcess
	case errors.Is(err, syscall.ESRCH):
		if _, err := os.Stat(p.dir); err != nil {
			return ErrNoProcess
		}
		return ErrNoMemory
	default:
		return err
	}
}

// choose finds out how p can be asked, and that there is something to ask.
func (p *Process) choose() error {
	var err error
	if p.method != Text {
		p.query, err = p.probe()
	}
	if err == nil && !p.query {
		err = p.maps.alive()
	}
	if err == nil && !p.query && p.method == Query {
		err = fmt.Errorf("PROCMAP_QUERY: %w", errors.ErrUnsupported)
	}
	return err
}

// Close releases the process, once the questions under way are answered.
func (p *Process) Close() error { return p.maps.close() }

// PID returns the ID that the process was opened with.
func (p *Process) PID() int { return p.pid }

// Method returns the way in which single addresses are looked up, Query or Text.
func (p *Process) Method() Method {
	if p.query {
		return Query
	}
	return Text
}

// Find returns the VMA that holds a; ok is false when none does.
func (p *Process) Find(a addr.Abs) (v VMA, ok bool, err error) {
	v, ok, err = p.find(a)
	return v, ok, p.wrap(err)
}

// Next returns the VMA that holds a, or else the first one above it; ok is false
// when there is neither.
func (p *Process) Next(a addr.Abs) (v VMA, ok bool, err error) {
	v, ok, err = p.next(a)
	return v, ok, p.wrap(err)
}

// All returns every VMA, in the order of their addresses and without overlaps.
func (p *Process) All() ([]VMA, error) {
	list, err := p.list(0)
	return list, p.wrap(err)
}

// Executable returns the executable VMAs that map a file, in the order of their
// addresses.
func (p *Process) Executable() ([]VMA, error) {
	list, err := p.list(fileBacked | uint64(Exec))
	return list, p.wrap(err)
}

// ExecutableWhile is Executable as long as more, which is called with each VMA that is listed, returns true.
// When it does not, the error wraps ErrStopped.
func (p *Process) ExecutableWhile(more func(VMA) bool) ([]VMA, error) {
	list, err := p.listWhile(fileBacked|uint64(Exec), more)
	return list, p.wrap(err)
}

// ErrStopped says that a list was stopped by whoever asked for it.
var ErrStopped = errors.New("the list of mappings was stopped")

// Code returns the executable VMAs that map a file or the vdso, in the order of their addresses.
func (p *Process) Code() ([]VMA, error) {
	list, err := p.list(uint64(Exec))
	list = slices.DeleteFunc(list, func(v VMA) bool { return !v.FileBacked() && v.Kind() != KindVDSO })
	return list, p.wrap(err)
}

// Memory opens the memory of p for reading: the offset in the file returned is the
// absolute address. The caller closes it. A read may wait for ever where a file system does
// not answer that p has mapped: see ReadMemory.
func (p *Process) Memory() (*os.File, error) {
	f, err := p.memory()
	return f, p.wrap(err)
}

func (p *Process) memory() (*os.File, error) {
	f, err := os.Open(p.dir + "/mem")
	if errors.Is(err, os.ErrNotExist) {
		return nil, os.ErrProcessDone
	}
	if err != nil {
		return nil, err
	}
	// It may be that of another program by now, or of another process.
	if err := p.maps.alive(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (p *Process) find(a addr.Abs) (VMA, bool, error) {
	v, ok, err := p.next(a)
	if !ok || err != nil || !v.Contains(a) {
		return VMA{}, false, err
	}
	return v, true, nil
}

func (p *Process) next(a addr.Abs) (VMA, bool, error) {
	if p.query {
		return p.queryNext(a)
	}
	return p.textNext(a)
}

// list returns the VMAs that pass the flags of a query.
func (p *Process) list(flags uint64) ([]VMA, error) {
	return p.listWhile(flags, func(VMA) bool { return true })
}

func (p *Process) listWhile(flags uint64, more func(VMA) bool) ([]VMA, error) {
	if p.query {
		return p.queryList(flags, more)
	}
	return p.textList(flags, more)
}

// wrap turns a cause into the error to return.
func (p *Process) wrap(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ESRCH):
		err = os.ErrProcessDone
	}
	return &Error{p.pid, err}
}
