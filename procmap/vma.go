package procmap

import (
	"strconv"
	"strings"

	"hallmark/addr"
)

// VMA is one virtual memory area of a process: a line of /proc/PID/maps. It is a
// plain value, comparable with ==, and equal whichever way it was read.
type VMA struct {
	Start, End addr.Abs    // the addresses Start <= a < End
	Perm       Perm        // what the process may do there
	Offset     addr.Offset // file offset of the byte at Start; 0 without a file
	Dev        Dev         // device of the file's superblock; zero without a file
	Inode      uint64      // of the file, as the file system shows it; 0 without a file

	// Name is what the kernel calls it: the file's path, a name in brackets, or
	// nothing. A path ends in " (deleted)" when the file was unlinked, and in the
	// text file every newline is written as \012 and a backslash is not escaped;
	// here it is the newline again. So a name that has these four characters
	// itself is only right when it was queried.
	Name string
}

// deleted is what the kernel appends to the path of an unlinked file
// (fs/d_path.c). Nothing stops a file from being named like that.
const deleted = " (deleted)"

// Contains reports whether v holds the address a.
func (v VMA) Contains(a addr.Abs) bool { return v.Start <= a && a < v.End }

// FileOffset returns the offset in the mapped file of the byte at a, which v
// contains. It means nothing unless v is FileBacked.
func (v VMA) FileOffset(a addr.Abs) addr.Offset {
	return addr.Offset(a-v.Start) + v.Offset
}

// FileBacked reports whether a file of any kind is mapped, which includes
// unnamed ones such as a memfd or shared anonymous memory.
func (v VMA) FileBacked() bool { return v.Dev != Dev{} || v.Inode != 0 }

// Deleted reports whether the kernel says that the file was unlinked. A file
// whose own name ends in " (deleted)" looks the same: [Process.PathOf] distinguishes it.
func (v VMA) Deleted() bool { return v.FileBacked() && strings.HasSuffix(v.Name, deleted) }

// Path returns the path of the mapped file without the note that it was
// deleted, or "" when there is no file or it never had a path.
func (v VMA) Path() string {
	if !v.FileBacked() || !strings.HasPrefix(v.Name, "/") {
		return ""
	}
	return strings.TrimSuffix(v.Name, deleted)
}

// sameFile reports whether v and w map the same file.
func (v VMA) sameFile(w VMA) bool {
	return v.FileBacked() && v.Dev == w.Dev && v.Inode == w.Inode && v.Name == w.Name
}

// headerWidth is how far /proc/PID/maps of a 64-bit kernel pads what stands
// before a name (show_vma_header_prefix in fs/proc/task_mmu.c).
const headerWidth = 25 + 8*6 - 1

// AppendText appends the line of /proc/PID/maps for v, without its newline, byte
// for byte as a 64-bit kernel prints it. The error is always nil.
func (v VMA) AppendText(b []byte) ([]byte, error) {
	line := len(b)
	b = appendHex(b, uint64(v.Start), 8)
	b = appendHex(append(b, '-'), uint64(v.End), 8)
	b = v.Perm.append(append(b, ' '))
	b = appendHex(append(b, ' '), uint64(v.Offset), 8)
	b = v.Dev.append(append(b, ' '))
	b = strconv.AppendUint(append(b, ' '), v.Inode, 10)
	b = append(b, ' ')
	if v.Name == "" {
		return b, nil
	}
	for len(b)-line < headerWidth {
		b = append(b, ' ')
	}
	b = append(b, ' ')
	return append(b, strings.ReplaceAll(v.Name, "\n", `\012`)...), nil
}

// String returns the line of /proc/PID/maps for v, without its newline.
func (v VMA) String() string {
	b, _ := v.AppendText(nil)
	return string(b)
}

// appendHex appends n in hexadecimal, with zeros in front up to width digits.
func appendHex(b []byte, n uint64, width int) []byte {
	const digits = "0123456789abcdef"
	for shift := 60; shift >= 0; shift -= 4 {
		if shift/4 < width || n>>shift != 0 {
			b = append(b, digits[n>>shift&0xf])
		}
	}
	return b
}

// Dev is the number of a device, that of a file's superblock.
type Dev struct{ Major, Minor uint32 }

// String returns the number as /proc/PID/maps has it, "fe:00" for instance.
func (d Dev) String() string { return string(d.append(nil)) }

func (d Dev) append(b []byte) []byte {
	b = appendHex(b, uint64(d.Major), 2)
	return appendHex(append(b, ':'), uint64(d.Minor), 2)
}

// Perm is what a process may do with the memory of a VMA, and whether it shares
// it. The bits are those of PROCMAP_QUERY (include/uapi/linux/fs.h).
type Perm uint8

// The permissions.
const (
	Read Perm = 1 << iota
	Write
	Exec
	Shared
)

// The letters of the permissions, and those in their place when they are missing.
const (
	permLetters = "rwxs"
	noPerm      = "---p"
)

// String returns the permissions as /proc/PID/maps has them, "r-xp" for instance.
func (p Perm) String() string { return string(p.append(nil)) }

func (p Perm) append(b []byte) []byte {
	for i := range permLetters {
		if p>>i&1 != 0 {
			b = append(b, permLetters[i])
		} else {
			b = append(b, noPerm[i])
		}
	}
	return b
}
