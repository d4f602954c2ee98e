package regular

import "syscall"

// errMade is ErrOther for a file that the kernel makes up.
var errMade error = madeError{}

type madeError struct{}

func (madeError) Error() string {
	return "is no file of a disk or of memory, but one that the kernel makes up"
}
func (madeError) Is(target error) bool { return target == ErrOther }

// madeUp are the file systems whose files the kernel makes up, by the numbers that statfs(2)
// gives (Linux include/uapi/linux/magic.h, and where a comment says so the file system). Such a
// file may say that it is a regular one. To open it or to read it may have effects, such as
// taking messages away from others, and a read may wait or have no end.
var madeUp = map[uint32]bool{
	0x00009fa0: true, // proc
	0x62656572: true, // sysfs
	0x64626720: true, // debugfs
	0x74726163: true, // tracefs
	0x73636673: true, // securityfs
	0x0027e0eb: true, // cgroup
	0x63677270: true, // cgroup2
	0x07655821: true, // resctrl
	0xcafe4a11: true, // bpf
	0x62656570: true, // configfs: fs/configfs/mount.c
	0xde5e81e4: true, // efivarfs
	0x6165676c: true, // pstore
	0x42494e4d: true, // binfmt_misc
	0xf97cff8c: true, // selinuxfs
	0x43415d53: true, // smackfs
	0x5a3c69f0: true, // apparmorfs
	0x19800202: true, // mqueue: ipc/mqueue.c
	0x65735543: true, // fusectl
	0x6e667364: true, // nfsd: fs/nfsd/nfsctl.c
	0x67596969: true, // rpc_pipefs: net/sunrpc/rpc_pipe.c
	0x76a9f425: true, // ocfs2_dlmfs, where opening takes a lock: fs/ocfs2/dlmfs/dlmfs.c
	0x0a647361: true, // functionfs: drivers/usb/gadget/function/f_fs.c
	0xaee71ee7: true, // gadgetfs: drivers/usb/gadget/legacy/inode.c
	0x00009fa2: true, // usbdevfs
	0x6c6f6f70: true, // binderfs
	0x00001cd1: true, // devpts
	0x00009fa1: true, // openpromfs
	0x012fd16d: true, // hypfs: arch/s390/hypfs
	0xabba1974: true, // xenfs
	0x66726f67: true, // ibmasmfs: drivers/misc/ibmasm/ibmasmfs.c
	0x09041934: true, // anonymous inodes
	0x6e736673: true, // nsfs
	0x50494446: true, // pidfs
	0x50495045: true, // pipefs
	0x534f434b: true, // sockfs
	0x62646576: true, // the block devices' own
	0x64646178: true, // devdax
	0x444d4142: true, // dma-buf
	0x454d444d: true, // devmem
}

// IsMade reports whether the kernel makes up the files of the file system on which a file is
// open, of whatever kind (O_PATH).
func IsMade(fd int) bool {
	var st syscall.Stat_t
	return syscall.Fstat(fd, &st) == nil && made(fd, st.Dev) != nil
}

// made is the error of a file that the kernel makes up. Such file systems are on no device: their
// number has the major part 0.
func made(fd int, dev uint64) error {
	if major := dev>>8&0xfff | dev>>32&^0xfff; major != 0 {
		return nil
	}
	var fs syscall.Statfs_t
	switch err := statfs(fd, &fs); err {
	case nil:
		if madeUp[uint32(fs.Type)] {
			return errMade
		}
	case syscall.EACCES, syscall.EPERM: // by a security module, which may hide any of them
		return err
	}
	return nil // the servers of others may answer what they like: they are none of these
}

func statfs(fd int, fs *syscall.Statfs_t) error {
	for {
		if err := syscall.Fstatfs(fd, fs); err != syscall.EINTR {
			return err
		}
	}
}
