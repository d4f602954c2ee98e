package regular

import (
	"strings"
	"sync"
	"syscall"
	"unsafe"
)

// How openat2 goes along a path: include/uapi/linux/openat2.h.
const (
	noMounts     = 0x01 // RESOLVE_NO_XDEV
	noMagicLinks = 0x02 // RESOLVE_NO_MAGICLINKS
	inRoot       = 0x10 // RESOLVE_IN_ROOT
)

// openat2 opens a name that ends with NUL. It needs Linux 5.6.
func openat2(dir int, name *byte, flags, resolve uint64) (fd int, err error) {
	const number = 437 // the same on every architecture
	how := struct{ flags, mode, resolve uint64 }{flags | syscall.O_CLOEXEC, 0, resolve}
	for {
		fd, _, errno := syscall.Syscall6(number, uintptr(dir), uintptr(unsafe.Pointer(name)),
			uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how), 0, 0)
		switch errno {
		case 0:
			return int(fd), nil
		case syscall.EINTR:
		default:
			return -1, errno
		}
	}
}

// onlyRegular is OPENAT2_REGULAR, by which openat2 opens regular files alone. It came with Linux 7.2.
const onlyRegular = 1 << 32

// openRegular opens at once what has an absolute name, where the kernel opens nothing but regular files. It
// leaves the mount of the root directory nowhere, so that it opens no file that the kernel makes up. It returns false for
// all that it does not open, which is left to the long way and its errors.
func (s *Scratch) openRegular(name string, flags int) (fd int, ok bool) {
	if !strings.HasPrefix(name, "/") || len(name) >= len(s) || strings.IndexByte(name, 0) >= 0 || !opensRegular() || !rootHasFiles() {
		return -1, false
	}
	s[copy(s[:], name)] = 0
	return s.openOnly(atFDCWD, flags)
}

// openOnly opens the name in s, which counts from a directory and leaves no mount, if it is that of a regular file.
func (s *Scratch) openOnly(dir, flags int) (fd int, ok bool) {
	fd, err := openat2(dir, &s[0], uint64(readFlags|flags|syscall.O_LARGEFILE)|onlyRegular, noMounts|noMagicLinks)
	return fd, err == nil
}

// opensRegular reports whether the kernel knows onlyRegular. Kernels before Linux 5.14 ignore flags of openat2
// that they do not know, of the upper 32 bits. So the flag counts only where a directory was refused because of it.
var opensRegular = sync.OnceValue(func() bool {
	if errNotRegular == 0 {
		return false
	}
	root := [...]byte{'/', 0}
	fd, err := openat2(atFDCWD, &root[0], syscall.O_RDONLY|onlyRegular, noMounts|noMagicLinks)
	if err == nil {
		syscall.Close(fd)
	}
	return err == errNotRegular
})

// rootHasFiles reports whether the root directory, which stays the same, has files that the kernel does not make up.
var rootHasFiles = sync.OnceValue(func() bool {
	var s Scratch
	root, err := s.openat("/", OPath)
	if err != nil {
		return false
	}
	defer syscall.Close(root)
	return !IsMade(root)
})
