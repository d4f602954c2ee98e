// Package perfmap finds the maps that runtimes write of the code that they
// generate, /tmp/perf-PID.map (the kernel's
// tools/perf/Documentation/jit-interface.txt).
package perfmap

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/internal/mounts"
	"hallmark/internal/procfs"
	"hallmark/internal/regular"
)

// Open opens the map of a process: as the process sees the file and counts
// itself, else as we do. started is when the process started; when it is zero,
// /proc reports, and the process must still run.
//
// Only a map that this very process can have written is taken: a regular file of
// its user, not older than the process. /tmp is anybody's, and process numbers are used
// again. In our /tmp it may also be a file of ours or of root: who attaches to a runtime to have
// its map written may be root. In another /tmp it may not, because anybody can have one in which
// files of root's are mounted. For the same reason nothing is taken that is mounted on the name.
func Open(pid int, started time.Time) (*os.File, error) {
	p, err := Keep(pid, started)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return p.Open()
}

// A MapFile is where a process may write a map. The directory that the process sees as /tmp is
// kept open, and so is the map if there is one already, because nobody else may
// see them when it has ended: those of a container, for instance.
type MapFile struct {
	outside string       // the name for us
	inside  string       // the name in dir
	dir     *os.File     // its /tmp, nil when that is ours
	early   *os.File     // the map as it was found in dir at first, nil when there was none
	started time.Time    // the process
	view    *mounts.View // the file systems of the process
	owner   int          // of what the process writes, -1 when it had ended already
}

// Keep returns the place of a process that started at the time, or when /proc
// says it did if that is zero. Where the process has ended, nothing is kept, but
// there may be a map all the same. The caller closes the MapFile.
func Keep(pid int, started time.Time) (*MapFile, error) {
	now, err := StartTime(pid)
	if err != nil && started.IsZero() {
		return nil, err
	}
	if started.IsZero() {
		started = now
	}
	p := &MapFile{outside: fmt.Sprintf("/tmp/perf-%d.map", pid), started: started, owner: -1}
	if err != nil || now.After(started.Add(tolerance)) {
		return p, nil // it has ended, and another one may have its number
	}
	var inner string
	inner, p.owner = status(pid)
	if inner != "" {
		p.inside = fmt.Sprintf("perf-%s.map", inner)
		p.view = mounts.Of(pid, false)
		p.keepInside(pid)
	}
	return p, nil
}

// tolerance is how exactly the start of a process is known, with some to spare.
const tolerance = 100 * time.Millisecond

// keepInside opens /tmp of the process, unless it is ours and the process has one
// number for everybody.
func (p *MapFile) keepInside(pid int) {
	dir, err := p.openBelow(pid, "tmp")
	if err != nil {
		return
	}
	if p.outside == "/tmp/"+p.inside && isOurs(dir) {
		dir.Close()
		return
	}
	p.dir = dir
	if f, err := p.openInside(); err == nil {
		p.early = f
	}
}

// openBelow opens a directory below the root of a process. Links lead nowhere out of it. One on a file
// system that may not answer is not opened.
func (p *MapFile) openBelow(pid int, name string) (*os.File, error) {
	fd, err := procfs.OpenLink(pid, "root", unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	dir, err := p.view.Open(fd, name+"/.")
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(dir), name), nil
}

func isOurs(dir *os.File) bool {
	ours, err := os.Stat("/tmp")
	if err != nil {
		return false
	}
	theirs, err := dir.Stat()
	return err == nil && os.SameFile(ours, theirs)
}

// Open opens the map.
func (p *MapFile) Open() (*os.File, error) {
	f, inside := p.openInside()
	if inside == nil {
		return f, nil
	}
	if p.early != nil { // its name is gone
		return regular.Reopen(int(p.early.Fd()), p.inside)
	}
	f, err := p.openOutside()
	if err != nil {
		return nil, errors.Join(inside, err)
	}
	return f, nil
}

func (p *MapFile) openInside() (*os.File, error) {
	if p.dir == nil {
		return nil, os.ErrNotExist
	}
	return p.openMap(int(p.dir.Fd()), p.inside, p.owner)
}

func (p *MapFile) openOutside() (*os.File, error) {
	dir, err := openDirectory(filepath.Dir(p.outside))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return p.openMap(int(dir.Fd()), filepath.Base(p.outside), p.owner, 0, os.Geteuid())
}

// openDirectory opens the place of a directory of ours, if it answers.
func openDirectory(name string) (*os.File, error) {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	if !mounts.AnswersFD(fd) {
		unix.Close(fd)
		return nil, fmt.Errorf("%s: %w", name, mounts.ErrForeign)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openMap opens a map in a directory that answers. It may belong to these users.
func (p *MapFile) openMap(dir int, name string, owners ...int) (*os.File, error) {
	place, err := placeOf(dir, name)
	if err != nil {
		return nil, err
	}
	defer unix.Close(place)
	if err := p.judge(place, owners); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return regular.Reopen(place, name)
}

// placeOf opens the place (O_PATH) of what a directory has under a name. It follows no link, and
// takes nothing that is mounted there.
func placeOf(dir int, name string) (int, error) {
	place, err := mounts.OpenEntry(dir, name)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	if !mounts.SameMount(dir, place) {
		unix.Close(place)
		return -1, &os.PathError{Op: "open", Path: name, Err: unix.EXDEV}
	}
	return place, nil
}

// judge is the error of a place whose file the process cannot have written.
func (p *MapFile) judge(place int, owners []int) error {
	var st unix.Stat_t
	if err := unix.Fstat(place, &st); err != nil {
		return err
	}
	switch {
	case !slices.Contains(owners, int(st.Uid)):
		return errors.New("belongs to another user than the process")
	case time.Unix(st.Mtim.Unix()).Before(p.started):
		return errors.New("older than the process")
	}
	return nil
}

// Close lets go of what was kept.
func (p *MapFile) Close() error {
	var errs []error
	for _, f := range []*os.File{p.dir, p.early} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	p.dir, p.early = nil, nil
	return errors.Join(errs...)
}

// status returns the number that a process has for itself, "" when it is gone,
// and the user to whom its new files belong: proc_pid_status(5).
func status(pid int) (inner string, owner int) {
	owner = -1
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "", owner
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		switch {
		case key == "NSpid" && len(fields) > 0:
			inner = fields[len(fields)-1]
		case key == "Uid" && len(fields) == 4: // real, effective, saved, of files
			if uid, err := strconv.Atoi(fields[3]); err == nil {
				owner = uid
			}
		}
	}
	return inner, owner
}

// StartTime returns when a running process started, to 10 ms.
func StartTime(pid int) (time.Time, error) {
	stat, err := procfs.Read(pid, "stat")
	if err != nil {
		return time.Time{}, err
	}
	// Field 22, counted behind the name in parentheses, which may hold anything.
	const startField, ticks = 22, 100 // USER_HZ is 100 on every architecture of Go's
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= startField-3 {
		return time.Time{}, fmt.Errorf("/proc/%d/stat: no start time in it", pid)
	}
	n, err := strconv.ParseInt(string(fields[startField-3]), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	return WallClock(time.Duration(n)*(time.Second/ticks), unix.CLOCK_BOOTTIME)
}

// WallClock turns a time of another of the kernel's clocks into wall-clock time,
// rather too early than too late.
func WallClock(t time.Duration, clock int32) (time.Time, error) {
	wall := time.Now()
	var now unix.Timespec
	if err := unix.ClockGettime(clock, &now); err != nil {
		return time.Time{}, err
	}
	return wall.Add(t - time.Duration(now.Nano())), nil
}
