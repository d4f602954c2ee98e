/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* File systems, by their magic numbers: on which ones the times of a file show whether its
 * content changed, and which ones answer by themselves.
 *
 * Where the times show nothing, an identity counts for one mapping of one process alone, and
 * only once it was read from the pages of that mapping.
 *
 * A file system answers by itself if the kernel serves it. A page of a file on another one
 * (FUSE, a network) may never come: a program that touches it in the memory of another process
 * waits for ever, and cannot be killed. internal/mounts has the same list by name. */
#ifndef HALLMARK_FS_H
#define HALLMARK_FS_H

#include "kernel.h"

/* Magic numbers of file systems, which the loader sets: package fstimes has the list, with
 * the reasons. */
#define MAX_TRUSTED 8
const volatile __u32 trusted_magics[MAX_TRUSTED];

/* fs_is_trusted reports whether the times of a file system with this magic number are believed.
 * Nothing branches, because the verifier would go both ways each time. */
static __always_inline bool fs_is_trusted(__u32 magic)
{
	__u64 found = 0;

	_Pragma("unroll") for (int i = 0; i < MAX_TRUSTED; i++)
	{
		__u64 difference = magic ^ trusted_magics[i];

		barrier_var(difference);
		found |= (difference - 1) >> 63; /* 1 if there is none */
	}
	return found && magic;
}

/* fs_answers reports whether the file system of an inode answers by itself. The inode is that of
 * the pages: on an overlay, of a file in one of its layers. The numbers are in
 * include/uapi/linux/magic.h, and in the file systems themselves. */
static __always_inline bool fs_answers(struct inode *inode)
{
	struct super_block *super = BPF_CORE_READ(inode, i_sb);

	switch ((__u32)BPF_CORE_READ(super, s_magic)) {
	case 0xef53:	 /* ext2, ext3, ext4 */
	case 0x58465342: /* xfs */
	case 0x9123683e: /* btrfs */
	case 0xca451a4e: /* bcachefs */
	case 0xf2f52010: /* f2fs */
	case 0x2fc12fc1: /* zfs */
	case 0x4d44:	 /* vfat */
	case 0x2011bab0: /* exfat */
	case 0x9660:	 /* iso9660 */
	case 0x73717368: /* squashfs */
	case 0xe0f5e1e2: /* erofs */
	case 0x01021994: /* tmpfs, memfd */
	case 0x858458f6: /* ramfs */
	case 0x958458f6: /* hugetlbfs */
		return true;
	}
	return false;
}

#endif
