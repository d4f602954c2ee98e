package capture

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/procmap"
	"hallmark/reason"
)

// Disk is what is now at the path of a file that is mapped, as the process that has it
// mapped sees paths. What is mapped stays what it was.
type Disk uint8

// What can be there.
const (
	// DiskUnknown says that nobody could look, or that there is no identity to compare.
	DiskUnknown Disk = iota
	// DiskSame is a file of the same identity.
	DiskSame
	// DiskGone is no file: it was deleted.
	DiskGone
	// DiskOther is a file of another identity: it was replaced.
	DiskOther
	// DiskNever says that what is mapped is memory, which was never at a path.
	DiskNever
)

var diskNames = [...]string{DiskUnknown: "unknown", DiskSame: "same", DiskGone: "deleted", DiskOther: "replaced", DiskNever: "memory"}

// String returns "same", "deleted", "replaced", "memory" or "unknown".
func (d Disk) String() string { return diskNames[d] }

// LookAtDisk sets what Code tells of paths, and Program, Ended and Container of all
// processes. It reads the file that is at each path now, once for each tree of files.
func (inv *Inventory) LookAtDisk() {
	here, _ := treeOf(ownNumber())
	files := map[treePath]*onDisk{}
	for i := range inv.Processes {
		p := &inv.Processes[i]
		tid := p.findProgram()
		tree, err := treeOf(tid)
		if err != nil {
			continue // it ended, or is another user's
		}
		for j := range p.Code {
			c := &p.Code[j]
			key := treePath{tree, c.Path}
			if files[key] == nil {
				files[key] = &onDisk{tree: tree, path: tree.inside(c.Path)}
			}
			files[key].add(tid, c)
		}
	}
	list := make([]*onDisk, 0, len(files))
	for _, f := range files {
		list = append(list, f)
	}
	eachInParallel(list, func(f *onDisk) { f.look(here) })
	for i := range inv.Processes {
		p := &inv.Processes[i]
		if slices.ContainsFunc(p.Code, func(c Code) bool { return c.Elsewhere }) {
			p.Container = containerOf(p.PID)
		}
	}
}

// memfdPrefix is how the kernel names files that memfd_create made: mm/memfd.c.
const memfdPrefix = "/memfd:"

// findProgram sets what a process executed, and returns a thread through which its files
// can be reached, 0 for none. One that executed another program since it was looked at is
// looked at again.
func (p *Running) findProgram() (tid int) {
	for range maxAttempts {
		tid, path := programOf(p.PID)
		p.Program = slices.IndexFunc(p.Code, func(c Code) bool { return tid != 0 && strings.TrimSuffix(c.Path, deleted) == path })
		if p.Program >= 0 {
			return tid
		}
		r, why := lookAt(p.PID, procmap.Options{})
		p.Ended = why == reason.ProcessGone
		if why != reason.None || tid != 0 && sameCode(p.Code, r.Code) {
			return tid
		}
		p.Name, p.Code = r.Name, r.Code
	}
	return 0
}

// sameCode reports whether two looks at a process saw the same.
func sameCode(a, b []Code) bool {
	return slices.EqualFunc(a, b, func(a, b Code) bool { return a.Start == b.Start && a.End == b.End && a.Path == b.Path })
}

// programOf returns the path of what a process executed, and the thread that tells: the
// first one, or another where that has ended. It is 0 where none does.
func programOf(pid int) (tid int, path string) {
	if path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil {
		return pid, strings.TrimSuffix(path, deleted)
	}
	tids, _ := threadsOf(pid)
	for _, tid := range tids {
		if path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", tid)); err == nil {
			return tid, strings.TrimSuffix(path, deleted)
		}
	}
	return 0, ""
}

// tree is what paths of a process mean: processes that have the same mounts and the same
// root directory see the same files.
type tree struct {
	mounts   string
	root     string // directory, as this process sees it; mapped files are named in the same way
	dev, ino uint64 // of it
}

func treeOf(pid int) (tree, error) {
	mounts, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return tree{}, err
	}
	link := fmt.Sprintf("/proc/%d/root", pid)
	root, err := os.Readlink(link)
	if err != nil {
		return tree{}, err
	}
	var st unix.Stat_t
	if err := unix.Stat(link, &st); err != nil {
		return tree{}, err
	}
	return tree{mounts, root, st.Dev, st.Ino}, nil
}

// inside returns the path that the process itself has for a file.
func (t tree) inside(path string) string {
	if below, ok := strings.CutPrefix(path, t.root+"/"); ok && t.root != "/" {
		return "/" + below
	}
	return path
}

type treePath struct {
	tree
	path string
}

// onDisk is a path, the processes that see it, and the code that was mapped from there.
type onDisk struct {
	tree tree
	path string // inside of it
	pids []int  // a few of them, each of which may end
	code []*Code
}

func (f *onDisk) add(pid int, c *Code) {
	if len(f.pids) < maxAttempts {
		f.pids = append(f.pids, pid)
	}
	f.code = append(f.code, c)
}

func (f *onDisk) look(here tree) {
	id, at := f.read()
	if at != DiskNever {
		f.findPlaces(here)
	}
	for _, c := range f.code {
		switch {
		case at == DiskSame && c.ID.IsZero():
			c.Disk = DiskUnknown
		case at == DiskSame && c.ID != id:
			c.Disk = DiskOther
		default:
			c.Disk = at
		}
	}
}

// read reads the identity of what is at the path: DiskSame says that there is one.
func (f *onDisk) read() (buildid.ID, Disk) {
	if !strings.HasPrefix(f.path, "/") || strings.HasPrefix(f.path, memfdPrefix) {
		return buildid.ID{}, DiskNever
	}
	for _, pid := range f.pids {
		id, at := readBelow(pid, f.path)
		if at != DiskUnknown {
			return id, at
		}
	}
	return buildid.ID{}, DiskUnknown
}

// readBelow reads what a process sees at a path. The path is not left to go through a
// symbolic link into the files of this process.
func readBelow(pid int, path string) (buildid.ID, Disk) {
	root, err := openRoot(pid)
	if err != nil {
		return buildid.ID{}, DiskUnknown
	}
	defer unix.Close(root)
	fd, err := unix.Openat2(root, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return buildid.ID{}, DiskGone
	}
	if err != nil {
		return buildid.ID{}, DiskUnknown
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return buildid.ID{}, DiskUnknown
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return buildid.ID{}, DiskOther
	}
	info, err := buildid.ReadFile(fmt.Sprintf("/proc/self/fd/%d", fd))
	switch {
	case errors.Is(err, fs.ErrPermission):
		return buildid.ID{}, DiskUnknown
	case err != nil || info.ID.IsZero():
		return buildid.ID{}, DiskOther // nothing that could be mapped as this code was
	}
	return info.ID, DiskSame
}
