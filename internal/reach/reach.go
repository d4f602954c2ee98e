// Package reach opens the file that a process has mapped, reads its identity, and says how certain it
// is that this is the file which was mapped.
//
// A file is opened through the process, while that has it mapped, or else by its path. Files of file
// systems that may not answer are opened by a helper process (internal/aside). Three things can
// prove a file: the inode and times that the kernel saw (bpf.Validity), the identity that the kernel
// read from the mapped pages, or, where times are to be believed (internal/fstimes), that nothing
// changed since the mapping was there.
package reach

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/aside"
	"hallmark/internal/bpf"
	"hallmark/internal/contentcache"
	"hallmark/internal/fstimes"
	"hallmark/internal/mounts"
	"hallmark/internal/patience"
	"hallmark/internal/procfs"
	"hallmark/internal/regular"
	"hallmark/internal/trust"
	"hallmark/procmap"
	"hallmark/reason"
)

// Request is a mapping of process pid through which a file may be reached.
type Request struct {
	Want buildid.ID // what the kernel read from the mapped pages, zero if it read none
	VMA  procmap.VMA
	PID  uint32
	// Mapped is when the mapping was there: what changed later may have changed under it.
	Mapped time.Time
	// Validity is of the file that was mapped, where a BPF program saw it: then neither the inode nor
	// the identity has to prove that a file is the right one. Else it is nil.
	Validity *bpf.Validity
	// Number is that of the file, beside Want, where records have both.
	Number Number
	// Media are what was in the machine's disks before there was anything to judge.
	Media Media
	// byIdentity says that the identity decides, in a helper, which does not get Want.
	byIdentity bool
	// Claim says that a file without notes is not hashed.
	Claim bool
}

// Found is what was found of a file, or why nothing was.
type Found struct {
	File            Handle
	ID              buildid.ID
	Seen            Stamp // before the identity was read
	Why             reason.Reason
	Proven          bool            // it has the content that was mapped
	Vouched         bool            // the same, by the word of those who alone can have changed it
	renamed         bool            // it is the file that was mapped, and only its names seem to have changed
	Content         buildid.Content // zero if it was not read
	Judged, Trusted bool            // only root or this user can exchange it, if judged
	// Layered says that it is on an overlay.
	Layered bool
	Fickle  bool // device, inode and times do not prove that it is the file of a record
	Young   bool // it may have changed after it was mapped and have a time from before
	ByName  bool // path and identity alone show that it is the one that was mapped
	// Numbered says that it has the inode that was mapped, and that only root or this user can have written it.
	Numbered bool
	Name     string // that the process has it under; "" when that is not known
	Path     string // that leads to it, where that of the mapping does not; else ""
	locked   bool   // the process lets nobody look at its mappings
}

// Close closes the file, if there is one.
func (f Found) Close() {
	if f.File != nil {
		f.File.Close()
	}
}

// File opens the file of a mapping and reads its identity, through the process
// that has it mapped, or by its path when that process is gone. A file without notes is
// hashed as long as ctx allows it. Where the file's file system may not answer, a helper does
// that, and reads the content of a file of at most so many bytes.
func File(ctx context.Context, q Request, early int64) Found {
	found, about := Here(ctx, q)
	if found.MayAnswerAside() {
		return Aside(q, about, early)
	}
	return found
}

// MayAnswerAside reports whether a helper may have the file: its file system may not answer. Of a
// process that lets nobody look at its mappings a helper would have none either.
func (f *Found) MayAnswerAside() bool {
	return f.Why == reason.FileUnresponsive && !f.locked && aside.Available()
}

// Here is File without a helper. It returns the name of the file system that a helper is to be asked
// about.
func Here(ctx context.Context, q Request) (found Found, about string) {
	f, name, why, about, outcome := openMappedInTime(q)
	switch outcome {
	case patience.Ended:
	case patience.Silent:
		why = reason.FileUnresponsive
	default:
		why = reason.NotRead
	}
	byName := q.Validity == nil && q.VMA.Inode == 0
	if why == reason.None {
		// The process may have mapped another file there since.
		byName = byName && name != strings.TrimSuffix(q.VMA.Name, procfs.Deleted)
	}
	if why == reason.None && q.match(f) == matchOther { // as it has
		f.Close()
		f, why = nil, reason.ProcessGone
	}
	if why == reason.ProcessGone {
		f, why = q.openPath()
		name, byName = "", q.Validity == nil && q.VMA.Inode == 0
	}
	path := ""
	if at, place := q.provenAtPath(f); at != nil {
		if path = place; f != nil {
			if name != "" && isLayered(f) {
				path = name
			}
			f.Close()
		}
		f, name, why = at, "", reason.None
	}
	if why != reason.None {
		return Found{Why: why, locked: outcome == patience.Silent}, about
	}
	if q.Validity != nil {
		waitForClock(q.Validity)
	}
	leavePages(f)
	found = Identify(ctx, f, q.Claim)
	if found.Why == reason.None {
		found.Layered, found.Fickle, found.Name, found.Path = isLayered(f), q.Media.isFickle(f), name, path
		found.Proven, found.renamed = q.proves(f, IsContent), q.proves(f, isRenamed)
		found.Vouched = q.vouches(f, name != "")
		found.Numbered = q.isNumbered(f, name != "")
		found.ByName = byName && !found.Numbered
		found.Young = q.Validity == nil && found.Seen.After(q.Mapped.Add(-fstimes.Delay())) && !isProgram(q.PID, f)
	}
	return found, about
}

// Identify reads the identity of an open file, or no more than what it claims. The file has
// that identity and the stamp that is returned at one time.
func Identify(ctx context.Context, f *os.File, claim bool) Found {
	return whileUnchanged(f, func() Found { return identifyOnce(ctx, f, claim) })
}

// whileUnchanged reads a file that may change meanwhile, or only its names. Where times mean
// nothing they are no reason to doubt it either, unless all of its code was read.
func whileUnchanged(f *os.File, read func() Found) (found Found) {
	for range readAttempts {
		seen := StampOf(f)
		found = read()
		found.Seen = seen
		if found.Why != reason.None || StampOf(f) == seen || found.ID.Kind() != buildid.ByContent && !KeepsTimes(f) {
			return found
		}
	}
	return Found{File: f, Seen: found.Seen, Why: reason.FileWritten}
}

// readAttempts is how often a file is read that changes meanwhile.
const readAttempts = 3

func identifyOnce(ctx context.Context, f *os.File, claim bool) Found {
	var info buildid.Info
	var err error
	if claim {
		info, err = buildid.ReadClaim(f)
	} else {
		info, err = contentcache.Read(ctx, f)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Found{File: f, Why: reason.HashBudget}
	case errors.Is(err, buildid.ErrChanging):
		return Found{File: f, Why: reason.FileWritten}
	case err != nil:
		return Found{File: f, Why: reason.FileDamaged}
	case info.ID.IsZero():
		return Found{File: f, Why: procmap.WhyNoID(info)}
	}
	return Found{File: f, ID: info.ID}
}

// proves reports whether an open file that was read is the one that was mapped, as is reports:
// IsContent or isRenamed.
func (q Request) proves(f *os.File, is func(*os.File, *bpf.Validity) bool) bool {
	return q.Validity != nil && is(f, q.Validity) && (q.Validity.Pinned == 0 || isProgram(q.PID, f))
}

// provenAtPath opens the file by its path if what was found at the address of its mapping, nil for
// nothing, is not proven to be the one that was mapped, and the one at the path is. A process may map
// one file after the other at an address, and each time that somebody looks it may be another one's turn.
// Or it lets nobody look.
// The path of a file in a layer counts from the root of the layer's file system. It returns the place
// where that is mounted, too, "" for the path as it is. It returns nil if there is no such file.
func (q Request) provenAtPath(found *os.File) (f *os.File, place string) {
	isProven := func(f *os.File, throughMapping bool) bool {
		return q.proves(f, IsContent) || q.proves(f, isRenamed) || q.vouches(f, throughMapping) || q.isNumbered(f, throughMapping)
	}
	if q.Validity == nil && (q.Number == Number{} || found != nil) || found != nil && isProven(found, true) {
		return nil, ""
	}
	var places []string
	if q.Validity != nil {
		places = mounts.Places(mounts.Dev(q.Validity.Dev), strings.TrimSuffix(q.VMA.Name, procfs.Deleted))
	}
	for _, place := range slices.Concat([]string{""}, places) {
		v := q.VMA
		if place != "" {
			v.Name = place
		}
		f, why := OpenPath(v)
		if why != reason.None {
			continue
		}
		if isProven(f, false) {
			return f, place
		}
		f.Close()
	}
	return nil, ""
}

// openMapped opens the file through the process, if the process still has the same file mapped
// there: the same inode, or, where a record has a build ID in place of the inode, any file, whose
// build ID the caller compares. Names prove nothing: the process may have executed another file of
// the same name, and the same file may have another name by now, or for us.
func openMapped(q Request) (f *os.File, name string, why reason.Reason, about string) {
	about = q.About()
	p, err := procmap.Open(int(q.PID))
	if err != nil {
		return nil, "", reason.ProcessGone, about
	}
	defer p.Close()
	v, ok, err := p.Find(q.VMA.Start)
	if err != nil || !ok || !q.shows(v) {
		return nil, "", reason.ProcessGone, about
	}
	about = aboutDevice(v.Dev.Major, v.Dev.Minor)
	opened, err := p.OpenFile(v)
	if err != nil {
		return nil, "", cmp.Or(reason.Of(err), reason.ProcessGone), about
	}
	return opened.File, strings.TrimSuffix(v.Name, procfs.Deleted), reason.None, about
}

// mappedTime is how long it may take to open a file through the process that has it mapped.
const mappedTime = time.Second

// openMappedInTime is openMapped for a process that may let nobody look at its mappings: the kernel holds
// their lock while a process waits for a file system of its own in mmap(2). The goroutine that looks is left behind.
func openMappedInTime(q Request) (f *os.File, name string, why reason.Reason, about string, outcome patience.Outcome) {
	type answer struct {
		file      *os.File
		name      string
		why       reason.Reason
		about     string
		isAwaited bool
	}
	var mu sync.Mutex
	a := answer{isAwaited: true}
	outcome = patience.Try(int(q.PID), mappedTime, func() {
		file, name, why, about := openMapped(q)
		mu.Lock()
		defer mu.Unlock()
		if !a.isAwaited && file != nil {
			file.Close()
			return
		}
		a.file, a.name, a.why, a.about = file, name, why, about
	})
	mu.Lock()
	defer mu.Unlock()
	a.isAwaited = false
	if outcome != patience.Ended {
		if a.file != nil { // it came at the last moment
			a.file.Close()
		}
		return nil, "", reason.None, q.About(), outcome
	}
	return a.file, a.name, a.why, a.about, outcome
}

// About names the file system of the file, as far as the kernel reported it.
func (q Request) About() string {
	if q.Validity != nil {
		return aboutDevice(q.Validity.Dev.Major, q.Validity.Dev.Minor)
	}
	return aboutDevice(q.VMA.Dev.Major, q.VMA.Dev.Minor)
}

// shows reports whether v may be the mapping of q.
func (q Request) shows(v procmap.VMA) bool {
	if q.Validity != nil || !q.Want.IsZero() || q.byIdentity {
		return true // the file itself decides
	}
	return v.Dev == q.VMA.Dev && v.Inode == q.VMA.Inode
}

// OpenPath opens the file by its path, as this process sees it, and takes it
// only when it is the very inode that was mapped. A record that has the build ID
// has no inode: then the identity decides, which the caller compares. OpenPath opens
// regular files only: a stranger's path may lead to a device here.
func OpenPath(v procmap.VMA) (*os.File, reason.Reason) {
	place, err := mounts.OpenHere(v.Name)
	if errors.Is(err, mounts.ErrForeign) {
		return nil, reason.FileUnresponsive
	}
	if err != nil {
		return nil, reason.FileGone
	}
	defer unix.Close(place)
	var st unix.Stat_t
	if err := unix.Fstat(place, &st); err != nil {
		return nil, reason.FileGone
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || v.Inode != 0 && !IsInode(&st, v) {
		return nil, reason.FileChanged
	}
	f, err := regular.Reopen(place, v.Name)
	if errors.Is(err, unix.EAGAIN) {
		return nil, reason.FileUnresponsive // somebody has a lease on it
	}
	if err != nil {
		return nil, reason.NotPermitted
	}
	return f, reason.None
}

// openPath is OpenPath for a file that may not have another number either.
func (q *Request) openPath() (*os.File, reason.Reason) {
	f, why := OpenPath(q.VMA)
	if why == reason.None && q.match(f) == matchOther {
		f.Close()
		return nil, reason.FileChanged
	}
	return f, why
}

// IsInode reports whether st is of the inode that v shows.
func IsInode(st *unix.Stat_t, v procmap.VMA) bool {
	return st.Ino == v.Inode &&
		unix.Major(st.Dev) == v.Dev.Major && unix.Minor(st.Dev) == v.Dev.Minor
}

// ReadContent reads the content of a file of at most so many bytes, if not too much was read
// of late.
func (f *Found) ReadContent(ctx context.Context, most int64, left *Allowances) {
	file, isNear := f.File.(*os.File)
	if !isNear || f.Why != reason.None || f.Seen.Size > most {
		return
	}
	if c, ok := contentcache.Known(file); ok && StampOf(file) == f.Seen {
		f.Content = c
		return
	}
	if !left.of(f.IsTrusted()).take(f.Seen.Size, time.Now()) {
		return
	}
	c, err := ContentOf(ctx, file, f.ID)
	if err == nil && StampOf(file) == f.Seen {
		f.Content = c
	}
}

// ContentOf reads the content of an open file that had an identity when that was read: the zero one if it has another
// identity by now. Where times do not show each change, the bytes may be of another build than those of before.
func ContentOf(ctx context.Context, f *os.File, id buildid.ID) (c buildid.Content, err error) {
	isChecked := !KeepsTimes(f) && id.Kind() != buildid.ByContent
	if isChecked && !claims(f, id) {
		return c, nil
	}
	c, err = contentcache.OfMapped(ctx, f)
	if isChecked && !claims(f, id) || id.Kind() == buildid.ByContent && c.ID() != id {
		return buildid.Content{}, err
	}
	return c, err
}

// claims reports whether an open file has an identity that is written in it.
func claims(f *os.File, id buildid.ID) bool {
	info, err := buildid.ReadClaim(f)
	return err == nil && info.ID == id
}

// IsExact reports whether a file that was found for the request is certain to have the content that
// was mapped. The owner of a file can make another one of the same identity; root and this
// user put no times back to deceive.
func (q Request) IsExact(f Found) bool {
	if q.Validity != nil {
		return f.Proven || f.Vouched || f.renamed && f.IsTrusted()
	}
	return (!f.Fickle || f.Numbered) && !f.Young && !wall(f.Seen.Ctime).Add(f.Seen.rounding()).After(q.Mapped.Add(-f.slack()))
}

// slack returns by how much the time of change of a file that is in no directory any more may be behind. Of others
// Young says whether it may be.
func (f *Found) slack() time.Duration {
	if f.Seen.links > 0 {
		return 0
	}
	return fstimes.Delay()
}

// IsByWord reports whether a file that IsExact is so by the word of those who alone can have changed it, as its times
// do not show each change.
func (q Request) IsByWord(f Found) bool {
	if q.Validity != nil {
		return f.Vouched && !f.Proven
	}
	return f.Fickle
}

// IsLookalike reports whether a file that is not proven to be the one that a BPF program saw may be
// it all the same: only the time of its inode is another one, which changes with its names.
func (q Request) IsLookalike(f Found) bool {
	return uint64(f.Seen.Size) == q.Validity.Size && f.Seen.Mtime == q.Validity.Mtime
}

// Judge looks whether only root or this user can exchange a file that is not kept open.
func (f *Found) Judge(isClosed bool) {
	if file, isNear := f.File.(*os.File); isNear && isClosed && f.Why == reason.None {
		f.Judged, f.Trusted = true, f.Numbered || trust.LevelOf(file, "") != trust.Others
	}
}

// IsTrusted reports whether only root or this user can have written the file that was reached.
func (f *Found) IsTrusted() bool {
	file, isNear := f.File.(*os.File)
	return f.Numbered || isNear && trust.LevelOf(file, "") != trust.Others
}

// Handle is a file that is kept open, so that it can be read after its process
// and its name are gone.
type Handle interface {
	io.ReaderAt
	io.Closer
}

// Hashing is how much code of files without build IDs is hashed: anybody can map such files,
// of any size. Most machines have none, or a few of some megabytes. It is as much for the files
// that only root and this user can have written, and as much for those of all others.
var Hashing = buildid.Budget{Bytes: 4 << 30, Second: 32 << 20}

// OpenBelow opens what a process sees at a path (O_PATH). The path is not left to go through
// a symbolic link into the files of this process. The error is mounts.ErrForeign where this
// process does not look.
func OpenBelow(pid int, path string) (fd int, err error) {
	root, err := OpenRoot(pid)
	if err != nil {
		return -1, err
	}
	defer unix.Close(root)
	return mounts.Of(pid, false).Open(root, path)
}

// OpenRoot opens the root directory of a process.
func OpenRoot(pid int) (fd int, err error) {
	return procfs.OpenLink(pid, "root", unix.O_DIRECTORY)
}
