package capture

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// cgroups turns the cgroup numbers of samples into paths. A number is the inode
// of the cgroup's directory: in the hierarchy that has the perf_event controller
// for perf, in that of version 2 for BPF.
type cgroups struct {
	root   string // where that hierarchy is mounted, "" when nowhere
	paths  map[uint64]string
	walked bool
}

// cgroupRoots are where that hierarchy may be mounted: of its own as version 1,
// else as version 2, alone or beside version 1.
var cgroupRoots = []cgroupRoot{
	{"/sys/fs/cgroup/perf_event", 0x27e0eb},
	{"/sys/fs/cgroup", 0x63677270},
	{"/sys/fs/cgroup/unified", 0x63677270},
}

// unifiedRoots are where the hierarchy of version 2 may be mounted.
var unifiedRoots = cgroupRoots[1:]

type cgroupRoot struct {
	path  string
	magic int64 // include/uapi/linux/magic.h
}

// newCgroups takes the first of the roots that is there.
func newCgroups(roots []cgroupRoot) *cgroups {
	c := &cgroups{paths: map[uint64]string{}}
	for _, root := range roots {
		var st syscall.Statfs_t
		if syscall.Statfs(root.path, &st) == nil && st.Type == root.magic {
			c.root = root.path
			break
		}
	}
	return c
}

// learn remembers the path of a cgroup that a record told.
func (c *cgroups) learn(id uint64, path string) { c.paths[id] = path }

// path returns the path of the cgroup below the mount point, "" when it is not
// known. The cgroups that exist are read when the first of them is asked for.
func (c *cgroups) path(id uint64) string {
	if p, ok := c.paths[id]; ok || id == 0 {
		return p
	}
	if !c.walked && c.root != "" {
		c.walked = true
		c.walk()
	}
	return c.paths[id]
}

func (c *cgroups) walk() {
	// What cannot be read is a cgroup without a name; it still has its number.
	_ = filepath.WalkDir(c.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		var st syscall.Stat_t
		if syscall.Lstat(path, &st) == nil {
			c.paths[st.Ino] = "/" + strings.TrimPrefix(strings.TrimPrefix(path, c.root), "/")
		}
		return nil
	})
}

// containerID matches the names that Docker, containerd, CRI-O and Podman give
// to the cgroup of a container: 64 hexadecimal digits, by themselves or between
// the prefix of the runtime and ".scope".
var containerID = regexp.MustCompile(`^(?:[a-z-]+-)?([0-9a-f]{64})(?:\.scope)?$`)

// container returns the number of the container that a cgroup belongs to, ""
// when its path names none. The innermost container wins.
func container(cgroup string) string {
	parts := strings.Split(cgroup, "/")
	for i := len(parts) - 1; i >= 0; i-- {
		if m := containerID.FindStringSubmatch(parts[i]); m != nil {
			return m[1]
		}
	}
	return ""
}
