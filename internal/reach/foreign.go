package reach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/aside"
	"hallmark/internal/bpf"
	"hallmark/internal/contentcache"
	"hallmark/procmap"
	"hallmark/reason"
)

// Files of file systems that may not answer (FUSE, a network) are looked at by a helper, a
// process that can be left behind: see internal/aside. The helper runs the functions of this
// package, and keeps the file open.

// farJob is a Request that can be sent.
type farJob struct {
	PID     uint32
	VMA     procmap.VMA
	Mapped  time.Time
	ByID    bool // the kernel read the identity, which the asker compares, and reported no inode
	Claim   bool // the file is not hashed
	Content *bpf.Validity
	Early   int64 // bytes that the file may have for its content to be read
}

// farFile is a Found that can be sent.
type farFile struct {
	ID, Code       string // the identity, and the content
	Seen           farStamp
	Why            reason.Reason
	Proven, Layers bool
	Fickle, Young  bool
	Name           string
}

// farStamp is a Stamp that can be sent.
type farStamp struct {
	Size         int64
	Mtime, Ctime bpf.Time
	Links, Inode uint64
}

func (s farStamp) stamp() Stamp { return Stamp{s.Size, s.Mtime, s.Ctime, s.Links, s.Inode} }

func farStampOf(f *os.File) farStamp { return farStampFrom(StampOf(f)) }

func farStampFrom(s Stamp) farStamp { return farStamp{s.Size, s.Mtime, s.Ctime, s.links, s.Inode} }

// HelperContext bounds how a helper hashes a file, so that the answer comes in time. The caller
// calls cancel.
func HelperContext() (ctx context.Context, cancel func()) {
	return context.WithTimeout(farHashing(), aside.AnswerTime)
}

var farHashing = sync.OnceValue(func() context.Context { return buildid.WithBudget(context.Background(), Hashing) })

// farReading bounds what a helper reads of files that were just reached.
var farReading Allowances

// reachFar is File in a helper.
var (
	reachFar = aside.NamedOpener[farJob, farFile]("reach.open")
	_        = reachFar.Answer(reachNear)
)

func reachNear(q farJob) (farFile, aside.Content, error) {
	ctx, cancel := HelperContext()
	defer cancel()
	found := File(ctx, Request{PID: q.PID, VMA: q.VMA, Mapped: q.Mapped, Validity: q.Content, byIdentity: q.ByID, Claim: q.Claim}, 0)
	if ctx.Err() == nil {
		found.ReadContent(ctx, q.Early, &farReading)
	}
	f := farFile{
		Seen: farStampFrom(found.Seen), Why: found.Why, Code: found.Content.String(),
		Proven: found.Proven, Layers: found.Layered, Fickle: found.Fickle, Young: found.Young, Name: found.Name,
	}
	if !found.ID.IsZero() {
		f.ID = found.ID.String()
	}
	if found.File == nil {
		return f, nil, nil
	}
	return f, found.File, nil
}

// Aside reaches for a file through a helper. Nobody is trusted not to exchange it.
func Aside(q Request, about string, early int64) Found {
	asked := farJob{
		PID: q.PID, VMA: q.VMA, Mapped: q.Mapped, ByID: q.byIdentity || !q.Want.IsZero(), Claim: q.Claim,
		Content: q.Validity, Early: early,
	}
	far, file, err := reachFar.Ask(about, asked)
	if err != nil {
		return Found{Why: reason.FileUnresponsive}
	}
	found := Found{
		Seen: far.Seen.stamp(), Why: far.Why, Judged: true,
		Proven: far.Proven, Layered: far.Layers, Fickle: far.Fickle, Young: far.Young, Name: far.Name,
	}
	if file != nil {
		found.File = file
	}
	var idErr, codeErr error
	if far.ID != "" {
		found.ID, idErr = buildid.Parse(far.ID)
	}
	if far.Code != "" {
		found.Content, codeErr = buildid.ParseContent(far.Code)
	}
	if idErr != nil || codeErr != nil {
		found.Why = reason.FileDamaged
	}
	return found
}

// aboutDevice names a file system.
func aboutDevice(major, minor uint32) string {
	return fmt.Sprintf("file system %s", procmap.Dev{Major: major, Minor: minor})
}

// stampFar is StampOf in the helper that has the file open, and reads the identity again where
// only that reports whether the file is still the same.
var stampFar = aside.New("reach.stamp", func(number uint64) (farFile, error) {
	f, ok := aside.Kept(number).(*os.File)
	if !ok {
		return farFile{}, os.ErrClosed
	}
	ctx, cancel := HelperContext()
	defer cancel()
	far := farFile{Seen: farStampOf(f), Fickle: !KeepsTimes(f)}
	info, err := contentcache.Read(ctx, f)
	if err == nil && !info.ID.IsZero() {
		far.ID = info.ID.String()
	}
	return far, nil
})

// ChangeInHelper reports whether the content of a file that a helper has open is another one than that
// whose identity id was read when the file had the stamp seen.
func ChangeInHelper(f *aside.File, seen Stamp, id buildid.ID) Change {
	far, err := aside.Serves(f, stampFar, f.Number())
	now := far.Seen.stamp()
	switch {
	case errors.Is(err, aside.ErrUnanswered):
		return ChangeUnknown
	case err != nil, now.Size != seen.Size, now.Mtime != seen.Mtime:
		return ChangeShown
	case now == seen && !far.Fickle, far.ID == id.String():
		return Unchanged
	case now == seen:
		return ChangeHidden
	}
	return ChangeShown
}

// contentFar reads the content of a file that a helper has open.
var contentFar = aside.New("reach.content", func(number uint64) (farFile, error) {
	f, ok := aside.Kept(number).(*os.File)
	if !ok {
		return farFile{}, os.ErrClosed
	}
	ctx, cancel := HelperContext()
	defer cancel()
	c, err := contentcache.OfMapped(ctx, f)
	return farFile{Code: c.String(), Seen: farStampOf(f)}, err
})

// ContentInHelper returns the content of a file that a helper has open, if nothing has changed
// since it had this stamp. Its owner can put back all that could show a change of less.
func ContentInHelper(f *aside.File, seen Stamp) (c buildid.Content) {
	far, err := aside.Serves(f, contentFar, f.Number())
	if err == nil && far.Code != "" && far.Seen.stamp() == seen {
		c, _ = buildid.ParseContent(far.Code) // or it is unknown
	}
	return c
}

// OwnerInHelper returns whose a file is that a helper has open, -1 where its server says so: the
// kernel knows it of files in containers.
var OwnerInHelper = aside.New("reach.owner", func(number uint64) (int64, error) {
	f, ok := aside.Kept(number).(*os.File)
	if !ok {
		return -1, os.ErrClosed
	}
	var st unix.Stat_t
	if !isLayered(f) || unix.Fstat(int(f.Fd()), &st) != nil {
		return -1, nil
	}
	return int64(st.Uid), nil
})

// farDescriptor is a descriptor of this process.
type farDescriptor struct{ PID, FD int }

// readFile reads a file that this process has open, to its end, in a helper.
var readFile = aside.New("reach.read", func(q farDescriptor) ([]byte, error) {
	process, err := unix.PidfdOpen(q.PID, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(process)
	fd, err := unix.PidfdGetfd(process, q.FD, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "iterator")
	defer f.Close()
	return io.ReadAll(f)
})

// ReadIterator has a BPF iterator run in a helper: it touches memory of other processes, which
// may be exchanged for that of a file system that does not answer just before.
func ReadIterator(f *os.File) ([]byte, error) {
	b, err := readFile.Ask("memory of all processes", farDescriptor{os.Getpid(), int(f.Fd())})
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		return io.ReadAll(f)
	}
	return b, err
}
