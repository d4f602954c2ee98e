package inventory

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/aside"
	"hallmark/internal/contentcache"
	"hallmark/internal/mounts"
	"hallmark/internal/patience"
	"hallmark/internal/procfs"
	"hallmark/internal/reach"
	"hallmark/internal/regular"
	"hallmark/procmap"
	"hallmark/reason"
)

// Disk is what is now at the path of a file that is mapped, as the process that has it
// mapped sees paths. A mapping stays what it was.
type Disk uint8

// The things that can be there.
const (
	// DiskUnknown says that nobody could look, or that there is no identity to compare.
	DiskUnknown Disk = iota
	// DiskSame is the same file, or another one of the same identity and content.
	DiskSame
	// DiskGone is no file: it was deleted.
	DiskGone
	// DiskOther is a file of another identity or content: it was replaced.
	DiskOther
	// DiskNever says that what is mapped is memory, which was never at a path.
	DiskNever
)

var diskNames = [...]string{DiskUnknown: "unknown", DiskSame: "same", DiskGone: "deleted", DiskOther: "replaced", DiskNever: "memory"}

// String returns "same", "deleted", "replaced", "memory" or "unknown".
func (d Disk) String() string { return diskNames[d] }

// LookAtDisk sets what Code says of paths, and Program, Ended and Container of all
// processes. It reads the file that is at each path now, once for each tree of files and each user: no
// process of one user has a part in what is reported of another user's.
func (inv *Inventory) LookAtDisk() {
	here, _ := reach.TreeOf(procfs.OwnPID())
	files := map[userTree]map[string]*onDisk{}
	for i, v := range inv.findViews() {
		p, tid, key, tree := &inv.Processes[i], v.tid, v.userTree, v.Tree
		if tree == (reach.Tree{}) {
			continue // it ended, or is another user's
		}
		paths := files[key]
		if paths == nil {
			paths = map[string]*onDisk{}
			files[key] = paths
		}
		for j := range p.Code {
			c := &p.Code[j]
			f := paths[c.Path]
			if f == nil {
				f = &onDisk{tree: tree, path: tree.Inside(c.Path), user: key.user}
				if tree == here {
					f.pids = []int{procfs.OwnPID()} // which nobody else has a part in
				}
				paths[c.Path] = f
			}
			f.add(tid, c)
		}
	}
	var list []*onDisk
	for _, paths := range files {
		list = slices.AppendSeq(list, maps.Values(paths))
	}
	// Root's come first, for all share the time there is.
	slices.SortFunc(list, func(a, b *onDisk) int { return cmp.Compare(a.user, b.user) })
	ctx, until := inv.context(), time.Now().Add(diskPatience)
	procfs.EachInParallel(list, func(f *onDisk) {
		inv.shares.spend(f.user, func() { f.look(ctx, here, until) })
	})
	for i := range inv.Processes {
		p := &inv.Processes[i]
		if slices.ContainsFunc(p.Code, func(c Code) bool { return c.Elsewhere }) {
			p.Container = procfs.ContainerOf(p.PID)
		}
	}
}

// diskPatience bounds what is read of files that have the same identity as what is mapped and
// are other ones.
const diskPatience = 3 * time.Second

// memfdPrefix is how the kernel names files that memfd_create made: mm/memfd.c.
const memfdPrefix = "/memfd:"

// view is how a process sees files, and a thread through which they can be reached. Tree is the zero one where nobody
// knows.
type view struct {
	userTree
	tid int
}

// findViews sets what each process executed, and returns their views. It looks at several at a time: each look is
// waited for, and one at a time wakes an idle CPU again and again.
func (inv *Inventory) findViews() []view {
	views, numbers := make([]view, len(inv.Processes)), make([]int, len(inv.Processes))
	for i := range numbers {
		numbers[i] = i
	}
	procfs.EachInParallel(numbers, func(i int) {
		p, v := &inv.Processes[i], &views[i]
		v.tid = inv.findProgram(p)
		var err error
		if v.Tree, err = reach.TreeOf(v.tid); err == nil {
			v.user = procfs.AccountOf(uint32(p.PID))
		}
	})
	return views
}

// findProgram sets what a process executed, and returns a thread through which its files
// can be reached, 0 for none. One that executed another program since it was looked at is
// looked at again.
func (inv *Inventory) findProgram(p *Process) (tid int) {
	for range reach.MaxAttempts {
		tid, path := procfs.ProgramOf(p.PID)
		p.Program = slices.IndexFunc(p.Code, func(c Code) bool { return tid != 0 && strings.TrimSuffix(c.Path, procfs.Deleted) == path })
		if p.Program >= 0 {
			return tid
		}
		r, why := inv.lookPatiently(p.PID, patience.ProcessTime, procmap.Options{Context: inv.context()})
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

// userTree is what a user's processes see that have one tree of files.
type userTree struct {
	reach.Tree
	user uint32
}

// onDisk is a path, the processes of a user that see it, and the code that was mapped from there.
type onDisk struct {
	tree   reach.Tree
	path   string // inside of it
	user   uint32
	pids   []int // a few of them, each of which may end, or this process
	code   []*Code
	owners []int // the process of each
}

func (f *onDisk) add(pid int, c *Code) {
	if len(f.pids) < reach.MaxAttempts && !slices.Contains(f.pids, procfs.OwnPID()) {
		f.pids = append(f.pids, pid)
	}
	f.code = append(f.code, c)
	f.owners = append(f.owners, pid)
}

func (f *onDisk) look(ctx context.Context, here reach.Tree, until time.Time) {
	now := f.read(ctx)
	if now.disk != DiskNever {
		f.setEntries(here, now.entry)
	}
	same := map[fileKey]Disk{}
	for _, c := range f.code {
		switch {
		case now.disk == DiskSame && c.ID.IsZero():
			c.Disk = DiskUnknown
		case now.disk == DiskSame && c.ID != now.id:
			c.Disk = DiskOther
		case now.disk == DiskSame:
			disk, ok := same[c.file]
			if !ok {
				disk = f.compare(c, &now, until)
				same[c.file] = disk
			}
			c.Disk = disk
		default:
			c.Disk = now.disk
		}
	}
}

// read reads the identity of what is at the path, and which entry that is. A helper does it
// where the path leads to or through a file system that may not answer; where the mapped file
// did not, the path is left alone.
func (f *onDisk) read(ctx context.Context) found {
	if !strings.HasPrefix(f.path, "/") || strings.HasPrefix(f.path, memfdPrefix) {
		return found{disk: DiskNever}
	}
	if slices.ContainsFunc(f.code, func(c *Code) bool { return c.Reason == reason.FileUnresponsive }) {
		return found{}
	}
	for _, pid := range f.pids {
		now, err := readBelow(ctx, f.tree, pid, f.path)
		if errors.Is(err, mounts.ErrForeign) {
			return f.readFar(pid)
		}
		if now.disk != DiskUnknown {
			now.entry = f.entry()
			return now
		}
	}
	return found{entry: f.entry()}
}

// readBelow reads what is at a path of a tree, through a process that sees it. The error is that of
// reach.Tree.Open, where it says nothing of what is there.
func readBelow(ctx context.Context, tree reach.Tree, pid int, path string) (found, error) {
	now := found{tree: tree, pid: pid}
	fd, err := tree.Open(pid, path)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		now.disk = DiskGone
		return now, nil
	}
	if err != nil {
		return now, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return now, nil
	}
	now.file = inodeOf(&st)
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		now.disk = DiskOther
		return now, nil
	}
	file, err := regular.Reopen(fd, path)
	if err != nil {
		return now, nil // who may not read it, or finds a lease on it, does not know
	}
	defer file.Close()
	info, err := contentcache.Read(ctx, file)
	switch {
	case ctx.Err() != nil || info.Where == buildid.OverBudget || errors.As(err, new(unix.Errno)):
	case err != nil || info.ID.IsZero():
		now.disk = DiskOther // nothing that could be mapped as this code was
	default:
		now.id, now.disk = info.ID, DiskSame
	}
	return now, nil
}

// farPath is a path of a tree that a process sees, where a helper looks.
type farPath struct {
	Tree reach.Tree
	PID  int
	Path string
}

// farDisk is what is there.
type farDisk struct {
	ID   string
	Disk Disk
	File inode
	// Of its entry:
	Dev   mounts.Dev
	Inode uint64
	Name  string
}

var readFar = aside.New("capture.disk", func(q farPath) (farDisk, error) {
	ctx, cancel := reach.HelperContext()
	defer cancel()
	now, err := readBelow(ctx, q.Tree, q.PID, q.Path)
	if err != nil {
		return farDisk{}, err
	}
	there := entryAt(q.Tree, q.PID, q.Path).value()
	far := farDisk{Disk: now.disk, File: now.file, Dev: there.dev, Inode: there.ino, Name: there.name}
	if !now.id.IsZero() {
		far.ID = now.id.String()
	}
	return far, nil
})

// readFar is read by a helper.
func (f *onDisk) readFar(pid int) found {
	far, err := readFar.Ask(aboutPath(f.path), farPath{f.tree, pid, f.path})
	if err != nil {
		return found{}
	}
	now := found{disk: far.Disk, file: far.File, tree: f.tree, pid: pid, far: true}
	switch {
	case far.Inode != 0:
		now.entry = newEntry(dirEntry{dev: far.Dev, ino: far.Inode, name: far.Name})
	case far.Disk == DiskGone:
		now.entry = goneEntry(treePath{f.tree, f.path})
	}
	if far.ID == "" {
		return now
	}
	if now.id, err = buildid.Parse(far.ID); err != nil {
		now.disk = DiskUnknown
	}
	return now
}

// aboutPath names what a helper is asked about that looks at a path.
func aboutPath(name string) string { return "directory " + path.Dir(name) }
