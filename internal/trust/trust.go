// Package trust judges files and directories by who can have written them: root, the user
// who runs this program, or somebody else.
//
// A file says of itself which build it is. That word is worth as much as the users are trusted
// who could have written it. The owner and the mode that a file system shows are only half of
// the answer: who mounts a file system of his own may show any owner, and who owns a directory
// decides to which file a path leads.
package trust

import (
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// OwnFile reports whether nobody else than this user can have written the file.
func OwnFile(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && isSelf(st.Uid) && st.Mode&othersWrite == 0
}

// TrustedFile reports whether nobody but root and this user can have written the file. Whoever
// may mount file systems without being root decides himself which owners its files show: such
// mounts ignore set-user-ID bits, or are FUSE. Unlike LevelOf it does not ask how a path leads
// to the file, which may be one of a container. The server of a FUSE file system in this mount
// namespace is not asked; in another one it may be, and can make the call wait.
func TrustedFile(f *os.File) bool {
	st, err := statOf(int(f.Fd()))
	if err != nil || !isOurs(st.Uid) || st.Mode&othersWrite != 0 {
		return false
	}
	mounts, err := readMounts()
	if err != nil {
		return false
	}
	if mount, ok := mounts.of(entry{st: st}); ok {
		return !mount.isFUSE && !mount.isNosuid
	}
	var fs unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &fs) == nil && fs.Flags&unix.ST_NOSUID == 0 && fs.Type != unix.FUSE_SUPER_MAGIC
}

// Owner returns the user who owns an open file, if it is on a mount of this process's mount namespace that shows the
// owners that its files have. It asks no server of a file system.
func Owner(f *os.File) (uid uint32, ok bool) {
	st, err := statOf(int(f.Fd()))
	if err != nil {
		return 0, false
	}
	mounts, err := readMounts()
	return st.Uid, err == nil && mounts.isTrue(entry{fd: int(f.Fd()), st: st})
}

// TrueOwners reports whether a file that is open, of whatever kind and in whatever way, is on a mount of this
// process's mount namespace that shows the owners that its files have. It asks no server of a file system.
func TrueOwners(fd int) bool {
	st, err := statOf(fd)
	if err != nil {
		return false
	}
	mounts, err := readMounts()
	return err == nil && mounts.isTrue(entry{fd: fd, st: st})
}

// othersWrite are the bits of a mode that let a group and everybody write. An access control
// list that gives a right to others shows in the bits of the group.
const (
	othersWrite = 0o022
	groupWrites = 0o020
)

// isOurs reports whether root or this user has the number.
func isOurs(uid uint32) bool { return uid == 0 || isSelf(uid) }

// isSelf reports whether this user has the number. A user namespace shows one number for all
// users who are unknown in it; that one is nobody's.
func isSelf(uid uint32) bool {
	return int(uid) == geteuid() && (uid != overflow || knowsAll())
}

// geteuid is another one in tests.
var geteuid = os.Geteuid

// overflow is the number of unknown users: DEFAULT_OVERFLOWUID, include/linux/highuid.h.
const overflow = 65534

// knowsAll reports whether all users have a number in this process's user namespace.
var knowsAll = sync.OnceValue(func() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	fields := strings.Fields(string(b))
	return err == nil && len(fields) == 3 && fields[0] == "0" && fields[2] == uidMapAll
})

// uidMapAll is the size of a map of all users; -1 is none: user_namespaces(7).
const uidMapAll = "4294967295"
