package execwatch

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/bpf"
	"hallmark/internal/contentcache"
	"hallmark/internal/fstimes"
	"hallmark/internal/mounts"
	"hallmark/internal/objects"
	"hallmark/internal/procfs"
	"hallmark/internal/reach"
	"hallmark/internal/regular"
	"hallmark/internal/trust"
)

// reportedFile is a file of an event, whose identity is on its way.
type reportedFile struct {
	objects *objects.Set
	object  *objects.Object
	queue   *watchQueue
	event   *Event
	binary  *Binary
	looked  bool // at where the path leads
	claimed bool // by the file there
}

// isNumbered reports whether BPF reported which inode the file is. Else it has to be reached first.
func (f *reportedFile) isNumbered() bool { return f.object.Key.Content != bpf.Validity{} }

// complete reports whether all is known of the file that will be. Where its path leads is looked
// at first, while the process is there.
func (f *reportedFile) complete() bool {
	facts := f.object.Facts()
	if f.isNumbered() {
		f.look(&facts)
	}
	if !facts.Settled {
		return false
	}
	f.look(&facts)
	f.claimHere(&facts)
	return f.queue.claims.isComplete(&facts)
}

// finish fills in what is known.
func (f *reportedFile) finish() {
	facts := f.object.Facts()
	f.look(&facts)
	f.claimHere(&facts)
	f.binary.identify(f.object, &facts)
	f.binary.Elsewhere = f.binary.Elsewhere && !facts.Trusted
}

// look notes whether the path leads to another file here. It takes a while, once: then the facts are those
// that are known afterwards.
func (f *reportedFile) look(facts *objects.Facts) {
	b := f.binary
	if b.Deleted && !f.isNumbered() && !f.looked && f.isNamedSo() {
		b.Path, b.Deleted = b.Path+procfs.Deleted, false
	}
	if f.looked || !facts.IsFile || facts.Trusted || b.Cut || b.Deleted || !filepath.IsAbs(b.Path) {
		return
	}
	f.looked = true
	defer func() { *facts = f.object.Facts() }()
	place, err := mounts.OpenHere(b.Path)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		b.Elsewhere = f.seesOthers()
		return
	}
	if err != nil {
		return // nobody knows
	}
	defer unix.Close(place)
	var st unix.Stat_t
	if unix.Fstat(place, &st) != nil || !f.isOther(place, &st) {
		return
	}
	was := time.Unix(st.Ctim.Unix()).Add(fstimes.Delay()).Before(f.event.Time) // it had that name by then
	b.Elsewhere = was || f.seesOthers()
}

// isNamedSo reports whether a file that seems to be deleted is one whose own name ends like that of deleted files.
func (f *reportedFile) isNamedSo() bool {
	seen := f.object.Facts().Seen
	place, err := mounts.OpenHere(f.binary.Path + procfs.Deleted)
	if err != nil {
		return false
	}
	defer unix.Close(place)
	var st unix.Stat_t
	return seen != reach.Sighting{} && unix.Fstat(place, &st) == nil && seen.Stamp.Inode == st.Ino && (seen.Dev == 0 || seen.Dev == st.Dev)
}

// seesOthers reports whether the process is known to have other mounts, or another root
// directory, than this one.
func (f *reportedFile) seesOthers() bool {
	here, err := reach.TreeOf(procfs.OwnPID())
	if err != nil {
		return false
	}
	there, err := reach.TreeOf(f.event.PID)
	return err == nil && there != here
}

// isOther reports whether the file that the path leads to is known to be another one.
func (f *reportedFile) isOther(place int, st *unix.Stat_t) bool {
	o := f.object
	if f.isNumbered() {
		return isOtherInode(place, st, &o.Key.Content)
	}
	seen := o.Facts().Seen
	return seen != reach.Sighting{} && seen.Stamp.Inode != st.Ino
}

// isOtherInode reports whether a file is another one than BPF reported. See isContent for where
// stat reports another device, or inode.
func isOtherInode(place int, st *unix.Stat_t, v *bpf.Validity) bool {
	var fs unix.Statfs_t
	if unix.Fstatfs(place, &fs) != nil {
		return false
	}
	kind := int64(uint32(fs.Type))
	isDev := (bpf.Dev{Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev)}) == v.Dev
	isInode := st.Ino == v.Inode
	switch {
	case isDev:
		return !isInode
	case kind == fstimes.Btrfs && !isInode:
		return true
	case kind == fstimes.Btrfs, kind == fstimes.Overlay:
		now := bpf.Time{Sec: st.Ctim.Sec, Nsec: uint32(st.Ctim.Nsec)}
		return uint64(st.Size) != v.Size || now != v.Ctime
	}
	return true
}

// maxHere is how many bytes a file may have that is read because another one has its name
// elsewhere: events wait for it.
const maxHere = 16 << 20

// claimHere has the file that the path leads to claim its identity, as if it had been executed,
// if that is the one of the event, and only root or this user can have written it. For the facts it is
// as for look.
func (f *reportedFile) claimHere(facts *objects.Facts) {
	id := facts.ID
	if f.claimed || !f.binary.Elsewhere || id.IsZero() || id.Kind() == buildid.ByContent || facts.Trusted {
		return
	}
	f.claimed = true
	defer func() { *facts = f.object.Facts() }()
	here, err := openHere(f.binary.Path)
	if err != nil {
		return
	}
	defer here.Close()
	if info, err := buildid.ReadClaim(here); err != nil || info.ID != id {
		return
	}
	var st unix.Stat_t
	if unix.Fstat(int(here.Fd()), &st) != nil {
		return
	}
	key := reach.Key{FromProc: true, Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev), Inode: st.Ino}
	claim := f.queue.claims.of(id)
	isKnown := slices.ContainsFunc(claim.files, func(c claimant) bool { return c.key == key })
	if !isKnown && trust.LevelOf(here, "") != trust.Others {
		claim.add(claimant{key: key, content: f.contentHere(here, st.Size), trusted: true})
	}
}

// openHere opens a regular file by its path, if its file system is one that answers.
func openHere(path string) (*os.File, error) {
	place, err := mounts.OpenHere(path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(place)
	return regular.Reopen(place, path)
}

// contentHere returns the content of a file, zero if it is large.
func (f *reportedFile) contentHere(here *os.File, size int64) (c buildid.Content) {
	if size > maxHere {
		c, _ = contentcache.Known(here)
		return c
	}
	if c, err := contentcache.OfMapped(f.objects.Context(), here); err == nil {
		return c
	}
	return buildid.Content{}
}
