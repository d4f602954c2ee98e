package bpf

import (
	"bytes"
	"fmt"
	"unsafe"

	"hallmark/buildid"
)

// Kinds of events: enum exec_event_kind of events/exec.h.
const (
	execEvent = iota + 32
	exitEvent
	endedEvent
)

// An ExecHandler takes what the programs of an ExecWatcher say. What pointers lead to is
// another event's when it returns.
type ExecHandler interface {
	File(File)
	// Identity says what identity a file has, as the kernel read it from the memory of a
	// process.
	Identity(serial uint32, id buildid.ID)
	// Exec says that a process executed a program. The files in it were introduced before.
	Exec(*Exec)
	// Exit says that a process ends.
	Exit(*Exit)
	// Ended says what a process has run in all, a moment after it was waited for.
	Ended(*Ended)
}

// Object is what is mapped somewhere: a file by its serial number, or what else.
type Object struct {
	Kind   FrameKind
	Serial uint32 // of a file
}

// Exec is the execution of a program by a process. Nothing of the program has run yet.
type Exec struct {
	PID, PPID            uint32
	TID                  uint32 // of the thread that called execve: its number is PID from here on
	Time                 uint64 // ns, CLOCK_MONOTONIC
	Started              uint64 // of the process, ns, CLOCK_BOOTTIME
	Count                uint64 // of programs that the process has executed
	Cgroup               uint64 // in the hierarchy of version 2
	CPU                  uint64 // ns, that the process has run before, up to the last time that the scheduler looked
	UID, GID, EUID, EGID uint32
	Name                 string // of the process
	Program              Object
	Interpreter          Object // where the process starts: the program's ELF interpreter, or the program itself
	Path                 string // of the program, from the root of the mount namespace
	PathCut              bool   // its first components are missing
	Deleted              bool   // the program's file has no name any more
	File                 string // what was asked for, as it was given to execve
	Script               bool   // File names its interpreter, and that is the program or names it in turn
	Interp               string // what a script named in the end
	Args                 []byte // each with a NUL, the first ones of many; overwritten by the next event
	ArgsCut              bool   // there are more
	ArgsUnread           bool   // they could not be read
}

// Exit is the end of a process.
type Exit struct {
	PID, PPID uint32
	Time      uint64 // ns, CLOCK_MONOTONIC
	Started   uint64 // ns, CLOCK_BOOTTIME
	Cgroup    uint64
	CPU       uint64 // ns, of all threads, up to the last time that the scheduler looked
	Status    int32  // as wait(2) has it
	UID, GID  uint32
	Name      string
}

// Ended says what a process has run.
type Ended struct {
	PID     uint32
	Started uint64 // ns, CLOCK_BOOTTIME
	CPU     uint64 // ns, of all threads
}

// execDecoder makes events of bytes. Most of them have texts that others had before.
type execDecoder struct {
	exec  Exec
	exit  Exit
	ended Ended
	// As the programs send them: here they are no garbage afterwards.
	rawExec      execExecEvent
	rawExit      execExitEvent
	rawEnded     execEndedEvent
	texts, paths known
}

// dispatch decodes an event and hands it to h.
func (d *execDecoder) dispatch(event []byte, h ExecHandler) error {
	kind, err := dispatchFile(event, h)
	if err != nil {
		return err
	}
	switch kind {
	case fileEvent, idEvent, wakeEvent:
	case execEvent:
		if err := d.decodeExec(event); err != nil {
			return err
		}
		h.Exec(&d.exec)
	case exitEvent:
		if err := decode(event, &d.rawExit); err != nil {
			return err
		}
		d.exit = d.exitOf(&d.rawExit)
		h.Exit(&d.exit)
	case endedEvent:
		if err := decode(event, &d.rawEnded); err != nil {
			return err
		}
		d.ended = Ended{d.rawEnded.Tgid, d.rawEnded.Started, d.rawEnded.Cpu}
		h.Ended(&d.ended)
	default:
		return fmt.Errorf("BPF event of kind %d", kind)
	}
	return nil
}

// Flags of executions: enum exec_flags of events/exec.h.
const (
	execDeleted = 1 << iota
	execPathCut
	execArgsCut
	execArgsUnread
	execScript
)

func (d *execDecoder) decodeExec(event []byte) error {
	e := &d.rawExec
	if err := decode(event, e); err != nil {
		return err
	}
	texts := event[unsafe.Sizeof(*e):]
	sizes := [...]uint32{e.PathSize, e.FileSize, e.InterpSize, e.ArgsSize}
	var parts [len(sizes)][]byte
	for i, n := range sizes {
		if uint64(n) > uint64(len(texts)) {
			return fmt.Errorf("BPF event of an execution with texts of %v bytes in %d", sizes, len(event))
		}
		parts[i], texts = texts[:n], texts[n:]
	}
	d.exec = Exec{
		PID: e.Tgid, PPID: e.Ppid, TID: e.Tid,
		Time: e.Time, Started: e.Started, Count: e.Exec, Cgroup: e.Cgroup, CPU: e.Cpu,
		UID: e.Uid, GID: e.Gid, EUID: e.Euid, EGID: e.Egid,
		Name:    d.name(&e.Comm),
		Program: placeOf(e.Program), Interpreter: placeOf(e.Interpreter),
		Path: d.paths.get(parts[0], joinPath), PathCut: e.Flags&execPathCut != 0, Deleted: e.Flags&execDeleted != 0,
		File: d.text(parts[1]), Script: e.Flags&execScript != 0, Interp: d.text(parts[2]),
		Args: parts[3], ArgsCut: e.Flags&execArgsCut != 0, ArgsUnread: e.Flags&execArgsUnread != 0,
	}
	return nil
}

func placeOf(where uint64) Object { return Object{FrameKind(where >> 32 & 0xff), uint32(where)} }

func (d *execDecoder) exitOf(e *execExitEvent) Exit {
	return Exit{
		PID: e.Tgid, PPID: e.Ppid, Time: e.Time, Started: e.Started, Cgroup: e.Cgroup,
		CPU: e.Cpu, Status: e.Status, UID: e.Uid, GID: e.Gid, Name: d.name(&e.Comm),
	}
}

// text returns the text before the first NUL.
func (d *execDecoder) text(b []byte) string {
	return d.texts.text(b)
}

// name returns the name of a process.
func (d *execDecoder) name(comm *[16]int8) string {
	return d.texts.name(comm)
}

// known are strings that were made of bytes before. A nil pointer to them keeps none.
type known map[string]string

// Bounds of what is kept.
const (
	maxKnown  = 1 << 12
	longKnown = 256 // bytes
)

// text returns the text before the first NUL.
func (k *known) text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return k.get(b, func(b []byte) string { return string(b) })
}

// name returns the name of a process or a thread.
func (k *known) name(comm *[16]int8) string {
	return k.text((*[len(comm)]byte)(unsafe.Pointer(comm))[:])
}

func (k *known) get(b []byte, text func([]byte) string) string {
	if k == nil {
		return text(b)
	}
	s, ok := (*k)[string(b)]
	if ok {
		return s
	}
	if s = text(b); len(b) > longKnown {
		return s
	}
	if *k == nil || len(*k) >= maxKnown {
		*k = known{}
	}
	(*k)[string(b)] = s
	return s
}
