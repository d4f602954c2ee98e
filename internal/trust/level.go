package trust

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A Level says how far the user who runs this program may believe what a file says of
// itself: its build ID, its names.
type Level uint8

const (
	// Others is a file that somebody else can have written, or of which that is unknown.
	Others Level = iota
	// Own is a file that only the user who runs this program and root can have written,
	// where that user is not root.
	Own
	// Root is a file that only root can have written.
	Root
)

// String returns the level for people: "root", "own", "others".
func (l Level) String() string { return [...]string{"others", "own", "root"}[min(l, Root)] }

// LevelOf returns how far to believe a file that is open, in whatever way it was reached.
// The path is where the file is said to lie; "" is the path that the kernel remembers.
//
// The owner and the mode of the file must allow the level. And the path must lead, in this
// process's mount namespace, to this very file: through directories and links that only the
// same users can change, over mounts that show true owners. So a file of a container's root
// is that of others: in this mount namespace its path leads to another file, or to none.
//
// A file that was removed has the level of the directory that it was in, unless others can put
// files there. So a program keeps its level when an upgrade replaces it while it runs.
//
// LevelOf asks no server of a file system. Where it cannot know it returns Others.
func LevelOf(f *os.File, path string) Level {
	st, err := statOf(int(f.Fd()))
	if err != nil {
		return Others
	}
	file := entry{fd: int(f.Fd()), st: st}
	level := levelFor(file)
	if level == Others || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return Others
	}
	isRemoved := false
	if path == "" {
		if path, err = os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd()))); err != nil {
			return Others
		}
		isRemoved = st.Nlink == 0
	}
	if !strings.HasPrefix(path, "/") {
		return Others
	}
	mounts, err := readMounts()
	if err != nil {
		return Others
	}
	if isRemoved {
		return mounts.leadToDir(filepath.Dir(path), file, level)
	}
	return mounts.lead(path, file, level)
}

// levelFor returns what the owner and the mode of a file, a directory or a link allow. The
// mode of a link says nothing.
func levelFor(e entry) Level {
	switch {
	case !e.is(unix.S_IFLNK) && e.othersWrite():
		return Others
	case e.st.Uid == 0:
		return Root
	case isSelf(e.st.Uid):
		return Own
	}
	return Others
}

// lead returns the lowest of a level and those of what lies on the way to a file; Others if
// the path leads to another one.
func (m mounts) lead(path string, file entry, level Level) Level {
	end, level, sticky := m.walk(path, level)
	if level == Others {
		return Others
	}
	defer unix.Close(end.fd)
	switch {
	case !end.isSame(file), !m.isTrue(end):
		return Others
	case sticky && end.st.Nlink != 1:
		return Others // others may have added this name of it
	}
	return level
}

// leadToDir is lead for a file that was removed from a directory. In a container the same path
// leads to a directory of another mount.
func (m mounts) leadToDir(dir string, file entry, level Level) Level {
	end, level, sticky := m.walk(dir, level)
	if level == Others {
		return Others
	}
	defer unix.Close(end.fd)
	if sticky || !end.is(unix.S_IFDIR) || end.st.Mnt_id != file.st.Mnt_id || !m.isTrue(file) {
		return Others
	}
	return level
}

// walk goes along a path, and lowers the level to that of each directory and link on the way. It
// returns what is at the end, for the caller to close unless the level is Others, and whether
// the last directory is one where all can put files.
func (m mounts) walk(path string, level Level) (end entry, lowest Level, sticky bool) {
	w := walk{cross: m.isTrueAt, judge: func(_ string, e entry) bool {
		if !m.isTrue(e) || sticky && !e.is(unix.S_IFDIR) {
			return false // a link in /tmp may be one more name of a link
		}
		sticky = e.isShared() && e.isSticky()
		if sticky {
			e.st.Mode &^= othersWrite // others can only add to it
		}
		level = min(level, levelFor(e))
		return level != Others
	}}
	end, err := w.to(path)
	if err != nil {
		return entry{}, Others, false
	}
	return end, level, sticky
}

func (e entry) isSame(other entry) bool {
	return e.st.Ino == other.st.Ino && e.st.Dev_major == other.st.Dev_major && e.st.Dev_minor == other.st.Dev_minor
}

// trueOwners are file systems whose files have the owner that they show. Either the kernel
// alone gives it to them, or it is kept on a device that only root can mount without nosuid.
// The server of any other one may show what it likes, and may let whoever asks wait.
var trueOwners = []string{
	"ext2", "ext3", "ext4", "xfs", "btrfs", "bcachefs", "f2fs", "zfs", "jfs", "reiserfs", // on disks
	"squashfs", "erofs", "cramfs", "iso9660", "romfs", // images that root mounts
	inMemory, devices, "ramfs", "rootfs", overlay,
}

const (
	// inMemory is of the kernel's making: a mount of it that others could make shows true
	// owners as well.
	inMemory = "tmpfs"
	// devices is a tmpfs that there is once, made by the kernel, on the way to /dev/shm.
	devices = "devtmpfs"
	// overlay has files of containers, whose root is root to the kernel. It is believed
	// only in overlayPlaces.
	overlay = "overlay"
)

// overlayPlaces are where the system itself is on overlayfs: that of a live system or of the
// container that this process is in, and extensions (systemd-sysext).
var overlayPlaces = []string{"/", "/usr", "/opt"}

// A mount is a line of /proc/thread-self/mountinfo.
type mount struct {
	id     uint64
	point  string
	isTrue bool // it shows the owners that files have

	isFUSE, isNosuid bool
}

// mounts are those of this process's mount namespace, in the order of mounting.
type mounts []mount

// isTrueAt reports whether what is mounted at a path shows true owners. It is the last one
// that was mounted there.
func (m mounts) isTrueAt(point string) bool {
	for _, mount := range slices.Backward(m) {
		if mount.point == point {
			return mount.isTrue
		}
	}
	return false
}

// isTrue reports whether an entry is on a mount that shows true owners.
func (m mounts) isTrue(e entry) bool {
	mount, ok := m.of(e)
	return ok && mount.isTrue
}

// isServed reports whether an entry is on a FUSE file system.
func (m mounts) isServed(e entry) bool {
	mount, ok := m.of(e)
	return ok && mount.isFUSE
}

// of returns the mount that an entry is on. Before Linux 5.8 that is unknown.
func (m mounts) of(e entry) (mount, bool) {
	i := slices.IndexFunc(m, func(mount mount) bool { return mount.id == e.st.Mnt_id })
	if i < 0 || e.st.Mask&unix.STATX_MNT_ID == 0 {
		return mount{}, false
	}
	return m[i], true
}

// parseMount parses a line such as
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime shared:1 - ext3 /dev/root rw,errors=continue
func parseMount(line string) (mount, bool) {
	head, tail, ok := strings.Cut(line, " - ")
	fields, rest := strings.Fields(head), strings.Fields(tail)
	if !ok || len(fields) < 6 || len(rest) < 1 {
		return mount{}, false
	}
	id, err := strconv.ParseUint(fields[0], 10, 64)
	options, kind := strings.Split(fields[5], ","), rest[0]
	m := mount{id: id, point: unescape(fields[4]), isFUSE: strings.HasPrefix(kind, "fuse")}
	m.isNosuid = slices.Contains(options, "nosuid")
	m.isTrue = slices.Contains(trueOwners, kind) &&
		!slices.Contains(options, "idmapped") &&
		(kind == inMemory || kind == devices || !m.isNosuid) &&
		(kind != overlay || slices.Contains(overlayPlaces, m.point))
	return m, err == nil
}

// unescape undoes what the kernel does to blanks in a path: mangle, fs/proc_namespace.c.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace
