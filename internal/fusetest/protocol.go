package fusetest

import (
	"encoding/binary"
	"syscall"
	"time"
)

// The version of the protocol that is spoken: Linux 5.4 and all later ones know it.
const (
	major = 7
	minor = 31
)

// Requests: enum fuse_opcode.
const (
	opLookup      = 1
	opForget      = 2
	opGetattr     = 3
	opSetattr     = 4
	opUnlink      = 10
	opRename      = 12
	opOpen        = 14
	opRead        = 15
	opWrite       = 16
	opStatfs      = 17
	opRelease     = 18
	opFsync       = 20
	opFlush       = 25
	opInit        = 26
	opOpendir     = 27
	opReaddir     = 28
	opReleasedir  = 29
	opAccess      = 34
	opCreate      = 35
	opInterrupt   = 36
	opDestroy     = 38
	opBatchForget = 42
	opFallocate   = 43
	opRename2     = 45
)

// Flags, by the names that they have in fuse.h.
const (
	initBigWrites    = 1 << 5
	initAutoInval    = 1 << 12
	initMaxPages     = 1 << 22
	openKeepCache    = 1 << 1
	openDirect       = 1 << 0 // FOPEN_DIRECT_IO
	attrMode         = 1 << 0
	attrSize         = 1 << 3
	attrAtime        = 1 << 4
	attrMtime        = 1 << 5
	attrAtimeNow     = 1 << 7
	attrMtimeNow     = 1 << 8
	notifyInvalInode = 2
)

// Sizes.
const (
	pageSize      = 4096
	maxPages      = 32
	maxTransfer   = maxPages * pageSize
	headerSize    = 40
	outHeaderSize = 16
	requestSize   = maxTransfer + pageSize // of the largest request
	rootNode      = 1
)

type inHeader struct {
	Len, Opcode   uint32
	Unique, Node  uint64
	UID, GID, PID uint32
	_             uint32
}

type outHeader struct {
	Len    uint32
	Error  int32
	Unique uint64
}

type initIn struct{ Major, Minor, MaxReadahead, Flags uint32 }

type initOut struct {
	Major, Minor, MaxReadahead, Flags  uint32
	MaxBackground, CongestionThreshold uint16
	MaxWrite, TimeGran                 uint32
	MaxPages, MapAlignment             uint16
	_                                  [8]uint32
}

type attr struct {
	Ino, Size, Blocks, Atime, Mtime, Ctime    uint64
	AtimeNsec, MtimeNsec, CtimeNsec           uint32
	Mode, Nlink, UID, GID, Rdev, Blksize, Flg uint32
}

type attrOut struct {
	Valid     uint64
	ValidNsec uint32
	_         uint32
	Attr      attr
}

type entryOut struct {
	Node, Generation, EntryValid, AttrValid uint64
	EntryValidNsec, AttrValidNsec           uint32
	Attr                                    attr
}

type setattrIn struct {
	Valid, _                        uint32
	Handle, Size, _                 uint64
	Atime, Mtime, Ctime             uint64
	AtimeNsec, MtimeNsec, CtimeNsec uint32
	Mode, _, UID, GID, _            uint32
}

type openIn struct{ Flags, _ uint32 }

type openOut struct {
	Handle   uint64
	Flags, _ uint32
}

type createIn struct{ Flags, Mode, Umask, _ uint32 }

// transferIn is struct fuse_read_in, and struct fuse_write_in.
type transferIn struct {
	Handle, Offset uint64
	Size, Flags    uint32
	_              uint64
	_, _           uint32
}

type writeOut struct{ Size, _ uint32 }

type releaseIn struct {
	Handle uint64
	_      [2]uint64
}

type fallocateIn struct {
	Handle, Offset, Length uint64
	Mode, _                uint32
}

type statfsOut struct {
	Blocks, Bfree, Bavail, Files, Ffree uint64
	Bsize, Namelen, Frsize, _           uint32
	_                                   [6]uint32
}

type dirent struct {
	Ino, Next uint64
	Len, Type uint32
}

type forgetOne struct{ Node, Lookups uint64 }

type invalInodeOut struct {
	Node        uint64
	Offset, Len int64
}

// read takes a value from the front of bytes, and reports whether they were enough.
func read(b *[]byte, v any) bool {
	n, err := binary.Decode(*b, binary.NativeEndian, v)
	if err != nil {
		return false
	}
	*b = (*b)[n:]
	return true
}

// bytesOf is a value as the kernel expects it.
func bytesOf(v any) []byte {
	b, err := binary.Append(nil, binary.NativeEndian, v)
	if err != nil {
		panic(err) // of a type without a size
	}
	return b
}

// split returns a duration as seconds and nanoseconds.
func split(d time.Duration) (seconds uint64, nanoseconds uint32) {
	return uint64(d / time.Second), uint32(d % time.Second)
}

// attrOf is what the kernel shall know of a file. Its number is that of its node, as with
// sshfs, which does not know any other.
func (o Options) attrOf(node uint64, st *syscall.Stat_t) attr {
	a := attr{
		Ino: node, Size: uint64(st.Size), Blocks: uint64(st.Blocks),
		Atime: uint64(st.Atim.Sec), AtimeNsec: uint32(st.Atim.Nsec),
		Mtime: uint64(st.Mtim.Sec), MtimeNsec: uint32(st.Mtim.Nsec),
		Ctime: uint64(st.Ctim.Sec), CtimeNsec: uint32(st.Ctim.Nsec),
		Mode: st.Mode, Nlink: 1, UID: st.Uid, GID: st.Gid, Blksize: pageSize,
	}
	if o.NoChangeTime {
		a.Ctime, a.CtimeNsec = a.Mtime, a.MtimeNsec
	}
	if o.Seconds {
		a.AtimeNsec, a.MtimeNsec, a.CtimeNsec = 0, 0, 0
	}
	return a
}
