package procmap

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"hallmark/addr"
	"hallmark/internal/mounts"
	"hallmark/internal/regular"
	"hallmark/reason"
)

// A File is the file behind a VMA, open for reading.
type File struct {
	*os.File
	Door Door // how it was reached
}

// OpenFile opens the file that v maps, through whichever door there is. Nothing
// but that very file is returned. The error is the reason.Reason why there is none, or an
// Error where p could not be asked. A file of a file system that may not answer
// (FUSE, a network) is not opened, because that may take for ever: see Open.
//
// These facts prove that a file is the mapped one: its device and inode are
// those of the VMA, as fstat returns them or, since file systems with layers or
// subvolumes (overlayfs, btrfs) show fstat another device, as the kernel shows
// them for a mapping of the file made here. The VMA is looked up again
// afterwards: as long as it exists its inode number cannot have been given to
// another file. On overlayfs, where writing to a file puts a new one in the same
// place, the memory of the process must agree with the file as well.
func (p *Process) OpenFile(v VMA) (*File, error) {
	f, why, err := p.openFile(v)
	switch {
	case err != nil:
		return nil, p.wrap(err)
	case f == nil:
		return nil, why
	}
	return f, nil
}

func (p *Process) openFile(v VMA) (*File, reason.Reason, error) {
	if !v.FileBacked() {
		return nil, v.withoutFile(), nil
	}
	if p.isForeign(v) {
		return nil, reason.FileUnresponsive, nil
	}
	why := reason.FileGone
	for _, d := range doors {
		f, miss, err := p.try(d.open, v)
		switch {
		case err != nil:
			return nil, reason.None, err
		case f != nil:
			return &File{f, d.door}, reason.None, nil
		case miss == reason.NotAFile, miss == reason.FileUnresponsive:
			return nil, miss, nil
		case d.door == DoorRoot:
			why = miss // where the process itself would look
		}
	}
	return nil, why, p.maps.alive()
}

// withoutFile returns why v has no file.
func (v VMA) withoutFile() reason.Reason {
	switch v.Kind() {
	case KindVsyscall:
		return reason.Vsyscall
	case KindVDSO, KindVVAR, KindSpecial:
		return reason.NotAFile
	default:
		return reason.Anonymous
	}
}

// An opener returns a descriptor (O_PATH) of what may be the file of v.
type opener func(p *Process, v VMA) (fd int, err error)

// doors are the ways to a file, the surest first.
var doors = []struct {
	door Door
	open opener
}{
	{DoorMapFiles, openMapFile},
	{DoorRoot, openInRoot},
	{DoorPath, openHere},
	{DoorExe, openExe},
}

// oPath opens a place in the file system and nothing behind it, so that a device does not
// notice.
const oPath = regular.OPath

func openMapFile(p *Process, v VMA) (int, error) {
	return mounts.OpenMapFile(filepath.Base(p.dir), uint64(v.Start), uint64(v.End))
}

func openExe(p *Process, v VMA) (int, error) {
	fd, err := openPath(p.dir+"/exe", oPath)
	if err != nil {
		return -1, err
	}
	if name, err := os.Readlink(descriptor(fd)); err != nil || name != v.Name {
		syscall.Close(fd)
		return -1, syscall.ENOENT
	}
	return fd, nil
}

// descriptor returns the path that leads to what fd has open.
func descriptor(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

func openHere(_ *Process, v VMA) (int, error) {
	return v.firstPath(mounts.OpenHere)
}

func openInRoot(p *Process, v VMA) (int, error) {
	root, err := openPath(p.dir+"/root", oPath|syscall.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	defer syscall.Close(root)
	return v.firstPath(func(path string) (int, error) { return p.view().Open(root, path) })
}

// PathOf returns the path of the file that v maps, as [VMA.Path] does. Where the file's own name ends in
// " (deleted)", and it is still there for the process under that name, the path has this name. It is "" where
// there is no path.
func (p *Process) PathOf(v VMA) string {
	if v.Path() != "" && v.Deleted() && p.isNamed(v) {
		return v.Name
	}
	return v.Path()
}

// isNamed reports whether the file that v maps is at its whole name.
func (p *Process) isNamed(v VMA) bool {
	root, err := openPath(p.dir+"/root", oPath|syscall.O_DIRECTORY)
	if err != nil {
		return false
	}
	defer syscall.Close(root)
	named, err := p.view().Open(root, v.Name)
	if err != nil {
		return false
	}
	defer syscall.Close(named)
	var at, mapped syscall.Stat_t
	if !p.view().AnswersFD(named) || syscall.Fstat(named, &at) != nil {
		return false
	}
	if v.is(&at) {
		return true
	}
	fd, err := openMapFile(p, v) // overlays show other numbers for mappings
	if err != nil {
		return false
	}
	defer syscall.Close(fd)
	return p.view().AnswersFD(fd) && syscall.Fstat(fd, &mapped) == nil && mapped.Dev == at.Dev && mapped.Ino == at.Ino
}

// firstPath opens the path of v, and for a deleted file, if nothing has the name
// with the note, what is in its place now: it distinguishes a replaced file from one that
// is only gone.
func (v VMA) firstPath(open func(string) (int, error)) (int, error) {
	if v.Path() == "" {
		return -1, syscall.ENOENT
	}
	fd, err := open(v.Name)
	if err == syscall.ENOENT && v.Deleted() {
		fd, err = open(v.Path())
	}
	return fd, err
}

// try opens one door and returns the file if it is proven to be that of v, else
// why not.
func (p *Process) try(open opener, v VMA) (*os.File, reason.Reason, error) {
	fd, err := open(p, v)
	if err != nil {
		return missed(err)
	}
	defer syscall.Close(fd)
	if !p.view().AnswersFD(fd) {
		return nil, reason.FileUnresponsive, nil
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return missed(err)
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		if v.is(&st) {
			return nil, reason.NotAFile, nil
		}
		return nil, reason.FileChanged, nil
	}
	f, err := regular.Reopen(fd, v.Name)
	if err != nil {
		return missed(err)
	}
	why, err := p.prove(f, &st, v)
	if err != nil || why != reason.None {
		f.Close()
		return nil, why, err
	}
	return f, reason.None, nil
}

// missed distinguishes a file that cannot be had from a machine that is out of files.
func missed(err error) (*os.File, reason.Reason, error) {
	switch {
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM):
		return nil, reason.None, err
	case errors.Is(err, os.ErrPermission):
		return nil, reason.NotPermitted, nil
	case errors.Is(err, mounts.ErrForeign), errors.Is(err, syscall.EAGAIN): // somebody has a lease on it
		return nil, reason.FileUnresponsive, nil
	default:
		return nil, reason.FileGone, nil
	}
}

// prove returns reason.None if f is the file that v maps.
func (p *Process) prove(f *os.File, st *syscall.Stat_t, v VMA) (reason.Reason, error) {
	if !v.is(st) && !v.isShownFor(f) {
		return reason.FileChanged, nil
	}
	if onOverlay(f) {
		if why, err := p.compare(f, v); why != reason.None || err != nil {
			return why, err
		}
	}
	now, ok, err := p.find(v.Start)
	switch {
	case err != nil:
		return reason.None, err
	case !ok:
		return reason.NotMapped, nil
	case !now.sameFile(v) || now.FileOffset(v.Start) != v.Offset:
		return reason.FileChanged, nil
	default:
		return reason.None, nil
	}
}

// is reports whether fstat reports the device and the inode of v.
func (v VMA) is(st *syscall.Stat_t) bool {
	return v.Dev == splitDev(uint64(st.Dev)) && v.Inode == st.Ino
}

// splitDev takes a device number apart (new_decode_dev in include/linux/kdev_t.h
// and the C library's 64-bit form agree on these bits).
func splitDev(dev uint64) Dev {
	return Dev{
		Major: uint32(dev>>8&0xfff | dev>>32&^0xfff),
		Minor: uint32(dev&0xff | dev>>12&^0xff),
	}
}

// isShownFor reports whether the kernel shows the device and the inode of v for a
// mapping of f as well.
func (v VMA) isShownFor(f *os.File) bool {
	// The memory is not touched: the file may be empty.
	m, err := syscall.Mmap(int(f.Fd()), 0, os.Getpagesize(), syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		return false
	}
	defer syscall.Munmap(m)
	self, err := openProcess("self", Options{})
	if err != nil {
		return false
	}
	defer self.Close()
	mine, ok, err := self.find(addr.Abs(uintptr(unsafe.Pointer(unsafe.SliceData(m)))))
	runtime.KeepAlive(f)
	return ok && err == nil && mine.Dev == v.Dev && mine.Inode == v.Inode
}

// onOverlay reports whether f is on overlayfs, or may be.
func onOverlay(f *os.File) bool {
	const magic = 0x794c7630 // OVERLAYFS_SUPER_MAGIC in include/uapi/linux/magic.h
	var st syscall.Statfs_t
	err := syscall.Fstatfs(int(f.Fd()), &st)
	return err != nil || uint32(st.Type) == magic
}

// compare checks f against the memory of p: the first page of v and the page with
// the file's header, as far as the process cannot write there.
func (p *Process) compare(f *os.File, v VMA) (reason.Reason, error) {
	mem, err := p.readMemory()
	if err != nil {
		_, why, err := missed(err)
		return why, err
	}
	defer mem.Close()
	pages := []VMA{v}
	h, ok, err := p.header(v)
	if err != nil {
		return reason.None, err
	}
	if ok {
		pages = append(pages, h)
	}
	why := reason.FileChanged
	for _, w := range pages {
		if w.Perm&Write != 0 {
			continue
		}
		if !samePage(mem, w, f) {
			return reason.FileChanged, nil
		}
		why = reason.None
	}
	return why, nil
}

// samePage reports whether the first page of v is in memory as it is in the file.
func samePage(mem io.ReaderAt, v VMA, f *os.File) bool {
	var have, want [4096]byte
	n, _ := f.ReadAt(want[:], int64(v.Offset))
	if n == 0 {
		return false
	}
	_, err := mem.ReadAt(have[:n], int64(v.Start))
	return err == nil && have == want
}

// header returns the VMA that maps the start of the file of v, the nearest one at
// or below v.
func (p *Process) header(v VMA) (VMA, bool, error) {
	starts := func(w VMA) bool { return w.Offset == 0 && w.sameFile(v) && w.Start <= v.Start }
	// Most linkers lay a file out in memory as it is on disk.
	if v.Start >= addr.Abs(v.Offset) {
		w, ok, err := p.find(v.Start - addr.Abs(v.Offset))
		if err != nil || ok && starts(w) {
			return w, ok, err
		}
	}
	list, err := p.list(0)
	if err != nil {
		return VMA{}, false, err
	}
	for i := len(list) - 1; i >= 0; i-- {
		if starts(list[i]) {
			return list[i], true, nil
		}
	}
	return VMA{}, false, nil
}
