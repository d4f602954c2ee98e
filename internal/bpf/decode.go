package bpf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/unwind"
)

// Kinds of events: enum event_kind of events/stack.h.
const (
	fileEvent = iota + 1
	idEvent
	stackEvent
	wakeEvent
	spaceEvent
	copyEvent
)

// files takes what all programs send of files.
type files interface {
	File(File)
	Identity(serial uint32, id buildid.ID)
}

// dispatchFile decodes an event of a file and hands it to h. It returns the kind of any other event.
func dispatchFile(event []byte, h files) (kind uint32, err error) {
	if len(event) < 4 {
		return 0, fmt.Errorf("BPF event of %d bytes", len(event))
	}
	switch kind = binary.NativeEndian.Uint32(event); kind {
	case fileEvent:
		var e samplerFileEvent
		if err := decode(event, &e); err != nil {
			return kind, err
		}
		h.File(fileOf(&e))
	case idEvent:
		var e samplerIdEvent
		if err := decode(event, &e); err != nil {
			return kind, err
		}
		// Bytes that are no identity (a Go ID of odd characters) are left to the reader of the file.
		if id, err := identityOf(&e.Id); err == nil {
			h.Identity(uint32(e.Serial), id)
		}
	}
	return kind, nil
}

// dispatch decodes an event and hands it to h.
func dispatch(event []byte, h Handler) error {
	kind, err := dispatchFile(event, h)
	if err != nil {
		return err
	}
	switch kind {
	case fileEvent, idEvent, wakeEvent:
	case stackEvent:
		return dispatchStack(event, h)
	case spaceEvent:
		return dispatchSpace(event, h)
	case copyEvent:
		return dispatchCopy(event, h)
	default:
		return fmt.Errorf("BPF event of kind %d", kind)
	}
	return nil
}

// decode copies a structure of C, which has the same layout here.
func decode[T any](event []byte, to *T) error {
	size := int(unsafe.Sizeof(*to))
	if len(event) < size {
		return fmt.Errorf("BPF event of %d bytes, want %d", len(event), size)
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(to)), size), event)
	return nil
}

// Sizes of struct stack_event and struct frame.
const (
	stackHeader = 24
	frameSize   = 16
)

func dispatchStack(event []byte, h Handler) error {
	if len(event) < stackHeader {
		return fmt.Errorf("BPF stack of %d bytes", len(event))
	}
	order := binary.NativeEndian
	id := StackID{order.Uint64(event[8:]), order.Uint64(event[16:])}
	count, end := int(order.Uint16(event[4:])), unwind.End(event[6])
	if event = event[stackHeader:]; len(event) < count*frameSize {
		return fmt.Errorf("BPF stack of %d frames in %d bytes", count, len(event))
	}
	frames := make([]Frame, count)
	for i := range frames {
		where := order.Uint64(event[i*frameSize:])
		frames[i] = Frame{FrameKind(where >> 32 & 0xff), uint32(where), unwind.Method(where >> 40), order.Uint64(event[i*frameSize+8:])}
	}
	h.Stack(id, frames, end)
	return nil
}

func fileOf(e *samplerFileEvent) File {
	return File{
		Serial:   uint32(e.Serial),
		Key:      e.Key,
		PID:      e.Tgid,
		Start:    addr.Abs(e.Start),
		End:      addr.Abs(e.End),
		Offset:   addr.Offset(e.Offset),
		Path:     joinPath(text(e.Path[:])),
		Validity: validityOf(&e.Valid),
	}
}

func validityOf(v *samplerValidity) Validity {
	return Validity{
		Inode:      v.Ino,
		Size:       v.Size,
		Mtime:      Time{v.MtimeSec, v.MtimeNsec},
		Ctime:      Time{v.CtimeSec, v.CtimeNsec},
		Dev:        Dev{v.Dev >> 20, v.Dev & (1<<20 - 1)},
		Generation: v.Generation,
		Medium:     v.Medium,
		Pinned:     v.Pinned,
	}
}

func identityOf(id *samplerIdentity) (buildid.ID, error) {
	return buildid.New(buildid.Kind(id.Kind), id.Bytes[:min(int(id.Size), len(id.Bytes))])
}

// joinPath puts the components of a path, each followed by a NUL and the last one
// first, into the usual form.
func joinPath(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0, 0})
	parts := strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
	slices.Reverse(parts)
	return "/" + strings.Join(parts, "/")
}

// taskOf turns the key of a count into values.
// Names that were made before are in names.
func taskOf(k *samplerCountKey, names *known) Task {
	return Task{
		PID:     k.Tgid,
		TID:     k.Tid,
		Started: k.Started,
		Seen:    k.Seen,
		Cgroup:  k.Cgroup,
		Process: names.name(&k.Process),
		Thread:  names.name(&k.Thread),
	}
}

// name returns the text up to the first NUL.
func name(b []int8) string {
	s, _, _ := bytes.Cut(text(b), []byte{0})
	return string(s)
}

// text turns C's characters into bytes.
func text[T int8 | uint8](chars []T) []byte {
	b := make([]byte, len(chars))
	for i, c := range chars {
		b[i] = byte(c)
	}
	return b
}
