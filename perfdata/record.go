// Package perfdata reads the records that the kernel's perf events write: into
// a ring buffer, and from there into perf.data files.
//
// A record is a value, one Go type a kind. The formats are those of
// include/uapi/linux/perf_event.h, enum perf_event_type. A malformed record is
// an error that says at which byte of the record the damage is; nothing that a
// record says about its own size is believed beyond the bytes at hand.
package perfdata

import (
	"errors"
	"fmt"

	"hallmark/addr"
)

// ErrFormat is what errors about malformed records wrap.
var ErrFormat = errors.New("malformed perf record")

// A FormatError is a malformed record.
type FormatError struct {
	Type Type
	Err  error // says at which byte of the record, and what
}

// Error tells the kind of the record, where it is damaged and how.
func (e *FormatError) Error() string {
	return fmt.Sprintf("%v: %v record: %v", ErrFormat, e.Type, e.Err)
}

// Unwrap returns ErrFormat and the damage.
func (e *FormatError) Unwrap() []error { return []error{ErrFormat, e.Err} }

// Type is the kind of a record, PERF_RECORD_* of the kernel.
type Type uint32

// The kinds of records that are decoded. Others are delivered as Unknown.
const (
	TypeMmap       Type = 1
	TypeLost       Type = 2
	TypeComm       Type = 3
	TypeExit       Type = 4
	TypeThrottle   Type = 5
	TypeUnthrottle Type = 6
	TypeFork       Type = 7
	TypeSample     Type = 9
	TypeMmap2      Type = 10
	TypeLostSample Type = 13
	TypeKsymbol    Type = 17
	TypeCgroup     Type = 19
)

// String returns the kernel's name of the kind.
func (t Type) String() string {
	switch t {
	case TypeMmap:
		return "MMAP"
	case TypeLost:
		return "LOST"
	case TypeComm:
		return "COMM"
	case TypeExit:
		return "EXIT"
	case TypeThrottle:
		return "THROTTLE"
	case TypeUnthrottle:
		return "UNTHROTTLE"
	case TypeFork:
		return "FORK"
	case TypeSample:
		return "SAMPLE"
	case TypeMmap2:
		return "MMAP2"
	case TypeLostSample:
		return "LOST_SAMPLES"
	case TypeKsymbol:
		return "KSYMBOL"
	case TypeCgroup:
		return "CGROUP"
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// HeaderSize is the size of struct perf_event_header, with which every record starts.
const HeaderSize = 8

// Bits of perf_event_header.misc.
const (
	miscCommExec    = 1 << 13 // COMM: the name changed by execve
	miscMmapBuildID = 1 << 14 // MMAP2: a build ID instead of device and inode
)

// A Record is one of *Sample, *Mmap2, *Comm, *Task, *Lost, *Throttle,
// *Ksymbol, *Cgroup and *Unknown.
type Record interface{ record() }

// ID is what every record says of its origin when the event asked for
// sample_id_all: the running task, the time, the event and the CPU.
type ID struct {
	PID, TID uint32 // of the task that ran; PID is the thread group's
	Time     uint64 // ns of the event's clock
	Event    uint64 // number of the event, or of the one that it was inherited from
	Stream   uint64 // number of the event itself
	CPU      uint32
}

// Markers in a call chain, PERF_CONTEXT_* of the kernel: what follows was taken in that context.
const (
	ContextHypervisor = ^uint64(32) + 1
	ContextKernel     = ^uint64(128) + 1
	ContextUser       = ^uint64(512) + 1
	// ContextMax is the smallest number that is a marker and not an address.
	ContextMax = ^uint64(4095) + 1
)

// Mmap2 is a mapping that came to be (PERF_RECORD_MMAP2; PERF_RECORD_MMAP has
// neither build ID nor inode).
type Mmap2 struct {
	ID
	Owner   uint32 // the process (thread group) that has the mapping
	Start   addr.Abs
	Size    uint64      // bytes
	Offset  addr.Offset // of Start in the file
	Prot    uint32      // PROT_* of mmap(2)
	Flags   uint32      // MAP_* of mmap(2)
	Name    string      // path, "[vdso]", "//anon" …
	BuildID []byte      // nil when the kernel gave none; then the file is:
	Major   uint32
	Minor   uint32
	Inode   uint64
	// Generation tells apart the files that had the same inode number in turn.
	Generation uint64
}

// Comm is a task that got a name (PERF_RECORD_COMM).
type Comm struct {
	ID
	OwnerPID, OwnerTID uint32
	Name               string
	Exec               bool // by execve: the old address space is gone
}

// Task is a task that was created or ended (PERF_RECORD_FORK, PERF_RECORD_EXIT).
type Task struct {
	ID
	Exited               bool
	ChildPID, ChildTID   uint32
	ParentPID, ParentTID uint32
}

// Lost counts records that found no room in the ring buffer (PERF_RECORD_LOST,
// PERF_RECORD_LOST_SAMPLES).
type Lost struct {
	ID
	Count uint64
}

// Throttle tells that the kernel held back an event that fired too often, or
// let it go on (PERF_RECORD_THROTTLE, PERF_RECORD_UNTHROTTLE).
type Throttle struct {
	ID
	Ended bool
}

// Ksymbol is kernel code that came or went (PERF_RECORD_KSYMBOL): a BPF
// program, a trampoline.
type Ksymbol struct {
	ID
	Addr         addr.Abs
	Size         uint32 // bytes
	Unregistered bool
	Name         string
}

// Cgroup names a cgroup (PERF_RECORD_CGROUP).
type Cgroup struct {
	ID
	Cgroup uint64 // inode number, as in Sample
	Path   string // below the mount point of cgroup v2
}

// Unknown is a record of a kind that is not decoded.
type Unknown struct {
	Type Type
	Data []byte // without the header; valid until the next Decode
}

func (*Sample) record()   {}
func (*Mmap2) record()    {}
func (*Comm) record()     {}
func (*Task) record()     {}
func (*Lost) record()     {}
func (*Throttle) record() {}
func (*Ksymbol) record()  {}
func (*Cgroup) record()   {}
func (*Unknown) record()  {}
