package inventory

import (
	"errors"
	"path"
	"unique"

	"golang.org/x/sys/unix"

	"hallmark/internal/mounts"
	"hallmark/internal/procfs"
	"hallmark/internal/reach"
)

// DirEntry is a name in a directory: if one process upgrades the file there, other processes that map
// the same entry should get the new file. A path alone is no entry, because in two containers it leads
// to two directories; and a mount namespace of its own does not make another entry of a
// directory that is the same one in there. Entries are equal if and only if they are the
// same; the zero DirEntry is none, that of memory, or was not found.
type DirEntry struct{ one unique.Handle[dirEntry] } // small, as there may be many

type dirEntry struct {
	dev  mounts.Dev // of the directory; of the file itself where that is mounted by itself
	ino  uint64
	name string // in the directory
	// Where the directory is gone, all that is known is who sees what there.
	gone treePath
}

func newEntry(e dirEntry) DirEntry { return DirEntry{unique.Make(e)} }

// goneEntry returns the entry of a path whose directory is gone.
func goneEntry(where treePath) DirEntry { return newEntry(dirEntry{gone: where}) }

// value returns what the entry is, the zero value for none.
func (e DirEntry) value() dirEntry {
	if e == (DirEntry{}) {
		return dirEntry{}
	}
	return e.one.Value()
}

// DirEntryHere returns the entry that an absolute path leads this process to; the zero DirEntry if there
// is none.
func DirEntryHere(path string) DirEntry {
	tree, err := reach.TreeOf(procfs.OwnPID())
	if err != nil {
		return DirEntry{}
	}
	return entryAt(tree, procfs.OwnPID(), path)
}

// entryAt returns what a path of a tree is, through a process that sees it.
func entryAt(t reach.Tree, pid int, file string) DirEntry {
	root, err := t.OpenRoot(pid)
	if err != nil {
		return DirEntry{}
	}
	defer unix.Close(root)
	dir, err := mounts.Of(pid, false).Open(root, path.Dir(file)+"/.")
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return goneEntry(treePath{t, file})
	}
	if err != nil {
		return DirEntry{}
	}
	defer unix.Close(dir)
	if mounts.IsMountPoint(dir, path.Base(file)) {
		return entryOf(dir, path.Base(file), "")
	}
	return entryOf(dir, "", path.Base(file))
}

// entryOf returns the entry of a name in what is at a path below a directory.
func entryOf(dir int, below, name string) DirEntry {
	fd := dir
	if below != "" {
		var err error
		if fd, err = mounts.OpenEntry(dir, below); err != nil {
			return DirEntry{}
		}
		defer unix.Close(fd)
	}
	dev, inode, err := mounts.DeviceOf(fd) // which asks no server
	if err != nil {
		return DirEntry{}
	}
	return newEntry(dirEntry{dev: dev, ino: inode, name: name})
}

// entry returns the entry that the path is.
func (f *onDisk) entry() (entry DirEntry) {
	for _, pid := range f.pids {
		if entry = entryAt(f.tree, pid, f.path); entry != (DirEntry{}) {
			break
		}
	}
	return entry
}

// setEntries sets Code.DirEntry and Code.Elsewhere of what is mapped from a path.
func (f *onDisk) setEntries(here reach.Tree, entry DirEntry) {
	// A path that is shown is one of this process, which may be another one inside.
	elsewhere := f.tree != here && entry != (DirEntry{}) && entry != DirEntryHere(f.code[0].Path)
	for _, c := range f.code {
		c.DirEntry, c.Elsewhere = entry, elsewhere
	}
}

type treePath struct {
	reach.Tree
	path string
}
