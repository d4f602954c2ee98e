package buildid

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"hallmark/internal/regular"
)

// An Entry is what Scan found out about one file.
type Entry struct {
	Path string
	Info Info    // without ID for what is not ELF
	Err  error   // why a file or a directory could not be read
	Done float64 // estimated share of the tree that is behind, from 0 to 1

	isOwn bool // only this user and root can change the directory
}

// Scan goes through all regular files below a directory in lexical order. It reads
// several at a time, and no more than some hundred wait for their turn. It does not
// follow symbolic links and does not enter the kernel's own file systems (/proc,
// /sys and the like) that it meets on its way. A file or directory that vanishes
// meanwhile is left out.
func Scan(dir string) iter.Seq[Entry] { return ScanContext(context.Background(), dir) }

// ScanContext is Scan until ctx is done. All files share the budget of ctx, see [WithBudget].
func ScanContext(ctx context.Context, dir string) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		s := scan{
			ctx:     ctx,
			stop:    make(chan struct{}),
			todo:    make(chan *batch),
			inOrder: make(chan *batch, 2*runtime.GOMAXPROCS(0)),
		}
		s.start(dir)
		defer s.running.Wait()
		defer close(s.stop)
		for b := range s.inOrder {
			<-b.done
			if ctx.Err() != nil {
				return
			}
			for _, e := range b.entries {
				vanished := errors.Is(e.Err, fs.ErrNotExist) && e.Path != dir
				if !vanished && !yield(e) {
					return
				}
			}
		}
	}
}

// batchSize is how many files a goroutine takes at a time.
const batchSize = 64

// A batch is a run of files in order. Its entries have no Info before done is closed.
type batch struct {
	entries []Entry
	done    chan struct{}
}

// A scan is one goroutine that walks the tree and several that read files. Each
// batch goes to one of them and, to be taken up in order, to the caller.
type scan struct {
	ctx     context.Context
	stop    chan struct{} // closed when the caller wants no more
	todo    chan *batch
	inOrder chan *batch
	running sync.WaitGroup

	filling *batch // by the walking goroutine
}

func (s *scan) start(dir string) {
	s.running.Go(func() {
		defer close(s.inOrder)
		defer close(s.todo)
		if s.walk(dir, 0, 1, lookAt(dir)) {
			s.send()
		}
	})
	for range runtime.GOMAXPROCS(0) {
		s.running.Go(s.work)
	}
}

func (s *scan) work() {
	for b := range s.todo {
		for i := range b.entries {
			if s.stopped() {
				break
			}
			if e := &b.entries[i]; e.Err == nil {
				e.Info, e.Err = readListed(s.ctx, e)
			}
		}
		close(b.done)
	}
}

func (s *scan) stopped() bool {
	select {
	case <-s.stop:
		return true
	case <-s.ctx.Done():
		return true
	default:
		return false
	}
}

// walk adds the files of one directory and those below, which are the share from
// to to of the whole. It reports whether to go on.
func (s *scan) walk(dir string, from, to float64, at directory) bool {
	entries, err := os.ReadDir(dir)
	if err != nil && !s.add(Entry{Path: dir, Err: err, Done: from}) {
		return false
	}
	share := (to - from) / float64(len(entries))
	for i, e := range entries {
		path := filepath.Join(dir, e.Name())
		from, to := from+share*float64(i), from+share*float64(i+1)
		switch {
		case e.Type().IsRegular():
			if !s.add(Entry{Path: path, Done: to, isOwn: at.isOwn}) {
				return false
			}
		case e.IsDir():
			below := lookAt(path)
			below.isOwn = below.isOwn && at.isOwn
			if below.dev != at.dev && kernelFS(path) {
				continue
			}
			if !s.walk(path, from, to, below) {
				return false
			}
		}
	}
	return true
}

func (s *scan) add(e Entry) bool {
	if s.filling == nil {
		s.filling = &batch{entries: make([]Entry, 0, batchSize), done: make(chan struct{})}
	}
	s.filling.entries = append(s.filling.entries, e)
	return len(s.filling.entries) < batchSize || s.send()
}

func (s *scan) send() bool {
	b := s.filling
	if b == nil {
		return true
	}
	s.filling = nil
	for _, c := range []chan *batch{s.inOrder, s.todo} {
		select {
		case c <- b:
		case <-s.stop:
			return false
		}
	}
	return true
}

// directory is what a walk knows of where it is.
type directory struct {
	dev   uint64 // of its file system, 0 if that is unknown
	isOwn bool   // only this user and root can change it, and those above in the tree
}

// lookAt looks at a directory. Access control lists that let others write show in the bits of
// the group. A file system that another user serves may show any owner, but has no devices.
func lookAt(dir string) directory {
	const othersWrite = 0o022
	var stat syscall.Stat_t
	if syscall.Lstat(dir, &stat) != nil {
		return directory{}
	}
	isOurs := stat.Uid == 0 || int(stat.Uid) == os.Geteuid()
	return directory{uint64(stat.Dev), isOurs && stat.Mode&othersWrite == 0}
}

// kernelFS reports whether the kernel makes up the files of a directory.
func kernelFS(dir string) bool {
	fd, err := syscall.Open(dir, regular.OPath|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer syscall.Close(fd)
	return regular.IsMade(fd)
}
