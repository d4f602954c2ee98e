package procfs

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Cgroups turns the cgroup numbers of samples into paths. A number is the inode
// of the cgroup's directory: in the hierarchy that has the perf_event controller
// for perf, in that of version 2 for BPF.
type Cgroups struct {
	root   string // where that hierarchy is mounted, "" when nowhere
	paths  map[uint64]string
	walked bool
	// containers are those of the cgroups whose paths are known.
	containers map[uint64]string
}

// cgroupMagic is of file systems of version 1: CGROUP_SUPER_MAGIC, include/uapi/linux/magic.h.
const cgroupMagic = 0x27e0eb

// CgroupRoots are where that hierarchy may be mounted: of its own as version 1,
// else as version 2, alone or beside version 1.
var CgroupRoots = []CgroupRoot{
	{"/sys/fs/cgroup/perf_event", cgroupMagic},
	{"/sys/fs/cgroup", 0x63677270},
	{"/sys/fs/cgroup/unified", 0x63677270},
}

// UnifiedRoots are where the hierarchy of version 2 may be mounted.
var UnifiedRoots = CgroupRoots[1:]

// CgroupRoot is a directory where a hierarchy of control groups may be mounted.
type CgroupRoot struct {
	path  string
	magic int64 // include/uapi/linux/magic.h
}

// NewCgroups takes the first of the roots that is there.
func NewCgroups(roots []CgroupRoot) *Cgroups {
	return &Cgroups{root: firstRoot(roots), paths: map[uint64]string{}, containers: map[uint64]string{}}
}

// firstRoot returns the first of the roots that is there, "" for none.
func firstRoot(roots []CgroupRoot) string {
	for _, root := range roots {
		var st syscall.Statfs_t
		if syscall.Statfs(root.path, &st) == nil && st.Type == root.magic {
			return root.path
		}
	}
	return ""
}

// Learn remembers the path of a cgroup, as a record has it.
func (c *Cgroups) Learn(id uint64, path string) {
	c.paths[id] = path
	delete(c.containers, id)
}

// Path returns the path of the cgroup below the mount point, "" when it is not
// known: it may be gone already.
func (c *Cgroups) Path(id uint64) string {
	p, ok := c.paths[id]
	if ok || id == 0 || c.root == "" {
		return p
	}
	p, err := c.open(id)
	if err != nil && !c.walked {
		c.walked = true
		c.walk()
		p = c.paths[id]
	}
	c.paths[id] = p
	return p
}

// kernfsHandle is the type of a handle that is the number of a directory:
// FILEID_KERNFS of include/linux/exportfs.h.
const kernfsHandle = 0xfe

// open asks for the directory by its number, which only root may (CAP_DAC_READ_SEARCH).
func (c *Cgroups) open(id uint64) (string, error) {
	mount, err := os.Open(c.root)
	if err != nil {
		return "", err
	}
	defer mount.Close()
	handle := unix.NewFileHandle(kernfsHandle, binary.NativeEndian.AppendUint64(nil, id))
	fd, err := unix.OpenByHandleAt(int(mount.Fd()), handle, unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	return c.below(name), err
}

// below turns the name of a directory into a cgroup.
func (c *Cgroups) below(name string) string {
	return "/" + strings.TrimPrefix(strings.TrimPrefix(name, c.root), "/")
}

// walk reads all cgroups that exist.
func (c *Cgroups) walk() {
	// A cgroup that cannot be read has no name; it still has its number.
	_ = filepath.WalkDir(c.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		var st syscall.Stat_t
		if syscall.Lstat(path, &st) == nil {
			c.paths[st.Ino] = c.below(path)
		}
		return nil
	})
}

// containerID matches the names that Docker, containerd, CRI-O and Podman give
// to the cgroup of a container: 64 hexadecimal digits, by themselves or between
// the prefix of the runtime and ".scope".
var containerID = regexp.MustCompile(`^(?:[a-z-]+-)?([0-9a-f]{64})(?:\.scope)?$`)

// podmanPods is the directory in which Podman without systemd makes those of pods. The name of
// a pod has the form of a container's, which is below it.
const podmanPods = "libpod_parent"

// container returns the number of the container that a cgroup of the hierarchy at root belongs
// to, "" when its path names none that is believed.
//
// The user who may make a directory chooses its name. So a name is believed where nobody but root and
// this user may change the directory that has it, nor those above. Of several the outermost one
// is believed: the root of a container may make the others.
func container(root, cgroup string) string {
	names := strings.Split(strings.Trim(cgroup, "/"), "/")
	if root == "" || !slices.ContainsFunc(names, containerID.MatchString) {
		return ""
	}
	dir, above := root, ""
	for _, name := range names {
		if name == "" || name == "." || name == ".." || !isGuarded(dir) {
			return ""
		}
		if m := containerID.FindStringSubmatch(name); m != nil {
			if isPod := above == podmanPods && name == m[1]; !isPod {
				return m[1]
			}
		}
		dir, above = dir+"/"+name, name
	}
	return ""
}

// isGuarded reports whether nobody but root and this user may make directories in one. Of one
// that is gone nobody knows.
func isGuarded(dir string) bool {
	var st syscall.Stat_t
	return syscall.Lstat(dir, &st) == nil && (st.Uid == 0 || int(st.Uid) == os.Geteuid()) && st.Mode&0o022 == 0
}

// Home returns the path of a cgroup, as Path does, and the number of the container that it
// belongs to, "" when its path names none that is believed.
func (c *Cgroups) Home(id uint64) (cgroup, inContainer string) {
	cgroup = c.Path(id)
	if cgroup == "" {
		return "", ""
	}
	inContainer, ok := c.containers[id]
	if !ok {
		inContainer = container(c.root, cgroup)
		c.containers[id] = inContainer
	}
	return cgroup, inContainer
}

// UnifiedContainer is the container of a cgroup of version 2, as Home returns it.
func UnifiedContainer(cgroup string) string { return container(firstRoot(UnifiedRoots), cgroup) }

// ContainerOf returns the number of the container that a process is in, "" for none that is
// believed.
func ContainerOf(pid int) string {
	b, err := read(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		// hierarchy:controllers:path, cgroups(7)
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 {
			if id := container(firstRoot(rootsOf(parts[1])), parts[2]); id != "" {
				return id
			}
		}
	}
	return ""
}

// rootsOf returns where the hierarchy of these controllers may be mounted.
func rootsOf(controllers string) []CgroupRoot {
	if controllers == "" {
		return UnifiedRoots
	}
	return []CgroupRoot{{"/sys/fs/cgroup/" + strings.TrimPrefix(controllers, "name="), cgroupMagic}}
}
