package inventory

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/aside"
	"hallmark/internal/mounts"
	"hallmark/internal/patience"
	"hallmark/internal/procfs"
)

// claimKey distinguishes files that claim an identity.
type claimKey struct {
	file fileKey
	// at is the file as fstat shows it, where the device of a mapping is not that of a disk: subvolumes of
	// btrfs have one there, and files of one number.
	at inode
	// isLost reports that nobody could look, and that the file may be any other one.
	isLost bool
}

// isAnonymous reports whether the device of a file is that of no disk, and so may have several files of one
// number: include/linux/kdev_t.h, get_anon_bdev.
func (f codeFile) isAnonymous() bool { return f.major == 0 }

// claimKeys returns the keys of the code of each process. Files are opened only if their device needs it,
// and they have an identity that is claimed twice.
func (inv *Inventory) claimKeys(claimed map[buildid.ID]bool) [][]claimKey {
	keys := make([][]claimKey, len(inv.Processes))
	var open []int
	for i := range inv.Processes {
		p := &inv.Processes[i]
		keys[i] = make([]claimKey, len(p.Code))
		needs := false
		for j := range p.Code {
			keys[i][j].file = p.Code[j].file
			needs = needs || p.Code[j].isAmbiguous(claimed)
		}
		if needs {
			open = append(open, i)
		}
	}
	procfs.EachInParallel(open, func(i int) { inv.Processes[i].findPlaces(inv.shares, claimed, keys[i]) })
	return keys
}

// isAmbiguous reports whether another file may have the identity and the numbers of this one.
func (c *Code) isAmbiguous(claimed map[buildid.ID]bool) bool {
	return claimed[c.ID] && c.file.value().isAnonymous()
}

// findPlaces sets the places of code in its keys.
func (p *Process) findPlaces(s *shares, claimed map[buildid.ID]bool, keys []claimKey) {
	found := make([]claimKey, len(keys))
	look := func() {
		view := mounts.Of(p.PID, !aside.Available())
		for j := range p.Code {
			found[j] = keys[j]
			if c := &p.Code[j]; c.isAmbiguous(claimed) {
				found[j].at, found[j].isLost = c.place(p.PID, view)
			}
		}
	}
	isDone := false
	s.spend(procfs.AccountOf(uint32(p.PID)), func() { isDone = patience.Within(p.PID, patience.ProcessTime, look) })
	for j := range keys {
		switch {
		case isDone:
			keys[j] = found[j]
		case p.Code[j].isAmbiguous(claimed):
			keys[j].isLost = true
		}
	}
}

// place returns the file that a process has mapped there as fstat shows it. A file system that may not
// answer is not asked.
func (c *Code) place(pid int, view *mounts.View) (at inode, isLost bool) {
	file := c.file.value()
	if !view.Answers(mounts.Dev{Major: file.major, Minor: file.minor}) {
		return inode{}, false
	}
	fd, err := c.openMapping(pid)
	if errors.Is(err, os.ErrNotExist) {
		if tid, _ := procfs.ProgramOf(pid); tid != pid && tid != 0 { // the first thread has ended
			fd, err = c.openMapping(tid)
		}
	}
	switch {
	case errors.Is(err, os.ErrPermission):
		return c.placeOfOpen(pid)
	case err != nil:
		return inode{}, true
	}
	defer unix.Close(fd)
	return placeOf(fd)
}

// openMapping opens the file that is mapped there (O_PATH), for which root is needed.
func (c *Code) openMapping(pid int) (fd int, err error) {
	return mounts.OpenMapFile(strconv.Itoa(pid), uint64(c.Start), uint64(c.End))
}

// placeOfOpen is place by another way to the file.
func (c *Code) placeOfOpen(pid int) (at inode, isLost bool) {
	f, done := c.open(pid)
	if f == nil {
		return inode{}, true
	}
	defer done()
	return placeOf(int(f.Fd()))
}

func placeOf(fd int) (at inode, isLost bool) {
	dev, number, err := mounts.DeviceOf(fd) // which asks no server
	return inode{unix.Mkdev(dev.Major, dev.Minor), number}, err != nil
}
