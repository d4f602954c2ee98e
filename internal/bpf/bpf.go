// Package bpf has the programs that take samples inside the kernel, and turns what
// they say into values.
//
// A Sampler counts stacks whose user frames are a file and an offset in it. A
// serial number says which file. It stands for one content of one file, and an event
// introduces it. Another event may report the identity of the file.
// The programs are in C, in the directory c. The name of a function begins with its file:
// vma_find is in vma.h.
package bpf

//go:generate go tool -modfile=../../tools/go.mod bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -type count_key -type file_entry -type file_event -type validity -type identity -type id_event -type sample_counters -type work_counters -type unwind_table -type copy_event -type space_event -type stock_order -type stock_process -type stock_area -type stock_again -type stock_counters -type hook_counters -cflags "-O2 -Wall -Werror -mcpu=v3 -idirafter /usr/include/x86_64-linux-gnu" sampler c/sample.bpf.c
//go:generate go tool -modfile=../../tools/go.mod bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -type stackmap_counters -cflags "-O2 -Wall -Werror -mcpu=v3 -idirafter /usr/include/x86_64-linux-gnu" stackmap c/stackmap.bpf.c
//go:generate go tool -modfile=../../tools/go.mod bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -type comparison_counters -cflags "-O2 -Wall -Werror -mcpu=v3 -idirafter /usr/include/x86_64-linux-gnu" bench c/bench.bpf.c
//go:generate go tool -modfile=../../tools/go.mod bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -cflags "-O2 -Wall -Werror -mcpu=v3 -idirafter /usr/include/x86_64-linux-gnu" eviction c/evict.bpf.c
//go:generate go tool -modfile=../../tools/go.mod bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -cflags "-O2 -Wall -Werror -mcpu=v3 -idirafter /usr/include/x86_64-linux-gnu" follow c/follow.bpf.c
//go:generate go tool -modfile=../../tools/go.mod bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -cflags "-O2 -Wall -Werror -mcpu=v3 -idirafter /usr/include/x86_64-linux-gnu" census c/census.bpf.c
//go:generate go tool -modfile=../../tools/go.mod bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -type list_order -type listed_process -type listed_file -type listed_area -type listed_code -type listed_place -type listed_again -type validity -cflags "-O2 -Wall -Werror -mcpu=v3 -idirafter /usr/include/x86_64-linux-gnu" inventory c/list.bpf.c
//go:generate go tool -modfile=../../tools/go.mod bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -type exec_event -type exit_event -type ended_event -type exec_counters -cflags "-O2 -Wall -Werror -mcpu=v3 -idirafter /usr/include/x86_64-linux-gnu" exec c/exec.bpf.c

import (
	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/unwind"
)

// FrameKind says what a frame of a stack is.
type FrameKind uint32

// The kinds of frames: enum frame_kind of events/stack.h.
const (
	InFile     FrameKind = iota
	InKernel             // in the kernel
	NotMapped            // in no mapping
	Generated            // in executable memory without a file
	InVDSO               // in the code that the kernel maps into every process
	InVDSO32             // the same, of 32-bit processes
	NoEntry              // in a file for which the table had no room
	Unstable             // in a process whose mappings changed while they were read
	Written              // in a file that is being written, or just was
	NotCode              // in memory that is not executable
	Unread               // in a file whose times mean nothing, and that was not read since it was mapped
	frameKinds           // their number
)

// A Frame is one place in a stack. All but the innermost of the kernel and of the
// user are in a call instruction, not where it returns to.
type Frame struct {
	Kind   FrameKind
	Serial uint32        // of a file
	Method unwind.Method // how it was found, with Options.Unwind
	// At is an offset in a file or in the vdso, and an absolute address for all else.
	At uint64
}

// StackID is the number of a stack: a hash of its frames.
type StackID struct{ A, B uint64 }

// Validity distinguishes the contents of files. Two that have the same one are the
// same content of the same file, whatever it is called.
type Validity struct {
	Inode      uint64
	Size       uint64
	Mtime      Time
	Ctime      Time
	Dev        Dev
	Generation uint32
	Medium     uint64 // of what the file system is on: no two of one Dev have the same
	// Pinned is not 0 when the times do not show another change. Either they never do on
	// this file system, or not yet, because the file changed shortly before: see OfMapping. Or
	// it did, but is the program of a process, and so cannot change as long as the process is
	// there: then it names the process and its exec.
	Pinned uint64
}

// OfMapping reports whether the file is on a file system whose times do not show whether its
// content changed (package fstimes), or do not show it yet. Then a serial number is for one
// mapping of one process, and only the kernel, which reads the pages of that mapping, knows its
// identity.
func (v *Validity) OfMapping() bool { return v.Pinned != 0 && v.Pinned&1 == 0 }

// JustChanged reports whether that is so because the file had just changed, and not because of
// its file system.
func (v *Validity) JustChanged() bool { return v.OfMapping() && v.Pinned&YoungMapping != 0 }

// YoungMapping is the bit of Validity.Pinned for that (YOUNG_MAPPING in events/stack.h).
const YoungMapping = 8

// Time is a time stamp of a file.
type Time struct {
	Sec  int64
	Nsec uint32
}

// Dev is the device number of the file system itself, which on overlays and on
// btrfs is not the one that stat reports.
type Dev struct{ Major, Minor uint32 }

// A File introduces a serial number.
type File struct {
	Serial uint32
	Key    uint64 // of its entry in the table: see Sampler.Forget
	PID    uint32 // of a process that has it mapped
	Start  addr.Abs
	End    addr.Abs
	Offset addr.Offset // of Start in the file
	Path   string      // as the process sees it, if nothing is renamed meanwhile
	Validity
}

// Task is the thread that a stack was seen in, with its process.
type Task struct {
	PID, TID uint32
	Started  uint64 // of the process, ns, CLOCK_BOOTTIME
	Seen     uint64 // when, ns, CLOCK_MONOTONIC; 0 without Options.Times
	Cgroup   uint64 // in the hierarchy of version 2
	Process  string // name of the first thread
	Thread   string
}

// A Handler takes what the programs say.
type Handler interface {
	File(File)
	// Identity says what identity the file has, as the kernel read it from the
	// memory of a process.
	Identity(serial uint32, id buildid.ID)
	// Stack reports the frames of a stack, leaf first, those of the kernel before
	// those of the user, and how those of the user end.
	Stack(StackID, []Frame, unwind.End)
	// Copy hands over a sample that is to be finished: see Options.Unwind.
	Copy(*Copy)
	// Space reports the executable memory of a process, before a Copy that is of it.
	Space(*Space)
}
