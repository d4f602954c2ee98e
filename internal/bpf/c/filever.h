/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What validates a file: inode number, device, generation, size and times. filesettle.h says when
 * these determine its content. */
#ifndef HALLMARK_FILEVER_H
#define HALLMARK_FILEVER_H

#include "events/stack.h"
#include "kernel.h"

/* filever_is_of_mapping reports whether a validity is that of one mapping alone: see struct validity. */
static __always_inline bool filever_is_of_mapping(const struct validity *v) { return v->pinned && !(v->pinned & 1); }

/* I_CTIME_QUERIED of include/linux/fs.h, since 6.13: no part of the time. */
#define CTIME_QUERIED (1U << 31)

/* FIELD reads a field through a pointer that the verifier knows as what it is, which takes fewest
 * instructions, or through any pointer. */
#define FIELD(known, pointer, field) ((known) ? (pointer)->field : GET(pointer, field))

/* filever_read_times reads both times of an inode, in the forms that they had before 6.11. */
static __always_inline void filever_read_times(struct inode *inode, struct validity *v)
{
	struct inode___underscores *newer = (void *)inode;
	struct inode___plain *older = (void *)inode;
	struct timespec64 m = {}, c = {};

	if (bpf_core_field_exists(newer->__i_mtime))
		BPF_CORE_READ_INTO(&m, newer, __i_mtime);
	else if (bpf_core_field_exists(older->i_mtime))
		BPF_CORE_READ_INTO(&m, older, i_mtime);
	if (bpf_core_field_exists(newer->__i_ctime))
		BPF_CORE_READ_INTO(&c, newer, __i_ctime);
	else if (bpf_core_field_exists(older->i_ctime))
		BPF_CORE_READ_INTO(&c, older, i_ctime);
	v->mtime_sec = m.tv_sec;
	v->mtime_nsec = m.tv_nsec;
	v->ctime_sec = c.tv_sec;
	v->ctime_nsec = c.tv_nsec;
}

/* filever_medium returns a number that no two media have, though one after the other has the
 * same device number, and files of the same numbers and times: images of read-only file
 * systems that were built to be reproducible have. */
static __always_inline __u64 filever_medium(struct super_block *super, bool known)
{
	struct block_device *device = FIELD(known, super, s_bdev);
	struct backing_dev_info *info;
	struct gendisk *disk;

	if (device) {
		disk = FIELD(known, device, bd_disk);
		return FIELD(known, disk, diskseq);
	}
	info = FIELD(known, super, s_bdi);
	return FIELD(known, info, id);
}

#define BTRFS_SUPER_MAGIC 0x9123683e

/* Where btrfs has what stat reports as the device of a file: each subvolume has one of its own, and
 * inodes of the same number and generation. The offsets are of vfs_inode and root in struct
 * btrfs_inode, and of anon_dev in struct btrfs_root (fs/btrfs/btrfs_inode.h and ctree.h). The loader sets
 * them; vfs_inode is 0 where there is no btrfs, or its types are not known. */
enum { BTRFS_VFS_INODE, BTRFS_ROOT, BTRFS_ANON_DEV, BTRFS_OFFSETS };
const volatile __u32 btrfs_offsets[BTRFS_OFFSETS];

/* filever_device returns the device of an inode, as stat reports it but on overlays. */
static __always_inline __u32 filever_device(struct inode *inode, struct super_block *super, bool known)
{
	__u32 device = FIELD(known, super, s_dev);
	__u64 magic = FIELD(known, super, s_magic);
	__u64 address = (__u64)inode, root = 0;

	barrier_var(device); /* else it is read in each branch, by pointers that the verifier keeps apart */
	if (!btrfs_offsets[BTRFS_VFS_INODE] || magic != BTRFS_SUPER_MAGIC)
		return device;
	address += (__u64)btrfs_offsets[BTRFS_ROOT] - btrfs_offsets[BTRFS_VFS_INODE];
	bpf_probe_read_kernel(&root, sizeof(root), (void *)address);
	bpf_probe_read_kernel(&device, sizeof(device), (void *)(root + btrfs_offsets[BTRFS_ANON_DEV]));
	return device;
}

/* filever_read reads the validity of an inode, as one whose times determine its content. known says
 * that the verifier knows the inode as one. */
static __always_inline void filever_read(struct inode *inode, struct validity *v, bool known)
{
	struct super_block *super = FIELD(known, inode, i_sb);

	v->pinned = 0;
	v->ino = FIELD(known, inode, i_ino);
	v->size = FIELD(known, inode, i_size);
	v->dev = filever_device(inode, super, known);
	v->medium = filever_medium(super, known);
	v->generation = FIELD(known, inode, i_generation);
	if (!bpf_core_field_exists(inode->i_mtime_sec)) {
		filever_read_times(inode, v);
		return;
	}
	v->mtime_sec = FIELD(known, inode, i_mtime_sec);
	v->mtime_nsec = FIELD(known, inode, i_mtime_nsec);
	v->ctime_sec = FIELD(known, inode, i_ctime_sec);
	v->ctime_nsec = FIELD(known, inode, i_ctime_nsec) & ~CTIME_QUERIED;
}

/* filever_same reports whether two validities are of one content. */
static __always_inline bool filever_same(const struct validity *a, const struct validity *b)
{
	return a->ino == b->ino && a->size == b->size && a->dev == b->dev && a->generation == b->generation &&
	       a->mtime_sec == b->mtime_sec && a->mtime_nsec == b->mtime_nsec &&
	       a->ctime_sec == b->ctime_sec && a->ctime_nsec == b->ctime_nsec && a->pinned == b->pinned &&
	       a->medium == b->medium;
}

#endif
