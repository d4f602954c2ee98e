package reach

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"hallmark/internal/mounts"
)

// Tree is what paths of a process mean: processes that have the same mounts and the same
// root directory see the same files.
type Tree struct {
	mounts string
	root   string     // directory, as this process sees it; mapped files are named in the same way
	dev    mounts.Dev // of it
	ino    uint64
}

// TreeOf returns the tree of a process. It asks no server of a file system, and fails where the
// process has ended, or is another user's.
func TreeOf(pid int) (Tree, error) {
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return Tree{}, err
	}
	link := fmt.Sprintf("/proc/%d/root", pid)
	root, err := os.Readlink(link)
	if err != nil {
		return Tree{}, err
	}
	fd, err := OpenRoot(pid)
	if err != nil {
		return Tree{}, err
	}
	defer unix.Close(fd)
	dev, inode, err := mounts.DeviceOf(fd) // which asks no server
	if err != nil {
		return Tree{}, err
	}
	return Tree{namespace, root, dev, inode}, nil
}

// Inside returns the path that the process itself has for a file, of a path of [Tree]'s root directory.
func (t Tree) Inside(path string) string {
	if below, ok := strings.CutPrefix(path, t.root+"/"); ok && t.root != "/" {
		return "/" + below
	}
	return path
}
