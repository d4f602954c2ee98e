package cachedir

import (
	"io/fs"
	"os"
	"sync"
)

// damages are the files of this process's caches that were found to be damaged.
var damages struct {
	mu     sync.Mutex
	report func(path string, damage error)
	files  map[string]fs.FileInfo
}

// OnDamage has f called for each kept file that is found to be damaged, once; nil for no call. The file that it would
// take the place of is made anew, so nothing is lost but time; a disk or memory may be about to fail.
func OnDamage(f func(path string, damage error)) {
	damages.mu.Lock()
	defer damages.mu.Unlock()
	damages.report = f
}

// Discard removes a kept file that is damaged, and reports it. Where it cannot be removed, this process does not open
// it again.
func (d *Dir) Discard(path string, damage error) {
	info, err := os.Lstat(path)
	d.Remove(path)
	damages.mu.Lock()
	if known := damages.files[path]; err != nil || isSame(known, info) {
		damages.mu.Unlock() // somebody else was faster
		return
	}
	if damages.files == nil {
		damages.files = map[string]fs.FileInfo{}
	}
	damages.files[path] = info
	report := damages.report
	damages.mu.Unlock()
	if report != nil {
		report(path, damage)
	}
}

// isDiscarded reports whether a file is one that is damaged.
func isDiscarded(path string, info fs.FileInfo) bool {
	damages.mu.Lock()
	defer damages.mu.Unlock()
	return isSame(damages.files[path], info)
}

// isSame reports whether two files are one that nobody has written to.
func isSame(known, info fs.FileInfo) bool {
	return known != nil && os.SameFile(known, info) && known.ModTime().Equal(info.ModTime()) && known.Size() == info.Size()
}
