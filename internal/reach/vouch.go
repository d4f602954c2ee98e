package reach

import (
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"hallmark/internal/bpf"
	"hallmark/internal/fstimes"
	"hallmark/internal/patience"
	"hallmark/internal/procfs"
	"hallmark/internal/trust"
	"hallmark/reason"
)

// vouches reports whether an open file on a file system in memory has the content that was mapped, by the word of
// those who alone can have changed it. Its times miss a store to a page that is mapped shared, and nothing else
// (docs/identity.md, "File systems"). So they are enough where only root or this user can have made such a store:
//
//   - only they can have written the file, which the path in this mount namespace leads to; or
//   - the file was opened through the mapping of a process of theirs in this mount and user namespace, and is theirs.
//     Nobody else can write to it who does not run code as them already.
func (q Request) vouches(f *os.File, throughMapping bool) bool {
	v := q.Validity
	var st syscall.Stat_t
	if v == nil || !v.OfMapping() || v.JustChanged() || syscall.Fstat(int(f.Fd()), &st) != nil {
		return false
	}
	if uint64(st.Size) != v.Size || timeOf(st.Mtim) != v.Mtime || timeOf(st.Ctim) != v.Ctime {
		return false
	}
	isInode := false
	switch FileSystemOf(f) {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		if isInode = isInodeInMemory(f, &st, v); !isInode {
			return false
		}
	case fstimes.Overlay: // which shows neither the device nor always the inode of the layer
	default:
		return false
	}
	if isInode && trust.LevelOf(f, "") != trust.Others {
		return true
	}
	return throughMapping && isOurs(st.Uid) && q.isOfOurs(f)
}

// isOfOurs reports whether a process of root's or this user's has a file mapped that was opened through the mapping. A
// process of others may have had it mapped, and then have executed a program that runs as root.
func (q Request) isOfOurs(f *os.File) bool {
	return isProcessOurs(q.PID) && q.isMapped(f) && isProcessOurs(q.PID)
}

// isMapped reports whether the process has the very file at the address of the mapping.
func (q Request) isMapped(f *os.File) bool {
	again, _, why, _, outcome := openMappedInTime(q)
	if again == nil || why != reason.None || outcome != patience.Ended {
		return false
	}
	defer again.Close()
	var was, now syscall.Stat_t
	isKnown := syscall.Fstat(int(f.Fd()), &was) == nil && syscall.Fstat(int(again.Fd()), &now) == nil
	return isKnown && now.Dev == was.Dev && now.Ino == was.Ino
}

// isOurs reports whether a user is root or the one of this process.
func isOurs(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// isInodeInMemory reports whether an open file on a file system in memory is the inode that was mapped. The generation of
// a memfd is not known, but its number does not come again.
func isInodeInMemory(f *os.File, st *syscall.Stat_t, v *bpf.Validity) bool {
	isDev := (bpf.Dev{Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev)}) == v.Dev
	if !isDev || st.Ino != v.Inode {
		return false
	}
	generation, isKnown := generationOf(f, unix.TMPFS_MAGIC)
	return !isKnown || generation == uint64(v.Generation)
}

// isProcessOurs reports whether a process is root's or this user's, and in the mount and user namespace of this one.
// Root of a container is somebody else.
func isProcessOurs(pid uint32) bool {
	uid := procfs.UserOf(pid)
	if uid != 0 && int(uid) != os.Geteuid() || procfs.MountNamespace(int(pid)) != procfs.OwnMountNamespace() {
		return false
	}
	own, ownErr := os.Readlink("/proc/self/ns/user")
	its, err := os.Readlink("/proc/" + strconv.Itoa(int(pid)) + "/ns/user")
	return ownErr == nil && err == nil && own == its && procfs.OwnMountNamespace() != 0
}

// OwnerOf returns the user who owns an open file, -1 where that is not known: on all file systems but those whose
// owners the kernel keeps itself.
func OwnerOf(f *os.File) int64 {
	var st syscall.Stat_t
	fs := FileSystemOf(f)
	isKept, _ := fstimes.Trusted(fs)
	if isMemory := fs == unix.TMPFS_MAGIC || fs == unix.RAMFS_MAGIC; !isKept && !isMemory && fs != fstimes.Overlay || syscall.Fstat(int(f.Fd()), &st) != nil {
		return -1
	}
	return int64(st.Uid)
}
