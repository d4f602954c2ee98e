/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which file systems answer by themselves, because the kernel serves them. A page of a file
 * on another one (FUSE, a network) may never come: who touches it in the memory of another
 * process waits for ever, and cannot be killed. internal/mounts has the same list by name. */
#ifndef HALLMARK_ANSWERS_H
#define HALLMARK_ANSWERS_H

#include "kernel.h"

/* answers reports whether the file system of an inode answers by itself. The inode is that of
 * the pages: on an overlay, of a file in one of its layers. The numbers are in
 * include/uapi/linux/magic.h, and in the file systems themselves. */
static __always_inline bool answers(struct inode *inode)
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
