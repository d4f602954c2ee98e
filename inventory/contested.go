package inventory

import (
	"context"
	"os"
	"syscall"
	"time"
	"unique"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/aside"
	"hallmark/internal/bpf"
	"hallmark/internal/contentcache"
	"hallmark/internal/contested"
	"hallmark/internal/reach"
	"hallmark/internal/regular"
	"hallmark/procmap"
)

// codeFile distinguishes the files that code is mapped from, as the kernel does. The times are
// those that BPF reported, and zero where /proc did.
type codeFile struct {
	major, minor uint32
	inode        uint64
	mtime, ctime bpf.Time
}

// fileKey is a codeFile that is kept in one place. The zero fileKey is none.
type fileKey struct{ one unique.Handle[codeFile] }

func (f codeFile) key() fileKey {
	if f == (codeFile{}) {
		return fileKey{}
	}
	return fileKey{unique.Make(f)}
}

func keyOf(v *bpf.Validity) fileKey {
	return codeFile{v.Dev.Major, v.Dev.Minor, v.Inode, v.Mtime, v.Ctime}.key()
}

func keyOfVMA(v procmap.VMA) fileKey {
	return codeFile{major: v.Dev.Major, minor: v.Dev.Minor, inode: v.Inode}.key()
}

// value returns which file it is, the zero value for none.
func (k fileKey) value() codeFile {
	if k == (fileKey{}) {
		return codeFile{}
	}
	return k.one.Value()
}

// isAt reports whether the file is the one of which fstat returns this.
func (f codeFile) isAt(there inode) bool {
	return f.inode == there.Number && f.major == unix.Major(there.Dev) && f.minor == unix.Minor(there.Dev)
}

// isOlder reports whether an open file was changed since it was listed.
func (f codeFile) isOlder(file *os.File) bool {
	now := reach.StampOf(file)
	return f.mtime != bpf.Time{} && (now.Mtime != f.mtime || now.Ctime != f.ctime)
}

// FindContested sets Contested and Content of the code whose identity different files claim.
// Only the files are read whose identity another one in the inventory has, too: of copies
// nothing is said.
func (inv *Inventory) FindContested() {
	claimed := inv.claimedTwice()
	if len(claimed) == 0 {
		return
	}
	keys := inv.claimKeys(claimed)
	var claims []contested.Claim[claimKey]
	var code []*Code
	for i := range inv.Processes {
		p := &inv.Processes[i]
		for j := range p.Code {
			c := &p.Code[j]
			if !claimed[c.ID] || c.file == (fileKey{}) {
				continue
			}
			code = append(code, c)
			claims = append(claims, contested.Claim[claimKey]{
				ID: c.ID, Key: keys[i][j],
				Open: func() (*os.File, func()) { return c.open(p.PID) },
				Ask:  func(context.Context) buildid.Content { return c.askContent(p.PID) },
			})
		}
	}
	for i, found := range contested.Find(claims, contested.Limits{}) {
		code[i].Content = found.Content
		code[i].Contested = found.IsContested()
	}
}

// claimedTwice returns the identities that more than one file has, or more than one mapping where the
// numbers of files do not distinguish them.
func (inv *Inventory) claimedTwice() map[buildid.ID]bool {
	first, twice := map[buildid.ID]fileKey{}, map[buildid.ID]bool{}
	for i := range inv.Processes {
		for j := range inv.Processes[i].Code {
			c := &inv.Processes[i].Code[j]
			if c.ID.IsZero() || c.file == (fileKey{}) || c.ID.Kind() == buildid.ByContent {
				continue
			}
			if file, ok := first[c.ID]; !ok {
				first[c.ID] = c.file
			} else if file != c.file || file.value().isAnonymous() {
				twice[c.ID] = true
			}
		}
	}
	return twice
}

// open opens the file that a process has mapped there, if that has the identity still.
func (c *Code) open(pid int) (f *os.File, done func()) {
	p, err := procmap.Open(pid)
	if err != nil {
		return nil, nil
	}
	v, ok, err := p.Find(c.Start)
	if !ok || err != nil || v.Offset != c.Offset || c.file.value().inode != v.Inode {
		p.Close()
		return nil, nil
	}
	file, err := p.OpenFile(v)
	if err != nil {
		p.Close()
		return nil, nil
	}
	done = func() {
		file.Close()
		p.Close()
	}
	if info, err := buildid.ReadClaim(file.File); err != nil || info.ID != c.ID || c.file.value().isOlder(file.File) {
		done()
		return nil, nil
	}
	return file.File, done
}

// askContent returns the content of the file that a process has mapped there, if its file system may
// not answer and does, and the file has the identity still.
func (c *Code) askContent(pid int) (content buildid.Content) {
	p, err := procmap.Open(pid)
	if err != nil {
		return content
	}
	defer p.Close()
	v, ok, err := p.Find(c.Start)
	if !ok || err != nil || v.Offset != c.Offset || c.file.value().inode != v.Inode {
		return content
	}
	return p.ContentAside(v, c.ID)
}

// found is what is at a path now.
type found struct {
	id    buildid.ID
	disk  Disk // DiskSame says that there is a file with that identity
	file  inode
	tree  reach.Tree
	pid   int  // of the process that sees it there
	far   bool // a helper has looked
	entry DirEntry
}

// inode is a file as stat returns it.
type inode struct{ Dev, Number uint64 }

func inodeOf(st *unix.Stat_t) inode { return inode{st.Dev, st.Ino} }

// compare returns what is at a path for code of the same identity: the same file, a copy, or
// another build that claims to be the same.
func (f *onDisk) compare(c *Code, now *found, until time.Time) Disk {
	if c.file == (fileKey{}) || c.file.value().isAt(now.file) || c.ID.Kind() == buildid.ByContent {
		return DiskSame
	}
	mapped, done := f.openMapped(c.file)
	if mapped != nil {
		defer done()
		var st unix.Stat_t
		if unix.Fstat(int(mapped.Fd()), &st) == nil && inodeOf(&st) == now.file {
			return DiskSame
		}
	}
	contents := contested.Read([]contested.File{
		{
			Open: func() (*os.File, func()) { return mapped, func() {} },
			Ask:  func(context.Context) buildid.Content { return f.askMapped(c.file) },
		},
		{
			Open: func() (*os.File, func()) { return openThere(now, f.path) },
			Ask:  func(context.Context) buildid.Content { return askThere(now, f.path) },
		},
	}, contested.Limits{Time: max(time.Until(until), time.Nanosecond)})
	switch contested.Judge(contents) {
	case contested.Same:
		return DiskSame
	case contested.Different:
		return DiskOther
	}
	return DiskUnknown
}

// openMapped opens the file that is mapped, through a process that has it.
func (f *onDisk) openMapped(file fileKey) (mapped *os.File, done func()) {
	tries := 0
	for i, c := range f.code {
		if c.file != file || tries == reach.MaxAttempts {
			continue
		}
		tries++
		if mapped, done := c.open(f.owners[i]); mapped != nil {
			return mapped, done
		}
	}
	return nil, nil
}

// askMapped returns the content of the file that is mapped, where OpenFile leaves it alone.
func (f *onDisk) askMapped(file fileKey) (content buildid.Content) {
	for i, c := range f.code {
		if c.file == file {
			return c.askContent(f.owners[i])
		}
	}
	return content
}

// openThere opens what is at a path, if it is what was found there.
func openThere(now *found, path string) (*os.File, func()) {
	fd, err := now.tree.Open(now.pid, path)
	if err != nil {
		return nil, nil
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || inodeOf(&st) != now.file || st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return nil, nil
	}
	f, err := regular.Reopen(fd, path)
	if err != nil {
		return nil, nil
	}
	return f, func() { f.Close() }
}

// farThere is a file at a path as a process sees it, whose content is wanted.
type farThere struct {
	farPath
	File inode
}

// contentThere reads the content of what is at a path, in a helper.
var contentThere = aside.New("capture.there", func(q farThere) (content string, err error) {
	ctx, cancel := reach.HelperContext()
	defer cancel()
	f, done := openThere(&found{file: q.File, tree: q.Tree, pid: q.PID}, q.Path)
	if f == nil {
		return "", nil
	}
	defer done()
	c, err := contentcache.OfMapped(ctx, f)
	return c.String(), err
})

// askThere is openThere for what a helper has found.
func askThere(now *found, path string) (content buildid.Content) {
	if !now.far {
		return content
	}
	text, err := contentThere.Ask(aboutPath(path), farThere{farPath{now.tree, now.pid, path}, now.file})
	if err == nil && text != "" {
		content, _ = buildid.ParseContent(text) // or it is unknown
	}
	return content
}
