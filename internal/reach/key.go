package reach

import (
	"os"

	"golang.org/x/sys/unix"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/bpf"
	"hallmark/perfdata"
	"hallmark/procmap"
)

// Key is what the kernel says a mapped file is. Mapping records and
// /proc/PID/maps may number the devices of one file differently (overlayfs), so
// each has keys of its own; what is the same file has the same identity in the end.
//
// Numbers do not distinguish files on file systems that have no disk of their own: subvolumes
// of btrfs have the same device, inode and generation for different files, and the name may be
// the same as well, in another mount namespace or after a rename. There a mapping has a key
// of its own, unless the kernel read an identity.
type Key struct {
	ID           buildid.ID // when the kernel read one, with
	Path         string     // for numbers are not always known, nor always those of one file
	FromProc     bool
	Major, Minor uint32
	Inode        uint64
	generation   uint64
	Of           MappingKey   // where numbers mean nothing
	Content      bpf.Validity // when BPF reported it, with
	Address      uint64       // of the inode in the kernel: subvolumes may have two of one validity
}

// OfFile returns the key that all mappings of a file have, as far as its times show, where BPF
// reported each.
func (k Key) OfFile() Key {
	switch {
	case k.Content.JustChanged():
		k.Content.Pinned, k.Address = anyYoungMapping, 0
	case k.Content.OfMapping():
		k.Content.Pinned, k.Address = AnyMapping, 0
	}
	return k
}

// IsState reports whether two keys, as OfFile returns them, are of one state of a file, as far as
// its times show.
func (k Key) IsState(other Key) bool {
	if k.IsYoung() || other.IsYoung() {
		k.Content.Pinned, k.Address, other.Content.Pinned, other.Address = 0, 0, 0, 0
	}
	return k == other
}

// IsYoung reports whether the file had just changed: the key is of one execution of it, or of
// such mappings.
func (k *Key) IsYoung() bool {
	return k.Content.Pinned&1 != 0 || k.Content.Pinned == anyYoungMapping
}

// MappingKey is one mapping of a process.
type MappingKey struct {
	PID   uint32
	Start addr.Abs
	Since uint64 // ns, CLOCK_MONOTONIC: when it was made, or seen
}

// KeyOfRecord returns the key of a mapping that a record of perf reports.
func KeyOfRecord(r *perfdata.Mmap2) Key {
	key := Key{Major: r.Major, Minor: r.Minor, Inode: r.Inode, generation: r.Generation}
	if id, err := buildid.New(buildid.GNU, r.BuildID); err == nil {
		key.ID, key.Path = id, r.Name
		return key
	}
	if key.Major == 0 {
		key.Of = MappingKey{r.Owner, r.Start, r.Time}
	}
	return key
}

// VMAOfRecord returns the mapping that a record of perf reports.
func VMAOfRecord(r *perfdata.Mmap2) procmap.VMA {
	v := procmap.VMA{
		Start:  r.Start,
		End:    r.Start + addr.Abs(r.Size),
		Perm:   procmap.Perm(r.Prot & 7),
		Offset: r.Offset,
		Name:   r.Name,
	}
	if r.BuildID == nil { // else see NumberOfRecord
		v.Dev, v.Inode = procmap.Dev{Major: r.Major, Minor: r.Minor}, r.Inode
	}
	return v
}

// AnyMapping takes the place of what names a mapping, as bpf.Validity.Pinned.
const AnyMapping = 2

// anyYoungMapping is AnyMapping for a file that had just changed.
const anyYoungMapping = AnyMapping | bpf.YoungMapping

// A Sighting is a file that a mapping showed.
type Sighting struct {
	Stamp Stamp
	Dev   uint64 // that has the file; 0 where a helper looked at it
}

// SightingOf returns that of an open file, the zero one if nothing is known of it.
func SightingOf(f *os.File) Sighting {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return Sighting{}
	}
	return Sighting{StampOf(f), st.Dev}
}

// Is reports whether two sightings are of one file. Anybody can give a file on a file system of
// their own the inode number, the size and the times of another one, but not its device.
func (s Sighting) Is(other Sighting) bool { return s.Dev == other.Dev && s.Stamp.IsFile(other.Stamp) }

// IsSighted reports whether the file that was found seems to be the one that was seen so.
func (f *Found) IsSighted(seen Sighting) bool {
	if near, isNear := f.File.(*os.File); isNear && seen.Dev != 0 {
		return SightingOf(near).Is(seen)
	}
	return f.Seen.IsFile(seen.Stamp)
}
