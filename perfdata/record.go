// Package perfdata reads the records that the kernel's perf events write, out of a
// ring buffer (Decoder) and out of perf.data files and streams (Reader), and writes
// such records (Encoder) and files (Writer).
//
// A record is a value, one Go type a kind. The formats are those of
// include/uapi/linux/perf_event.h, enum perf_event_type, and for files those of
// tools/perf/Documentation/perf.data-file-format.txt and
// tools/lib/perf/include/perf/event.h of the kernel's sources. Nothing that a file
// or a record says about its own size is believed beyond the bytes at hand, and
// what is read takes a bounded amount of memory.
//
// For a damaged record a Decoder returns an error that names the damaged byte of the
// record. A Reader returns a Malformed with that error, and goes on behind the record.
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

// Error reports the kind of the record, where it is damaged and how.
func (e *FormatError) Error() string {
	return fmt.Sprintf("%v: %v record: %v", ErrFormat, e.Type, e.Err)
}

// Unwrap returns ErrFormat and the damage.
func (e *FormatError) Unwrap() []error { return []error{ErrFormat, e.Err} }

// Type is the kind of a record, PERF_RECORD_* of the kernel.
type Type uint32

// The kinds of records of the kernel.
const (
	TypeMmap              Type = 1
	TypeLost              Type = 2
	TypeComm              Type = 3
	TypeExit              Type = 4
	TypeThrottle          Type = 5
	TypeUnthrottle        Type = 6
	TypeFork              Type = 7
	TypeRead              Type = 8
	TypeSample            Type = 9
	TypeMmap2             Type = 10
	TypeAux               Type = 11
	TypeItraceStart       Type = 12
	TypeLostSample        Type = 13
	TypeSwitch            Type = 14
	TypeSwitchCPUWide     Type = 15
	TypeNamespaces        Type = 16
	TypeKsymbol           Type = 17
	TypeBPFEvent          Type = 18
	TypeCgroup            Type = 19
	TypeTextPoke          Type = 20
	TypeAuxOutputHWID     Type = 21
	TypeCallchainDeferred Type = 22
)

// The kinds of records that perf itself writes, enum perf_user_event_type of
// tools/lib/perf/include/perf/event.h.
const (
	TypeHeaderAttr        Type = 64
	TypeHeaderEventType   Type = 65
	TypeHeaderTracingData Type = 66
	TypeHeaderBuildID     Type = 67
	TypeFinishedRound     Type = 68
	TypeIDIndex           Type = 69
	TypeAuxtraceInfo      Type = 70
	TypeAuxtrace          Type = 71
	TypeAuxtraceError     Type = 72
	TypeThreadMap         Type = 73
	TypeCPUMap            Type = 74
	TypeStatConfig        Type = 75
	TypeStat              Type = 76
	TypeStatRound         Type = 77
	TypeEventUpdate       Type = 78
	TypeTimeConv          Type = 79
	TypeHeaderFeature     Type = 80
	TypeCompressed        Type = 81
	TypeFinishedInit      Type = 82
	TypeCompressed2       Type = 83
	TypeBPFMetadata       Type = 84

	firstUserType = 64
)

var typeNames = map[Type]string{
	TypeMmap: "MMAP", TypeLost: "LOST", TypeComm: "COMM", TypeExit: "EXIT", TypeThrottle: "THROTTLE",
	TypeUnthrottle: "UNTHROTTLE", TypeFork: "FORK", TypeRead: "READ", TypeSample: "SAMPLE", TypeMmap2: "MMAP2",
	TypeAux: "AUX", TypeItraceStart: "ITRACE_START", TypeLostSample: "LOST_SAMPLES", TypeSwitch: "SWITCH",
	TypeSwitchCPUWide: "SWITCH_CPU_WIDE", TypeNamespaces: "NAMESPACES", TypeKsymbol: "KSYMBOL",
	TypeBPFEvent: "BPF_EVENT", TypeCgroup: "CGROUP", TypeTextPoke: "TEXT_POKE", TypeAuxOutputHWID: "AUX_OUTPUT_HW_ID",
	TypeCallchainDeferred: "CALLCHAIN_DEFERRED",

	TypeHeaderAttr: "HEADER_ATTR", TypeHeaderEventType: "HEADER_EVENT_TYPE", TypeHeaderTracingData: "HEADER_TRACING_DATA",
	TypeHeaderBuildID: "HEADER_BUILD_ID", TypeFinishedRound: "FINISHED_ROUND", TypeIDIndex: "ID_INDEX",
	TypeAuxtraceInfo: "AUXTRACE_INFO", TypeAuxtrace: "AUXTRACE", TypeAuxtraceError: "AUXTRACE_ERROR",
	TypeThreadMap: "THREAD_MAP", TypeCPUMap: "CPU_MAP", TypeStatConfig: "STAT_CONFIG", TypeStat: "STAT",
	TypeStatRound: "STAT_ROUND", TypeEventUpdate: "EVENT_UPDATE", TypeTimeConv: "TIME_CONV",
	TypeHeaderFeature: "HEADER_FEATURE", TypeCompressed: "COMPRESSED", TypeFinishedInit: "FINISHED_INIT",
	TypeCompressed2: "COMPRESSED2", TypeBPFMetadata: "BPF_METADATA",
}

// String returns the kernel's or perf's name of the kind.
func (t Type) String() string {
	if name, ok := typeNames[t]; ok {
		return name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// HeaderSize is the size of struct perf_event_header, with which every record starts.
const HeaderSize = 8

// Bits of perf_event_header.misc.
const (
	miscMmapData    = 1 << 13 // MMAP: not executable
	miscCommExec    = 1 << 13 // COMM: the name changed by execve
	miscSwitchOut   = 1 << 13 // SWITCH, SWITCH_CPU_WIDE
	miscMmapBuildID = 1 << 14 // MMAP2: a build ID instead of device and inode
	miscBuildIDSize = 1 << 15 // HEADER_BUILD_ID: its size is given
)

// A Record is a pointer to one of the types of this package that are named for a
// kind of records, Unknown or Malformed.
type Record interface{ record() }

// ID is what every record says of its origin when the event asked for
// sample_id_all: the running task, the time, the event and the CPU.
type ID struct {
	PID, TID uint32 // of the task that ran; PID is the thread group's
	Time     uint64 // ns of the event's clock
	Event    uint64 // number of the event, or of the one that it was inherited from
	Stream   uint64 // number of the event itself
	CPU      uint32
	// Misc is perf_event_header.misc: what the processor was doing (Mode), and bits
	// that other fields were decoded from.
	Misc uint16
}

// Markers in a call chain, PERF_CONTEXT_* of the kernel: what follows was taken in that context.
const (
	ContextHypervisor  = ^uint64(32) + 1
	ContextKernel      = ^uint64(128) + 1
	ContextUser        = ^uint64(512) + 1
	ContextGuest       = ^uint64(2048) + 1
	ContextGuestKernel = ^uint64(2176) + 1
	ContextGuestUser   = ^uint64(2560) + 1
	// ContextMax is the smallest number that is a marker and not an address.
	ContextMax = ^uint64(4095) + 1
)

// Mmap2 is a mapping that came to be (PERF_RECORD_MMAP2; PERF_RECORD_MMAP has
// neither build ID nor inode).
type Mmap2 struct {
	ID
	Type    Type   // TypeMmap2 or TypeMmap
	Owner   uint32 // the process (thread group) that has the mapping
	Thread  uint32 // that made it
	Start   addr.Abs
	Size    uint64      // bytes
	Offset  addr.Offset // of Start in the file
	Prot    uint32      // PROT_* of mmap(2)
	Flags   uint32      // MAP_* of mmap(2)
	Name    string      // path, "[vdso]", "//anon" …
	BuildID []byte      // nil when the kernel gave none
	// The file, where there is no build ID. A record has room for one of both.
	Major uint32
	Minor uint32
	Inode uint64
	// Generation distinguishes the files that had the same inode number in turn.
	Generation uint64
}

// Comm is a task that got a name (PERF_RECORD_COMM).
type Comm struct {
	ID
	OwnerPID, OwnerTID uint32
	Name               string
	Exec               bool // by execve: the old address space is gone
}

const (
	// NoTask is the kernel's number of a task that has none any more, and perf's of the kernel.
	NoTask = ^uint32(0)
	// Idle is the number of the tasks that run when no other does, and in a PID namespace of every
	// process outside of it: a record of one of them says nothing of the others.
	Idle = 0
	// ProtExec is PROT_EXEC of mmap(2), in Mmap2.Prot.
	ProtExec = 4
)

// Task is a task that was created or ended (PERF_RECORD_FORK, PERF_RECORD_EXIT).
type Task struct {
	ID
	Exited               bool
	ChildPID, ChildTID   uint32
	ParentPID, ParentTID uint32
	At                   uint64 // ns
}

// Lost counts records that found no room in the ring buffer (PERF_RECORD_LOST,
// PERF_RECORD_LOST_SAMPLES).
type Lost struct {
	ID
	Type  Type   // TypeLost or TypeLostSample
	Of    uint64 // number of the event, with TypeLost
	Count uint64
}

// Throttle says that the kernel held back an event that fired too often, or
// let it go on (PERF_RECORD_THROTTLE, PERF_RECORD_UNTHROTTLE).
type Throttle struct {
	ID
	Ended bool
	At    uint64 // ns
	Of    uint64 // number of the event
	From  uint64 // number of the event that it was inherited from
}

// Ksymbol is kernel code that came or went (PERF_RECORD_KSYMBOL): a BPF
// program, a trampoline.
type Ksymbol struct {
	ID
	Addr         addr.Abs
	Size         uint32 // bytes
	Kind         uint16 // PERF_RECORD_KSYMBOL_TYPE_*
	Flags        uint16
	Unregistered bool // one of the flags
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
	Misc uint16
	Data []byte // without the header; valid until the next Decode
}

// Malformed is a record that is damaged, or of an event that the file does not report.
type Malformed struct {
	Type Type
	Misc uint16
	Data []byte // without the header
	Err  error
}

func (*Sample) record()    {}
func (*Mmap2) record()     {}
func (*Comm) record()      {}
func (*Task) record()      {}
func (*Lost) record()      {}
func (*Throttle) record()  {}
func (*Ksymbol) record()   {}
func (*Cgroup) record()    {}
func (*Unknown) record()   {}
func (*Malformed) record() {}
