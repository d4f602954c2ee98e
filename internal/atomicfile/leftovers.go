package atomicfile

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// maxListed bounds the names that are looked through: anybody can fill a directory for all.
const maxListed = 1 << 16

// removeLeftovers removes the temporary files of a name whose processes are gone.
func removeLeftovers(dir *os.File, base string) {
	sweep(dir, func(name string) bool { return strings.HasPrefix(name, prefixOf(base)) })
}

// Sweep removes the temporary files in a directory whose processes are gone.
func Sweep(dir *os.Root) {
	d, err := dir.Open(".")
	if err != nil {
		return
	}
	defer d.Close()
	sweep(d, func(name string) bool { return strings.HasPrefix(name, ".") && strings.Contains(name, mark) })
}

// sweep removes those leftovers among the names that are chosen. Files that cannot be read or
// removed stay.
func sweep(dir *os.File, chosen func(name string) bool) {
	fd, err := openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return
	}
	list := os.NewFile(uintptr(fd), ".")
	defer list.Close()
	for range maxListed / 1024 {
		names, err := list.Readdirnames(1024)
		for _, name := range names {
			if chosen(name) {
				removeLeftover(dir, name)
			}
		}
		if err != nil {
			return
		}
	}
}

// removeLeftover removes a file of this user that nobody has locked: its process is gone. The
// name alone proves nothing, because others can choose names in a directory for all.
func removeLeftover(dir *os.File, name string) {
	var st unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != uint32(os.Geteuid()) || st.Nlink != 1 {
		return
	}
	fd, err := openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil || !isNamed(dir, name, fd) {
		return
	}
	_ = unix.Unlinkat(int(dir.Fd()), name, 0)
}
