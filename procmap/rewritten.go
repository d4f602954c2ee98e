package procmap

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"hallmark/addr"
)

// Pages is a range of whole pages of a process: the addresses Start <= a < End.
type Pages struct{ Start, End addr.Abs }

// Contains reports whether the range holds the address a.
func (r Pages) Contains(a addr.Abs) bool { return r.Start <= a && a < r.End }

// Count returns how many pages the range has.
func (r Pages) Count() int { return int(r.End-r.Start) / os.Getpagesize() }

// OwnPages are pages of a VMA that are the process's own: the VMA maps a file privately, and the
// kernel gave the process pages in place of the file's when it wrote to them (copy on write). A
// debugger's breakpoint makes such a page as well. So does a write to a page of the vdso. Not every
// kernel calls the pages of a DAX file system the file's; they count as well.
//
// There are at most maxOwn ranges; the last one goes on to the end of the VMA if there are more.
type OwnPages struct {
	VMA   VMA
	Pages []Pages
}

// marksVDSO reports whether pagemap marks pages of the vdso, which the kernel maps into each process, as
// the kernel's: this process has rewritten none, so it may have none of its own.
var marksVDSO = sync.OnceValue(func() bool {
	p, err := Open(os.Getpid())
	if err != nil {
		return false
	}
	defer p.Close()
	vmas, err := p.Code()
	i := slices.IndexFunc(vmas, func(v VMA) bool { return v.Kind() == KindVDSO })
	if err != nil || i < 0 {
		return false
	}
	f, err := p.pagemap()
	if err != nil {
		return false
	}
	defer f.Close()
	own, err := ownPages(f, vmas[i])
	return err == nil && len(own) == 0
})

// Own returns the pages of p's own in these VMAs, but for VMAs without any. After an error it
// returns those before it. A VMA that is not there any more may have none, or those of what came
// in its place.
//
// The kernel reads no page for it and asks no file system. It does take the lock of the process's
// mappings: see package capture for how to bound that.
func (p *Process) Own(vmas []VMA) ([]OwnPages, error) {
	f, err := p.pagemap()
	if err != nil {
		return nil, p.wrap(err)
	}
	defer f.Close()
	var all []OwnPages
	for _, v := range vmas {
		if v.Perm&Shared != 0 || !v.FileBacked() && !(v.Kind() == KindVDSO && marksVDSO()) {
			continue
		}
		pages, err := ownPages(f, v)
		if err != nil {
			return all, p.wrap(err)
		}
		if len(pages) > 0 {
			all = append(all, OwnPages{v, pages})
		}
	}
	return all, p.wrap(p.maps.alive())
}

// Rewritten returns the pages of v that the process has rewritten in its memory: its own but for
// those that have the bytes of the file, or have them again. Pages that are not known to have them
// are returned too: those beyond the first maxCompared of p, all of a v with more ranges than
// OwnPages lists, of a file that is not on a disk of this machine, and of a v that changed meanwhile.
//
// All pages of a v that has an Origin are the process's own. They are compared with the file of the
// origin, up to 256 MiB of p.
func (p *Process) Rewritten(v VMA) ([]Pages, error) {
	if _, ok, err := p.origin(v); err != nil {
		return nil, p.wrap(err)
	} else if ok {
		return p.notCopied(v)
	}
	own, err := p.Own([]VMA{v})
	if len(own) == 0 || err != nil {
		return nil, err
	}
	return p.Unlike(own[0])
}

// Unlike returns the pages among a VMA's own that are not known to have the bytes of the file: see
// Rewritten. It may wait for a file system, and for the memory of the process.
func (p *Process) Unlike(own OwnPages) ([]Pages, error) {
	v, found := own.VMA, own.Pages
	if len(found) == 0 {
		return nil, nil
	}
	if found[len(found)-1].End < v.End || len(found) < maxOwn {
		found = p.unlike(v, found)
	}
	now, ok, err := p.find(v.Start)
	if err != nil {
		return nil, p.wrap(err)
	}
	if !ok || now.Offset != v.Offset || !now.sameFile(v) || now.Start != v.Start {
		return own.Pages, nil // the process has moved them, while they were compared
	}
	return found, nil
}

// maxCompared bounds the pages of a process that are compared with their files: 16 MiB of 4 KiB.
const maxCompared = 4096

// unlike returns the pages that have not the bytes of the file, or are not known to have them.
func (p *Process) unlike(v VMA, own []Pages) []Pages {
	if p.compared.Load() >= maxCompared {
		return own
	}
	file, err := p.OpenFile(v)
	if err != nil {
		return own
	}
	defer file.Close()
	if onOverlay(file.File) {
		return own // what is opened may be of another layer than what is mapped, with other bytes
	}
	mem, err := p.ReadMemory()
	if err != nil {
		return own
	}
	defer mem.Close()
	page := addr.Abs(os.Getpagesize())
	var found pageList
	for _, r := range own {
		end := r.Start + page*addr.Abs(granted(&p.compared, maxCompared, int64(r.Count())))
		found.differing(mem, file, Pages{r.Start, end}, v.FileOffset(r.Start))
		if end < r.End {
			found.add(Pages{end, r.End})
		}
	}
	return found
}

// granted takes up to n of what is left of most, and returns how many.
func granted(taken *atomic.Int64, most, n int64) int64 {
	before := taken.Add(n) - n
	return max(0, min(n, most-before))
}

// comparedAtOnce is how many pages are read together: a helper may have to read them.
const comparedAtOnce = 64

// differing adds the pages of a range that are not known to have the bytes of a file from an
// offset on.
func (l *pageList) differing(mem, file io.ReaderAt, r Pages, offset addr.Offset) {
	page := addr.Abs(os.Getpagesize())
	for at := r.Start; at < r.End; {
		end := min(r.End, at+comparedAtOnce*page)
		if sameBytes(mem, int64(at), file, int64(offset), int(end-at)) {
			offset += addr.Offset(end - at)
			at = end
			continue
		}
		for ; at < end; at, offset = at+page, offset+addr.Offset(page) {
			if !sameBytes(mem, int64(at), file, int64(offset), int(page)) {
				l.add(Pages{at, at + page})
			}
		}
	}
}

// sameBytes reports whether whole pages of memory are those of a file. Bytes behind the end of the
// file is 0 in its last page.
func sameBytes(mem io.ReaderAt, at int64, file io.ReaderAt, offset int64, size int) bool {
	have, want := make([]byte, size), make([]byte, size)
	n, _ := mem.ReadAt(have, at)
	m, err := file.ReadAt(want, offset)
	return n == size && m > size-os.Getpagesize() && (err == nil || err == io.EOF) && bytes.Equal(have, want)
}

// maxOwn bounds the ranges of one VMA.
const maxOwn = 256

// ownPages returns the pages of v that are the process's own, whose pagemap f is.
func ownPages(f *os.File, v VMA) ([]Pages, error) {
	found, err := scanPages(f, v)
	if errors.Is(err, syscall.ENOTTY) || errors.Is(err, syscall.EINVAL) {
		found, err = readPages(f, v)
	}
	return found, err
}

// pagemap opens the file that reports each page of p where it is from.
func (p *Process) pagemap() (*os.File, error) {
	f, err := os.Open(p.dir + "/pagemap")
	if errors.Is(err, os.ErrNotExist) {
		// The process is gone, or the kernel was built without CONFIG_PROC_PAGE_MONITOR.
		return nil, cmp.Or(p.maps.alive(), fmt.Errorf("/proc/PID/pagemap: %w", errors.ErrUnsupported))
	}
	if err != nil {
		return nil, err
	}
	// It may be that of another program by now, or of another process.
	if err := p.maps.alive(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// ioctlScan is PAGEMAP_SCAN, _IOWR('f', 16, struct pm_scan_arg). Linux has it since 6.7.
const ioctlScan = 0xc0606610

// Categories of pages (PAGE_IS_ in include/uapi/linux/fs.h).
const (
	pageFile    = 1 << 2
	pagePresent = 1 << 3
	pageSwapped = 1 << 4
)

// scanArg is struct pm_scan_arg of include/uapi/linux/fs.h.
type scanArg struct {
	size, flags         uint64
	start, end, walkEnd uint64
	vec, vecLen         uint64
	maxPages            uint64
	inverted, mask      uint64
	anyOf, returned     uint64
}

// pageRegion is struct page_region of include/uapi/linux/fs.h.
//
//lint:ignore U1000 the kernel writes categories
type pageRegion struct{ start, end, categories uint64 }

// pageScan is a question to the kernel. It is never on a stack, which may move.
type pageScan struct {
	arg     scanArg
	regions [maxOwn]pageRegion
}

var pageScans = sync.Pool{New: func() any { return new(pageScan) }}

// scanPages asks the kernel for the pages of v that are there and not the file's, all at once.
func scanPages(f *os.File, v VMA) ([]Pages, error) {
	s := pageScans.Get().(*pageScan)
	defer pageScans.Put(s)
	s.arg = scanArg{
		size: uint64(unsafe.Sizeof(s.arg)), start: uint64(v.Start), end: uint64(v.End),
		vec: uint64(uintptr(unsafe.Pointer(&s.regions))), vecLen: maxOwn,
		inverted: pageFile, mask: pageFile, anyOf: pagePresent | pageSwapped, returned: pageFile,
	}
	n, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), ioctlScan, uintptr(unsafe.Pointer(&s.arg)))
	runtime.KeepAlive(s)
	if errno != 0 {
		return nil, errno
	}
	var found pageList
	for _, r := range s.regions[:n] {
		found.add(Pages{addr.Abs(r.start), addr.Abs(r.end)})
	}
	if s.arg.walkEnd < s.arg.end {
		found.rest(v.End)
	}
	return found, nil
}

// readPages is scanPages for kernels that cannot: it reads what the kernel says of each page.
func readPages(f *os.File, v VMA) ([]Pages, error) {
	page := addr.Abs(os.Getpagesize())
	var found pageList
	buf := make([]byte, 8*4096)
	for at := v.Start; at < v.End; {
		want := buf[:8*min(4096, uint64(v.End-at)/uint64(page))]
		n, err := f.ReadAt(want, int64(at/page)*8)
		if n < 8 {
			return found, err
		}
		for entry := want[:n&^7]; len(entry) > 0; entry, at = entry[8:], at+page {
			if !isRewritten(binary.NativeEndian.Uint64(entry)) {
				continue
			}
			if found.add(Pages{at, at + page}); len(found) > maxOwn {
				found.rest(v.End)
				return found, nil
			}
		}
	}
	return found, nil
}

// isRewritten reports whether an entry of pagemap is of a page that is there, in memory (bit 63)
// or swapped out (62), and is not the file's (61): Documentation/admin-guide/mm/pagemap.rst.
func isRewritten(entry uint64) bool { return entry>>62 != 0 && entry>>61&1 == 0 }

// pageList is ranges of pages in the order of their addresses.
type pageList []Pages

// add adds a range, to the last one if it ends there.
func (l *pageList) add(r Pages) {
	if last := len(*l) - 1; last >= 0 && (*l)[last].End == r.Start {
		(*l)[last].End = r.End
		return
	}
	*l = append(*l, r)
}

// rest has the last range go on to an address: what is beyond was not looked at.
func (l *pageList) rest(end addr.Abs) {
	if last := len(*l) - 1; last >= 0 {
		(*l)[last].End = end
	}
}
