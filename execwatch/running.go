package execwatch

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/contentcache"
	"hallmark/internal/objects"
	"hallmark/internal/patience"
	"hallmark/internal/perfring"
	"hallmark/internal/procfs"
	"hallmark/internal/reach"
	"hallmark/internal/regular"
	"hallmark/procmap"
	"hallmark/reason"
)

// runningPrograms are the programs of processes whose execution was not reported: they ran before
// the watch began, or before events were lost. They are looked for while events come.
type runningPrograms struct {
	wanted  bool
	now     *programList // nil for none
	due     bool         // to be taken again
	takenAt time.Time
	old     sync.WaitGroup
}

// programList is what ran at one time.
type programList struct {
	began    uint64 // ns, CLOCK_MONOTONIC
	cancel   context.CancelFunc
	done     chan struct{}
	programs map[uint32]*runningProgram // once done is closed
}

// runningProgram is the program of a process.
type runningProgram struct {
	started uint64 // ns, CLOCK_BOOTTIME, as exact as startTick
	name    string
	binary  *Binary // nil when it is not known
}

const (
	// startTick is how exactly /proc has the start of a process: USER_HZ is 100 on every
	// architecture of Go's.
	startTick = uint64(10 * time.Millisecond)
	// runningPatience is how long an end waits for the list.
	runningPatience = 3 * time.Second
	// retakeInterval bounds how often lists are taken where events get lost all the time.
	retakeInterval = 5 * time.Second
)

// take looks at what runs, unless that is not wanted. All that happens from now on is reported, so
// that none may end before it was seen: the files are noted at once, and read meanwhile.
func (r *runningPrograms) take() {
	if !r.wanted {
		return
	}
	r.forget()
	r.due, r.takenAt = false, time.Now()
	ctx, cancel := context.WithCancel(buildid.WithBudget(context.Background(), reach.Hashing))
	l := &programList{began: perfring.Monotonic(), cancel: cancel, done: make(chan struct{})}
	r.now = l
	seen := glimpseAll()
	r.old.Go(func() {
		defer cancel()
		defer close(l.done)
		defer seen.close()
		l.programs = seen.read(ctx)
	})
}

// forget forgets the programs, because events were lost: they may be others now.
func (r *runningPrograms) forget() {
	if r.now != nil {
		r.now.cancel()
	}
	r.now, r.due = nil, r.wanted
}

// renew takes the list again, if it was forgotten and it is time to do so.
func (r *runningPrograms) renew() {
	if r.due && time.Since(r.takenAt) > retakeInterval {
		r.take()
	}
}

func (r *runningPrograms) close() {
	r.forget()
	patience.Wait(&r.old, patience.Long) // a file system may not answer any more
}

// patience is how long an event waits that may be of a process in the list.
func (l *programList) patience(least time.Duration) time.Duration {
	if l.isDone() {
		return least
	}
	return max(least, runningPatience)
}

// isDone reports whether all is known that will be. It is of a nil list.
func (l *programList) isDone() bool {
	if l == nil {
		return true
	}
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// of returns the program of a process that ran when the list was begun, nil if it is not known.
func (l *programList) of(pid uint32) *runningProgram {
	if l == nil || !l.isDone() {
		return nil
	}
	return l.programs[pid]
}

// glimpses are what was seen of all processes in a short time.
type glimpses struct {
	at        time.Time
	processes []glimpse
	files     map[reach.Key]int // O_PATH
}

// glimpse is what can be seen of a process at once.
type glimpse struct {
	pid  int
	prog runningProgram
	file int // O_PATH; -1 for none
}

// glimpseAll notes which file each process runs. No server of a file system is asked.
func glimpseAll() *glimpses {
	g := &glimpses{at: time.Now(), files: map[reach.Key]int{}}
	pids, _ := procfs.Processes()
	for _, pid := range pids {
		if len(g.processes) >= maxLives {
			break
		}
		started, err := startOf(pid)
		if err != nil {
			continue
		}
		tid, path := procfs.ProgramOf(pid)
		if tid == 0 {
			continue // a kernel thread, or gone
		}
		p := glimpse{pid: pid, file: g.note(tid)}
		b := &Binary{Path: path, Reason: reason.ProcessGone}
		if link, err := procfs.Readlink(tid, "exe"); err == nil && isDeleted(link) {
			if b.Deleted = !isProgramAt(tid, link); !b.Deleted {
				b.Path = link
			}
		}
		p.prog = runningProgram{started, procfs.NameOf(uint32(pid)), b}
		if now, err := startOf(pid); err == nil && now == started {
			g.processes = append(g.processes, p)
		}
	}
	return g
}

// isProgramAt reports whether a path leads a process to the file that it runs. No server of a file system is
// asked.
func isProgramAt(tid int, path string) bool {
	exe, err := procfs.OpenLink(tid, "exe", 0)
	if err != nil {
		return false
	}
	defer unix.Close(exe)
	named, err := reach.OpenBelow(tid, path)
	if err != nil {
		return false
	}
	defer unix.Close(named)
	var runs, at unix.Statx_t
	for fd, st := range map[int]*unix.Statx_t{exe: &runs, named: &at} {
		if unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_INO, st) != nil {
			return false
		}
	}
	return runs.Dev_major == at.Dev_major && runs.Dev_minor == at.Dev_minor && runs.Ino == at.Ino
}

// note keeps the file that a process runs, one descriptor for all who run it.
func (g *glimpses) note(tid int) int {
	fd, err := procfs.OpenLink(tid, "exe", 0)
	if err != nil {
		return -1
	}
	var st unix.Statx_t
	if unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_INO, &st) != nil {
		unix.Close(fd)
		return -1
	}
	key := reach.Key{Major: st.Dev_major, Minor: st.Dev_minor, Inode: st.Ino}
	if known, ok := g.files[key]; ok || len(g.files) >= objects.MayKeepOpen()/2 {
		unix.Close(fd)
		if !ok {
			return -1
		}
		return known
	}
	g.files[key] = fd
	return fd
}

func (g *glimpses) close() {
	for _, fd := range g.files {
		unix.Close(fd)
	}
}

// read reads the identities of what was seen, until ctx is done: of a process that is still
// there as of all that run, and else of the file.
func (g *glimpses) read(ctx context.Context) map[uint32]*runningProgram {
	var mu sync.Mutex
	list := map[uint32]*runningProgram{}
	var files procmap.Files
	defer files.Close()
	options := procmap.Options{Files: &files, Context: ctx}
	procfs.EachInParallel(g.processes, func(seen glimpse) {
		if ctx.Err() != nil {
			return
		}
		p := lookAtProgram(seen.pid, options)
		if p == nil || p.started != seen.prog.started {
			p = &seen.prog
			g.readFile(ctx, seen)
		}
		mu.Lock()
		defer mu.Unlock()
		list[uint32(seen.pid)] = p
	})
	return list
}

// readFile reads the identity of the file that a process had executed which is gone, if its
// times say that nobody has written to it since it was seen.
func (g *glimpses) readFile(ctx context.Context, seen glimpse) {
	if seen.file < 0 {
		return
	}
	b := seen.prog.binary
	f, err := regular.Reopen(seen.file, b.Path)
	if err != nil {
		return
	}
	defer f.Close()
	info, err := contentcache.Read(ctx, f)
	switch now := reach.StampOf(f); {
	case err != nil:
		b.Reason = reason.FileDamaged
	case now.After(g.at), !reach.KeepsTimes(f):
		b.Reason = reason.FileChanged
	case info.ID.IsZero():
		b.Reason = procmap.WhyNoID(info)
	default:
		b.ID, b.Reason = info.ID, reason.None
	}
}

// lookAtProgram returns what a process runs, nil for a kernel thread or if it is gone. It looks
// again if the process executed another program meanwhile.
func lookAtProgram(pid int, o procmap.Options) *runningProgram {
	started, err := startOf(pid)
	if err != nil {
		return nil
	}
	for range reach.MaxAttempts {
		tid, path := procfs.ProgramOf(pid)
		if tid == 0 {
			return nil
		}
		name := procfs.NameOf(uint32(pid))
		b := readProgram(tid, path, o)
		now, err := startOf(pid)
		if err != nil || now != started {
			return nil
		}
		if again, same := procfs.ProgramOf(pid); again == tid && same == path {
			return &runningProgram{started, name, b}
		}
	}
	return nil
}

// readProgram returns the program of a process, which has its code mapped.
func readProgram(tid int, path string, o procmap.Options) *Binary {
	p, err := procmap.OpenOptions(tid, o)
	if err != nil {
		return &Binary{Path: path, Reason: reason.NotPermitted}
	}
	defer p.Close()
	vmas, err := p.Executable()
	if err != nil {
		return &Binary{Path: path, Reason: reason.NotPermitted}
	}
	for _, v := range vmas {
		if v.Path() != path {
			continue
		}
		b := &Binary{Path: p.PathOf(v), Reason: reason.Unstable}
		b.Deleted = b.Path != v.Name
		if id, err := p.Identity(v); err == nil {
			b.ID, b.Reason = id.ID, id.Reason
		}
		return b
	}
	return &Binary{Path: path, Reason: reason.NotMapped}
}

// startOf returns when a process was started, ns, CLOCK_BOOTTIME, in whole startTicks.
func startOf(pid int) (uint64, error) {
	stat, err := procfs.Read(pid, "stat")
	if err != nil {
		return 0, err
	}
	// Field 22, counted behind the name in parentheses, which may hold anything: proc_pid_stat(5).
	const startField = 22
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= startField-3 {
		return 0, fmt.Errorf("/proc/%d/stat: no start time in it", pid)
	}
	n, err := strconv.ParseUint(string(fields[startField-3]), 10, 64)
	return n * startTick, err
}
