package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// oldFile is a path to what has the name now, for calls that take no directory.
func (p *place) oldFile() string {
	return "/proc/self/fd/" + strconv.Itoa(int(p.dir.Fd())) + "/" + p.base
}

// accessList is the extended attribute with the access control list of a file: acl(5).
const accessList = "system.posix_acl_access"

// inherit gives a new file the mode of the one that it replaces, so that those can read it who
// could. What of another user is replaced does not decide who else may read the content.
func inherit(f *os.File, path string, old *unix.Stat_t, perm fs.FileMode) error {
	mode := fs.FileMode(old.Mode).Perm()
	if old.Uid != uint32(os.Geteuid()) {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		return f.Chmod(info.Mode().Perm() & mode & perm)
	}
	if err := inheritGroup(f, old); err != nil {
		mode &^= 0o070 // it is another group, which had no rights
	}
	if err := f.Chmod(mode); err != nil {
		return err
	}
	list, err := readAttribute(path, accessList)
	if err == nil {
		err = unix.Fsetxattr(int(f.Fd()), accessList, list, 0)
	}
	if err == nil || errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return f.Chmod(mode &^ 0o070) // the bits of the group were the most that the list gives to anyone
}

func inheritGroup(f *os.File, old *unix.Stat_t) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Gid == old.Gid {
		return err
	}
	return f.Chown(-1, int(old.Gid))
}

// maxAttribute is XATTR_SIZE_MAX, include/uapi/linux/limits.h.
const maxAttribute = 1 << 16

func readAttribute(path, name string) ([]byte, error) {
	b := make([]byte, maxAttribute)
	n, err := unix.Lgetxattr(path, name, b)
	return b[:max(n, 0)], err
}
