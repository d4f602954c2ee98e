package reach

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"hallmark/internal/mounts"
)

// Tree is what paths of a process mean: processes that have the same mounts and the same
// root directory see the same files.
type Tree struct {
	Mounts string     // the namespace
	Mount  uint64     // of the root directory, which is in one namespace only; 0 where the kernel does not know (before Linux 5.8)
	Root   string     // directory, as this process sees it; mapped files are named in the same way
	Dev    mounts.Dev // of it
	Inode  uint64
}

// ErrOtherTree says that the paths of a process mean something else by now.
var ErrOtherTree = errors.New("the process has another root directory now")

// TreeOf returns the tree of a process. It asks no server of a file system, and fails where the
// process has ended, or is another user's.
func TreeOf(pid int) (Tree, error) {
	fd, tree, err := openTree(pid)
	if err == nil {
		unix.Close(fd)
	}
	return tree, err
}

// openTree opens the root directory of a process, and returns the tree which that descriptor has. The
// process may exchange its root directory at any moment, so nothing is asked of it twice.
func openTree(pid int) (fd int, tree Tree, err error) {
	if tree.Mounts, err = os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/mnt"); err != nil {
		return -1, Tree{}, err
	}
	if fd, err = OpenRoot(pid); err != nil {
		return -1, Tree{}, err
	}
	tree.Mount, tree.Dev, tree.Inode, err = mounts.MountOf(fd) // which asks no server
	switch own := ownRoot(); {
	case err != nil:
	case tree.Mount != 0 && own == rootDir{tree.Mount, tree.Dev, tree.Inode}:
		tree.Root = "/"
	default:
		tree.Root, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	}
	if err != nil {
		unix.Close(fd)
		return -1, Tree{}, err
	}
	return fd, tree, nil
}

// rootDir is a root directory, by the number of its mount.
type rootDir struct {
	mount uint64
	dev   mounts.Dev
	inode uint64
}

// ownRoot returns the root directory of this process, which has it for ever, and so its mount; the zero value where
// it cannot be asked.
var ownRoot = sync.OnceValue(func() (own rootDir) {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return own
	}
	defer unix.Close(fd)
	if own.mount, own.dev, own.inode, err = mounts.MountOf(fd); err != nil {
		return rootDir{}
	}
	return own
})

// OpenRoot opens the root directory of the tree, through a process that sees it. The error is
// ErrOtherTree where the process sees another one by now.
func (t Tree) OpenRoot(pid int) (fd int, err error) {
	fd, now, err := openTree(pid)
	if err == nil && now != t {
		unix.Close(fd)
		return -1, ErrOtherTree
	}
	return fd, err
}

// Open opens what is at a path of the tree (O_PATH), through a process that sees it. Errors are those of
// OpenBelow and OpenRoot.
func (t Tree) Open(pid int, path string) (fd int, err error) {
	root, err := t.OpenRoot(pid)
	if err != nil {
		return -1, err
	}
	defer unix.Close(root)
	return mounts.Of(pid, false).Open(root, path)
}

// Inside returns the path that the process itself has for a file, of a path of [Tree]'s root directory.
func (t Tree) Inside(path string) string {
	if below, ok := strings.CutPrefix(path, t.Root+"/"); ok && t.Root != "/" {
		return "/" + below
	}
	return path
}
