package procmap

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"hallmark/addr"
)

// ioctlQuery is PROCMAP_QUERY, _IOWR('f', 17, struct procmap_query).
const ioctlQuery = 0xc0686611

// Flags of a query, beside those of Perm which ask for VMAs that have all of
// these permissions (enum procmap_query_flags in include/uapi/linux/fs.h).
const (
	orNext     = 0x10 // the VMA at the address, or the first one above
	fileBacked = 0x20 // pass over VMAs without a file
)

// passes reports whether a query with these flags would find v.
func (v VMA) passes(flags uint64) bool {
	wanted := Perm(flags) & (Read | Write | Exec | Shared)
	return v.Perm&wanted == wanted && (flags&fileBacked == 0 || v.FileBacked())
}

// procmapQuery is struct procmap_query of include/uapi/linux/fs.h.
type procmapQuery struct {
	size        uint64
	flags       uint64
	addr        uint64
	vmaStart    uint64
	vmaEnd      uint64
	vmaFlags    uint64
	vmaPageSize uint64
	vmaOffset   uint64
	inode       uint64
	devMajor    uint32
	devMinor    uint32
	nameSize    uint32
	buildIDSize uint32
	nameAddr    uint64
	buildIDAddr uint64
}

const (
	shortName     = 256  // enough for nearly every path, and cheaper for the kernel than longName
	longName      = 4096 // PATH_MAX; the kernel uses no more
	kernelBuildID = 20   // BUILD_ID_SIZE_MAX in include/linux/buildid.h
)

// A querier asks the kernel about one process. The kernel writes into it, so it
// is never on a stack, which may move.
type querier struct {
	p       *Process
	query   procmapQuery
	name    [longName]byte
	buildID [kernelBuildID]byte
}

var queriers = sync.Pool{New: func() any { return new(querier) }}

// querier returns a querier for p, which must be released.
func (p *Process) querier() (*querier, error) {
	if err := p.maps.hold(); err != nil {
		return nil, err
	}
	q := queriers.Get().(*querier)
	q.p = p
	return q, nil
}

func (q *querier) release() {
	q.p.maps.release()
	q.p = nil
	queriers.Put(q)
}

// ask runs one query.
func (q *querier) ask(a addr.Abs, flags uint64, nameSize, buildIDSize uint32) syscall.Errno {
	q.query = procmapQuery{
		size: uint64(unsafe.Sizeof(q.query)), flags: flags, addr: uint64(a),
		nameSize: nameSize, buildIDSize: buildIDSize,
	}
	// The kernel wants both the address and the size of a buffer, or neither.
	if nameSize > 0 {
		q.query.nameAddr = uint64(uintptr(unsafe.Pointer(&q.name)))
	}
	if buildIDSize > 0 {
		q.query.buildIDAddr = uint64(uintptr(unsafe.Pointer(&q.buildID)))
	}
	for {
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(q.p.maps.fd), ioctlQuery, uintptr(unsafe.Pointer(&q.query)))
		runtime.KeepAlive(q)
		if errno != syscall.EINTR {
			return errno
		}
	}
}

// next returns the VMA that holds a or else the first one above, of those that
// pass flags.
func (q *querier) next(a addr.Abs, flags uint64) (VMA, bool, error) {
	errno := q.ask(a, flags|orNext, shortName, 0)
	if errno == syscall.ENAMETOOLONG {
		errno = q.ask(a, flags|orNext, longName, 0)
	}
	switch errno {
	case 0:
		return q.vma(), true, nil
	case syscall.ENOENT:
		return q.p.gateNext(q, a, flags)
	case syscall.ENAMETOOLONG:
		return q.nameless(a, flags)
	default:
		return VMA{}, false, queryError(errno)
	}
}

// nameless is next for a VMA whose name only the text has.
func (q *querier) nameless(a addr.Abs, flags uint64) (VMA, bool, error) {
	if errno := q.ask(a, flags|orNext, 0, 0); errno != 0 {
		return VMA{}, false, queryError(errno)
	}
	return q.p.textNextHeld(addr.Abs(q.query.vmaStart))
}

// exists reports whether a VMA ends above a.
func (q *querier) exists(a addr.Abs) (bool, error) {
	switch errno := q.ask(a, orNext, 0, 0); errno {
	case 0:
		return true, nil
	case syscall.ENOENT:
		return false, nil
	default:
		return false, queryError(errno)
	}
}

// buildIDOf returns the build ID of the file that v maps, nil if the kernel finds
// none, valid until the next query.
func (q *querier) buildIDOf(v VMA) ([]byte, error) {
	switch errno := q.ask(v.Start, 0, 0, kernelBuildID); errno {
	case 0:
	case syscall.ENOENT, syscall.ENAMETOOLONG:
		return nil, nil
	default:
		return nil, queryError(errno)
	}
	if now := q.vma(); now.Dev != v.Dev || now.Inode != v.Inode {
		return nil, nil
	}
	return q.buildID[:min(int(q.query.buildIDSize), kernelBuildID)], nil
}

func queryError(errno syscall.Errno) error { return os.NewSyscallError("PROCMAP_QUERY", errno) }

// vma returns the answer to a query that found something.
func (q *querier) vma() VMA {
	r := &q.query
	v := VMA{
		Start:  addr.Abs(r.vmaStart),
		End:    addr.Abs(r.vmaEnd),
		Perm:   Perm(r.vmaFlags) & (Read | Write | Exec | Shared),
		Offset: addr.Offset(r.vmaOffset),
		Dev:    Dev{r.devMajor, r.devMinor},
		Inode:  r.inode,
	}
	// The size counts the NUL.
	if n := min(int(r.nameSize), len(q.name)); n > 1 {
		v.Name = string(q.name[:n-1])
	}
	return v
}

// noQuery remembers that this kernel has no PROCMAP_QUERY. A probe without an
// answer leaves it alone.
var noQuery atomic.Bool

// probe reports whether p can be queried.
func (p *Process) probe() (ok bool, err error) {
	if noQuery.Load() {
		return false, nil
	}
	q, err := p.querier()
	if err != nil {
		return false, err
	}
	defer q.release()
	switch errno := q.ask(0, orNext, 0, 0); errno {
	case 0, syscall.ENOENT:
		return true, nil
	case syscall.ESRCH:
		return false, queryError(errno)
	case syscall.ENOTTY:
		noQuery.Store(true)
	}
	return false, nil
}

// queryNext returns the first VMA that ends above a.
func (p *Process) queryNext(a addr.Abs) (VMA, bool, error) {
	q, err := p.querier()
	if err != nil {
		return VMA{}, false, err
	}
	defer q.release()
	return q.next(a, 0)
}

// queryList returns all VMAs that pass flags.
func (p *Process) queryList(flags uint64, more func(VMA) bool) ([]VMA, error) {
	q, err := p.querier()
	if err != nil {
		return nil, err
	}
	defer q.release()
	var list []VMA
	names := names{}
	for a := addr.Abs(0); ; {
		v, ok, err := q.next(a, flags)
		if err != nil || !ok || v.End <= a {
			return list, err
		}
		v.Name = names.one(v.Name)
		if !more(v) {
			return nil, ErrStopped
		}
		list = appendNewer(list, v)
		a = v.End
	}
}
