/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From a file up to the root of all mounts: a mount is crossed where its root is reached
 * (fs/d_path.c). Names may change meanwhile: a path is for people, and for user space to
 * try. */
#ifndef HALLMARK_PATH_H
#define HALLMARK_PATH_H

#include "events/stack.h"
#include "kernel.h"

struct path_text {
	char text[MAX_PATH];
};

/* way_up is the way from a file up to the root. */
struct way_up {
	struct dentry *dentry;
	struct mount *mount;
	struct path_text *out;
	__u32 used; /* bytes of out */
};

/* path_loop goes one level up, or from a mount to what it is mounted on. */
static long path_loop(__u32 i, struct way_up *p)
{
	struct dentry *dentry = p->dentry, *parent = BPF_CORE_READ(dentry, d_parent);
	struct mount *mount = p->mount;
	__u32 used = p->used;
	long n;

	if (dentry == BPF_CORE_READ(mount, mnt.mnt_root) && mount != BPF_CORE_READ(mount, mnt_parent)) {
		p->dentry = BPF_CORE_READ(mount, mnt_mountpoint);
		p->mount = BPF_CORE_READ(mount, mnt_parent);
		return 0;
	}
	if ((dentry == parent && i > 0) || used > MAX_PATH / 2 - 1)
		return 1;
	n = bpf_probe_read_kernel_str(&p->out->text[used & (MAX_PATH / 2 - 1)], MAX_PATH / 2, BPF_CORE_READ(dentry, d_name.name));
	if (n <= 0)
		return 1;
	p->used = used + n;
	p->dentry = parent;
	return dentry == parent;
}

#endif
