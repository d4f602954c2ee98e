// Package fstimes knows on which file systems the times of a file report whether its content
// changed.
//
// An identity that was read once is believed later if the file has the same inode, size and
// times as then. That is a proof only where every way to change the content also changes
// the times: write and truncate, but also a store to a page that is mapped shared, and a
// change that is made elsewhere. Most kernels' file systems on a disk keep that promise:
// they map pages read-only until the first store, and set the times when that comes. Memory
// file systems do not, and a file system whose server is elsewhere shows the times that it
// was last given.
//
// On a file system that is not in the list, an identity counts for one mapping, and only if
// it was read from the pages of that mapping.
package fstimes

import "slices"

// A FileSystem is one whose times show every change of a file's content.
type FileSystem struct {
	Name  string
	Image bool   // it is only ever made as a whole, often so that all times are the same
	Magic uint32 // s_magic of its super block, and f_type of statfs: include/uapi/linux/magic.h
	Why   string // its times can be believed
	// Forge is how whoever may write a file can change its content without a change of its times: by
	// a request of ioctl(2) that exchanges blocks of two files, or by a page that is pinned. A direct
	// read from a FUSE file into a mapped page sets the times when it begins, and the page changes when
	// the server of that file answers, long after the mapping is gone: seen on btrfs, and ext4 and xfs do
	// nothing else. "" where nobody can write.
	Forge string
}

// trusted are the file systems whose times report each change, by a look at the kernel's
// sources and by tests. It says nothing of what is below: whoever can write to the disk, or
// to the image that is mounted, can change a file without a trace.
var trusted = []FileSystem{
	{"ext4", false, 0xef53, "a store to a mapped page passes ext4_page_mkwrite, which sets the times; so it is with ext2 and ext3", "EXT4_IOC_MOVE_EXT, or a pinned page"},
	{"xfs", false, 0x58465342, "a store to a mapped page passes xfs_filemap_fault, which sets the times; reflinks and hole punching set them as well", "XFS_IOC_SWAPEXT, or a pinned page"},
	{"btrfs", false, 0x9123683e, "a store to a mapped page passes btrfs_page_mkwrite, which sets the times; reflinks set them as well", "a pinned page"},
	{"squashfs", true, 0x73717368, "nobody can write to it: another content is another image, which is another mount", ""},
	{"erofs", true, 0xe0f5e1e2, "nobody can write to it: another content is another image, which is another mount", ""},
	{"iso9660", true, 0x9660, "nobody can write to it: another content is another medium, which is another mount", ""},
}

// Overlay is the magic number of overlayfs. It has the times of the file in the layer, which
// may be on anything: it is not in the list, and where the layer is known, that decides.
const Overlay = 0x794c7630

// FUSE is the magic number of the file systems whose servers are processes.
const FUSE = 0x65735546

// Btrfs is the magic number of the file system whose subvolumes give the same number to
// different files.
const Btrfs = 0x9123683e

// untrusted says why the times of file systems that are often met are not believed.
var untrusted = map[uint32]string{
	0x01021994: "tmpfs: a page that is mapped shared and was read can be written without a change of the times",
	0x858458f6: "ramfs: a page that is mapped shared and was read can be written without a change of the times",
	0x958458f6: "hugetlbfs: a mapped page can be written without a change of the times",
	FUSE:       "FUSE: the times are those that a server sent last, and whatever it likes",
	0x4d44:     "FAT: the times have a step of two seconds, and only the modification has one at all",
	0x2011bab0: "exFAT: the change of a file has no time of its own",
	0x7366746e: "NTFS: not known to set the times at each change",
	0x6969:     "NFS: the times are those that the server sent last",
	0xff534d42: "SMB: the times are those that the server sent last",
	0xfe534d42: "SMB: the times are those that the server sent last",
	0x00c36400: "Ceph: the times are those that the server sent last",
	0x01021997: "9P: the times are those that the server sent last",
	0x5346414f: "AFS: the times are those that the server sent last",
	0x786f4256: "vboxsf: the times are those that the host sent last",
	0xf15f:     "eCryptfs: the file below may be written past it",
	0xf2f52010: "f2fs: not tested",
	0xca451a4e: "bcachefs: not tested",
	0x2fc12fc1: "ZFS: not tested",
	Overlay:    "overlayfs: the times are those of the layer, which may be on anything",
}

// Trusted reports whether the times of files report whether they changed, on the file system
// with this magic number (f_type of statfs), and why or why not.
func Trusted(magic int64) (bool, string) {
	number := uint32(magic) // of which statfs of some machines shows the sign
	for _, fs := range trusted {
		if fs.Magic == number {
			return true, fs.Name + ": " + fs.Why
		}
	}
	if why := untrusted[number]; why != "" {
		return false, why
	}
	return false, "file system is not known to set the times at each change"
}

// IsImage reports whether a file system is only ever made as a whole: the number of its disk
// has to distinguish two of them, as all else may be the same.
func IsImage(magic int64) bool {
	return slices.ContainsFunc(trusted, func(fs FileSystem) bool { return fs.Image && fs.Magic == uint32(magic) })
}

// List returns the file systems whose times are believed.
func List() []FileSystem { return slices.Clone(trusted) }

// CanForge reports whether whoever may write files on the file system with this magic number may be able to
// change their content without a change of times. So it is where times are not believed: on tmpfs by stores
// through a mapping, on FUSE as the server likes. Of an overlay it is not known, because its layers may
// be on anything.
func CanForge(magic int64) bool {
	for _, fs := range trusted {
		if fs.Magic == uint32(magic) {
			return fs.Forge != ""
		}
	}
	return true
}
