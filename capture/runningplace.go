package capture

import (
	"errors"
	"path"

	"golang.org/x/sys/unix"

	"hallmark/internal/mounts"
	"hallmark/internal/procfs"
	"hallmark/internal/reach"
)

// Place is a name in a directory: what one process upgrades is what another one that maps
// the same place should have. A path alone is no place, because in two containers it leads
// to two directories; and a mount namespace of its own does not make another place of a
// directory that is the same one in there. Places are equal if and only if they are the
// same; the zero Place is none, that of memory, or was not found.
type Place struct {
	dev  mounts.Dev // of the directory; of the file itself where that is mounted by itself
	ino  uint64
	name string // in the directory
	// Where the directory is gone, all that is known is who sees what there.
	gone treePath
}

// PlaceHere returns the place that an absolute path is for this process.
func PlaceHere(path string) Place {
	tree, err := treeOf(procfs.OwnPID())
	if err != nil {
		return Place{}
	}
	return tree.place(procfs.OwnPID(), path)
}

// place returns what a path is for a process that sees this tree.
func (t tree) place(pid int, file string) Place {
	root, err := reach.OpenRoot(pid)
	if err != nil {
		return Place{}
	}
	defer unix.Close(root)
	dir, err := mounts.Of(pid, false).Open(root, path.Dir(file)+"/.")
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return Place{gone: treePath{t, file}}
	}
	if err != nil {
		return Place{}
	}
	defer unix.Close(dir)
	if isMounted(dir, path.Base(file)) {
		return placeOf(dir, path.Base(file), "")
	}
	return placeOf(dir, "", path.Base(file))
}

// isMounted reports whether something is mounted in the place of a file of a directory.
func isMounted(dir int, name string) bool {
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV,
	})
	if err == nil {
		unix.Close(fd)
	}
	return errors.Is(err, unix.EXDEV)
}

// placeOf returns the place of a name in what is at a path below a directory.
func placeOf(dir int, below, name string) Place {
	fd := dir
	if below != "" {
		var err error
		if fd, err = unix.Openat(dir, below, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != nil {
			return Place{}
		}
		defer unix.Close(fd)
	}
	dev, inode, err := mounts.DeviceOf(fd) // which asks no server
	if err != nil {
		return Place{}
	}
	return Place{dev: dev, ino: inode, name: name}
}

// place returns the place that the path is.
func (f *onDisk) place() (place Place) {
	for _, pid := range f.pids {
		if place = f.tree.place(pid, f.path); place != (Place{}) {
			break
		}
	}
	return place
}

// setPlaces sets Code.Place and Code.Elsewhere of what is mapped from a path.
func (f *onDisk) setPlaces(here tree, place Place) {
	// A path that is shown is one of this process, which may be another one inside.
	elsewhere := f.tree != here && place != (Place{}) && place != PlaceHere(f.code[0].Path)
	for _, c := range f.code {
		c.Place, c.Elsewhere = place, elsewhere
	}
}
