package procmap

import (
	"sync"
	"syscall"
	"time"

	"hallmark/internal/fstimes"
)

// Files remembers what files are, for all the processes that are opened with it: most of
// what one process has mapped, others have mapped too. The zero value is ready. It is for
// a look at many processes at about one time, as it keeps files open until it is closed.
//
// These facts make a file the same one: its inode is kept, so that its number cannot become
// another file's, and its size and times are as they were. That holds only for file
// systems whose inode numbers are theirs alone, on a disk, and whose times show each change;
// files on others, those with layers for instance, are looked at in each process.
type Files struct {
	mu    sync.Mutex
	known map[inodeKey]*keptFile
}

type inodeKey struct {
	dev   Dev
	inode uint64
}

// keptFile is a file whose inode is kept.
type keptFile struct {
	fd    int // O_PATH
	id    Identity
	stat  syscall.Stat_t
	since time.Time // when it was opened
}

// maxKept bounds the descriptors that are open at a time: users may have 1024 in all.
const maxKept = 500

// Close forgets all files. Processes may not be asked any more.
func (f *Files) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var first error
	for _, k := range f.known {
		if err := syscall.Close(k.fd); err != nil && first == nil {
			first = err
		}
	}
	f.known = nil
	return first
}

// find returns the identity of the file of v, which p has reported, if it is known. A VMA
// that p may have reported before the inode was kept may be of another file that had its
// number.
func (f *Files) find(p *Process, v VMA) (Identity, bool) {
	if f == nil || v.Dev.Major == 0 {
		return Identity{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key := inodeKey{v.Dev, v.Inode}
	k := f.known[key]
	if k == nil || !k.since.Before(p.opened) {
		return Identity{}, false
	}
	if !k.unchanged() { // by now, when p has it mapped
		syscall.Close(k.fd)
		delete(f.known, key)
		return Identity{}, false
	}
	return k.id, true
}

// keep opens the file of v, so that its inode is there until it is remembered or dropped;
// nil if it is not to be remembered. It must be kept before it is identified.
func (f *Files) keep(p *Process, v VMA) *keptFile {
	if f == nil || v.Dev.Major == 0 || f.full() {
		return nil
	}
	fd, err := openMapFile(p, v)
	if err != nil {
		fd, err = openInRoot(p, v)
	}
	if err != nil {
		return nil
	}
	if !p.view().AnswersFD(fd) {
		syscall.Close(fd)
		return nil
	}
	k := &keptFile{fd: fd, since: time.Now()}
	if syscall.Fstat(fd, &k.stat) != nil || k.stat.Mode&syscall.S_IFMT != syscall.S_IFREG || !v.is(&k.stat) || !isTold(fd) {
		k.drop()
		return nil
	}
	return k
}

func (f *Files) full() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.known) >= maxKept
}

// remember remembers what a file is that was kept, unless it changed meanwhile. What one
// process has in its memory is its own word, and none for the others.
func (f *Files) remember(v VMA, k *keptFile, id Identity) {
	if id.ID.IsZero() || id.Door == DoorMemory || !k.unchanged() || !k.settled() {
		k.drop()
		return
	}
	k.id = id
	f.mu.Lock()
	defer f.mu.Unlock()
	key := inodeKey{v.Dev, v.Inode}
	if f.known[key] != nil { // another goroutine was faster
		k.drop()
		return
	}
	if f.known == nil {
		f.known = map[inodeKey]*keptFile{}
	}
	f.known[key] = k
}

// drop gives a file up. It may be nil.
func (k *keptFile) drop() {
	if k != nil {
		syscall.Close(k.fd)
	}
}

// unchanged reports whether nobody has written to the file since it was kept.
func (k *keptFile) unchanged() bool {
	var now syscall.Stat_t
	return syscall.Fstat(k.fd, &now) == nil && now.Size == k.stat.Size && now.Mtim == k.stat.Mtim && now.Ctim == k.stat.Ctim
}

// settled reports whether the file was last changed so long ago that another change will have
// another time. Some file systems count in seconds, and some in two.
func (k *keptFile) settled() bool {
	changed := k.stat.Ctim
	if k.stat.Mtim.Nsec == 0 && changed.Nsec == 0 {
		return time.Since(time.Unix(changed.Unix())) > 2*time.Second+fstimes.Delay()
	}
	return time.Since(time.Unix(changed.Unix())) > fstimes.Delay()
}

// isTold reports whether a file is on a file system that reports each change by its times, and
// gives each of its inodes a number which no other one has at the same time, and shows it
// everywhere.
func isTold(fd int) bool {
	var st syscall.Statfs_t
	if syscall.Fstatfs(fd, &st) != nil {
		return false
	}
	if trusted, _ := fstimes.Trusted(int64(st.Type)); !trusted {
		return false
	}
	switch uint32(st.Type) { // include/uapi/linux/magic.h
	case 0xef53, // ext2, ext3, ext4
		0x58465342, // xfs
		0xe0f5e1e2, // erofs
		0x73717368: // squashfs
		return true
	}
	return false
}
