/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Files that are mapped: each is sent once in a look, with its path and what validates it,
 * and has a number from then on. */
#ifndef HALLMARK_LISTFILES_H
#define HALLMARK_LISTFILES_H

#include "events/list.h"
#include "filever.h"
#include "fs.h"
#include "path.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct dentry___super {
	struct super_block *d_sb;
};

struct vfsmount___super {
	struct super_block *mnt_sb;
};

/* The file of a mapping whose file system has its data in another one (overlayfs). Since
 * 6.8; before, f_path is what the user sees. */
struct backing_file {
	struct file file;
	struct path user_path;
};

#pragma clang attribute pop

#define MAX_COMPONENTS 64 /* of a path, with the mounts on the way */

/* What user space counts, before each look. */
__u64 look;

/* The last number that was given to a file, in all looks. */
__u64 numbers;

/* A name of a file. It lives as long as it is mapped, which may end while others are
 * looked at: so an address of the kernel says nothing without the validity. */
struct file_name {
	__u64 inode;
	__u64 dentry;
	__u64 mount;
};

struct told_file {
	struct validity valid;
	__u64 look;
	__u64 number;
};

#define MAX_TOLD 65536

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_TOLD);
	__type(key, struct file_name);
	__type(value, struct told_file);
} told_files SEC(".maps");

/* What is sent of a file, and room to make it up. */
struct file_scratch {
	struct told_file told;
	struct {
		struct listed_file file;
		char path[MAX_PATH + 8]; /* and what makes it a multiple of 8 */
	} record;
};

/* list_read_validity reads the validity of a file that is mapped. */
static __always_inline void list_read_validity(struct inode *inode, struct validity *v)
{
	filever_read(inode, v, true);
	v->pinned = fs_is_trusted(inode->i_sb->s_magic) ? 0 : NO_MAPPING;
}

/* list_is_same_file reports whether two validities of an inode are of one content. Unlike
 * filever_same it does not compare which mapping they are of: the list reads no contents. */
static __always_inline bool list_is_same_file(const struct validity *a, const struct validity *b)
{
	return a->ino == b->ino && a->size == b->size && a->dev == b->dev && a->generation == b->generation &&
	       a->mtime_sec == b->mtime_sec && a->mtime_nsec == b->mtime_nsec && a->ctime_sec == b->ctime_sec &&
	       a->ctime_nsec == b->ctime_nsec && a->medium == b->medium;
}

/* list_user_name sets the name by which the user mapped a file, where the file system has the
 * data in another one. The bit that marks such files is another one in each version; so
 * what is behind the file counts if it is a path: a directory entry and a mount of one
 * file system. */
static __always_inline void list_user_name(struct file *file, struct file_name *name)
{
	struct backing_file *backing = (void *)file;
	struct super_block *of_entry, *of_mount;
	struct vfsmount___super *mount;
	struct dentry___super *dentry;

	if (!bpf_core_field_exists(backing->user_path))
		return;
	dentry = (void *)BPF_CORE_READ(backing, user_path.dentry);
	mount = (void *)BPF_CORE_READ(backing, user_path.mnt);
	of_entry = BPF_CORE_READ(dentry, d_sb);
	of_mount = BPF_CORE_READ(mount, mnt_sb);
	if (!of_entry || of_entry != of_mount)
		return;
	name->dentry = (__u64)dentry;
	name->mount = (__u64)mount;
}

/* list_write_path writes the components of a path, the last first, and returns how many bytes. */
static __always_inline __u32 list_write_path(const struct file_name *name, char *out)
{
	struct way_up p = {
		.dentry = (void *)name->dentry,
		.mount = (void *)name->mount - bpf_core_field_offset(struct mount, mnt),
		.out = (void *)out,
	};

	bpf_loop(MAX_COMPONENTS, path_loop, &p, 0);
	return p.used;
}

/* list_write_file returns the number of a file, which is sent if it was not in this look. */
static __always_inline __u64 list_write_file(struct seq_file *seq, struct file *file, struct file_scratch *s)
{
	struct inode *inode = file->f_inode;
	struct told_file *known;
	struct file_name name = {
		(__u64)inode,
		(__u64)file->f_path.dentry,
		(__u64)file->f_path.mnt,
	};
	__u32 size;

	list_read_validity(inode, &s->told.valid);
	known = bpf_map_lookup_elem(&told_files, &name);
	if (known && known->look == look && list_is_same_file(&known->valid, &s->told.valid))
		return known->number;
	s->told.look = look;
	s->told.number = ++numbers;
	bpf_map_update_elem(&told_files, &name, &s->told, BPF_ANY); /* else it is sent again */
	s->record.file.kind = LISTED_FILE;
	s->record.file.number = s->told.number;
	s->record.file.inode = (__u64)inode;
	s->record.file.valid = s->told.valid;
	list_user_name(file, &name);
	size = list_write_path(&name, s->record.path) & (MAX_PATH - 1);
	s->record.file.path = size;
	size = sizeof(s->record.file) + ((size + 7) & ~7U);
	s->record.file.size = size;
	bpf_seq_write(seq, &s->record, size);
	return s->told.number;
}

#endif
