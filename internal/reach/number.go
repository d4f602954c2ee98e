package reach

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"

	"hallmark/internal/bpf"
	"hallmark/internal/contentcache"
	"hallmark/internal/fstimes"
	"hallmark/internal/trust"
	"hallmark/perfdata"
	"hallmark/procmap"
)

// A Number is that of an inode, as a record of perf reports it of a mapped file. The zero value is none.
type Number struct {
	Dev        procmap.Dev
	Inode      uint64
	Generation uint64 // distinguishes files that had the inode in turn
}

// NumberOfRecord returns that of the file of a record which has a build ID as well.
func NumberOfRecord(r *perfdata.Mmap2) Number {
	if r.BuildID == nil {
		return Number{}
	}
	return Number{procmap.Dev{Major: r.Major, Minor: r.Minor}, r.Inode, r.Generation}
}

// match is how the number of an open file compares with that of a mapping.
type match uint8

const (
	matchUnknown match = iota // the number does not say it
	matchSame
	matchOther
)

// match compares the number of an open file with that of the mapping. The kernel reports the device of a file
// system, the inode and its generation. On these file systems fstat shows the same device and inode, and nothing else
// than the kernel chooses the generation. The device has to be one that a file system keeps for ever, or that of
// tmpfs: a server of FUSE had it before, maybe, but no file there is older than its file system.
func (q *Request) match(f *os.File) match {
	var st unix.Stat_t
	if q.Number == (Number{}) || unix.Fstat(int(f.Fd()), &st) != nil {
		return matchUnknown
	}
	fs := FileSystemOf(f)
	if fs == fstimes.Overlay {
		v := bpf.Validity{Inode: q.Number.Inode, Generation: uint32(q.Number.Generation)}
		if q.Number.Dev.Major != 0 && isOfLayer(f, &v) {
			return matchSame
		}
		return matchUnknown
	}
	if believed, _ := fstimes.Trusted(fs); fs == fstimes.Btrfs || !believed && fs != unix.TMPFS_MAGIC {
		return matchUnknown
	}
	generation, isKnown := generationOf(f, fs)
	isInode := IsInode(&st, procmap.VMA{Dev: q.Number.Dev, Inode: q.Number.Inode})
	switch {
	case !isInode, isKnown && generation != q.Number.Generation:
		return matchOther
	case !isKnown || !q.Media.isAsBefore(&st, fs):
		return matchUnknown
	}
	return matchSame
}

// generationOf returns the generation of the inode of an open file, as the kernel has it (i_generation), and
// whether it is known. It may be 0 for all files of a disk whose maker wrote none.
func generationOf(f *os.File, fs int64) (generation uint64, isKnown bool) {
	switch {
	case fstimes.IsImage(fs):
		return 0, true // they have none
	case fs != unix.TMPFS_MAGIC:
		n, err := contentcache.AskGeneration(f)
		return uint64(n), err == nil
	}
	// Generation and inode of a file on a mounted tmpfs: shmem_encode_fh of mm/shmem.c.
	const ofGeneration = 1 // FILEID_INO32_GEN of include/linux/exportfs.h
	handle, _, err := unix.NameToHandleAt(int(f.Fd()), "", unix.AT_EMPTY_PATH)
	if err != nil || handle.Type() != ofGeneration || handle.Size() != 12 {
		return 0, false
	}
	return uint64(binary.NativeEndian.Uint32(handle.Bytes())), true
}

// isAsBefore reports whether the disk of a file is known to be the one that had its device number when the recording
// began. The numbers of another one mean nothing: whoever made it has chosen them.
func (m Media) isAsBefore(st *unix.Stat_t, fs int64) bool {
	dev := bpf.Dev{Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev)}
	if dev.Major == 0 {
		return fs == unix.TMPFS_MAGIC
	}
	now := contentcache.DiskOf(dev.Major, dev.Minor)
	return now != 0 && m[dev] == now
}

// isNumbered reports whether an open file is the one that was mapped, by its number, and only root or this user can
// have written it. A file in memory may be in no directory of this mount namespace: it was opened through the mapping of
// a process of theirs then, and is theirs, as for vouches.
func (q *Request) isNumbered(f *os.File, throughMapping bool) bool {
	match := q.match(f)
	if match == matchSame && trust.LevelOf(f, "") != trust.Others {
		return true
	}
	fs := FileSystemOf(f)
	if q.Number == (Number{}) || match == matchOther || !throughMapping || fs != unix.TMPFS_MAGIC && fs != unix.RAMFS_MAGIC {
		return false
	}
	var st unix.Stat_t
	isInode := unix.Fstat(int(f.Fd()), &st) == nil && IsInode(&st, procmap.VMA{Dev: q.Number.Dev, Inode: q.Number.Inode})
	return isInode && isOurs(st.Uid) && q.isOfOurs(f)
}
