/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What validates a file: inode number, device, generation, size and times, where these tell
 * the content of the file from any that it had or may get. Where they do not (fs.h), a mapping of
 * the file takes their place. */
#ifndef HALLMARK_FILEVER_H
#define HALLMARK_FILEVER_H

#include "events/stack.h"
#include "fs.h"
#include "task.h"
#include "vma.h"

/* Set by the loader where the kernel has task work. */
const volatile bool task_work = false;

/* filever_is_of_mapping reports whether a validity is that of one mapping alone: see struct validity. */
static __always_inline bool filever_is_of_mapping(const struct validity *v) { return v->pinned && !(v->pinned & 1); }

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

/* I_CTIME_QUERIED of include/linux/fs.h, since 6.13: no part of the time. */
#define CTIME_QUERIED (1U << 31)

/* filever_medium returns a number that no two media have, though one after the other has the
 * same device number, and files of the same numbers and times: images of read-only file
 * systems that were built to be reproducible have. */
static __always_inline __u64 filever_medium(struct super_block *super)
{
	struct block_device *device = GET(super, s_bdev);
	struct backing_dev_info *info;
	struct gendisk *disk;

	if (device) {
		disk = GET(device, bd_disk);
		return GET(disk, diskseq);
	}
	info = GET(super, s_bdi);
	return GET(info, id);
}

/* filever_read reads the validity of an inode, as one whose times tell its content. */
static __always_inline void filever_read(struct inode *inode, struct validity *v)
{
	struct super_block *super = GET(inode, i_sb);

	v->pinned = 0;
	v->ino = GET(inode, i_ino);
	v->size = GET(inode, i_size);
	v->dev = GET(super, s_dev);
	v->medium = filever_medium(super);
	v->generation = GET(inode, i_generation);
	if (!bpf_core_field_exists(inode->i_mtime_sec)) {
		filever_read_times(inode, v);
		return;
	}
	v->mtime_sec = GET(inode, i_mtime_sec);
	v->mtime_nsec = GET(inode, i_mtime_nsec);
	v->ctime_sec = GET(inode, i_ctime_sec);
	v->ctime_nsec = GET(inode, i_ctime_nsec) & ~CTIME_QUERIED;
}

/* filever_same reports whether two validities are of one content. */
static __always_inline bool filever_same(const struct validity *a, const struct validity *b)
{
	return a->ino == b->ino && a->size == b->size && a->dev == b->dev && a->generation == b->generation &&
	       a->mtime_sec == b->mtime_sec && a->mtime_nsec == b->mtime_nsec &&
	       a->ctime_sec == b->ctime_sec && a->ctime_nsec == b->ctime_nsec && a->pinned == b->pinned &&
	       a->medium == b->medium;
}

/* Where the clock of files (CLOCK_REALTIME) is from that of the programs, ns. User
 * space keeps it up to date. */
__s64 wall_clock;

/* How far the times that files get may be behind the clock, ns: a change that comes so soon
 * after another one may leave the times as they are. User space sets it (fstimes.Delay). */
const volatile __s64 times_delay;

static __always_inline __s64 filever_now(void) { return bpf_ktime_get_ns() + wall_clock; }

/* How many have the file open for writing; below 0 when nobody may. */
static __always_inline int filever_writers(struct inode *inode) { return GET(inode, i_writecount.counter); }

/* filever_is_memory reports whether the file is memory that somebody may write to at any moment
 * and nobody has opened: who makes a memfd does not count as one who has it open for
 * writing. Stores into its mappings leave a trace in the times once for each page. */
static __always_inline bool filever_is_memory(struct inode *inode)
{
	struct super_block *super = GET(inode, i_sb);
	struct address_space *mapping;

	if (GET(super, s_bdev) || filever_writers(inode) > 0)
		return false;
	mapping = GET(inode, i_mapping);
	return GET(mapping, i_mmap_writable.counter) > 0;
}

/* filever_is_program reports whether the file is the one that the process executed, and nobody
 * can write to it as long as the process is there (exe_file_deny_write_access). */
static __always_inline bool filever_is_program(struct mm_struct *mm, struct inode *inode)
{
	struct file *exe = GET(mm, exe_file);

	return filever_writers(inode) < 0 && BPF_CORE_READ(exe, f_inode) == inode;
}

/* filever_time_step returns how long the times of a file may stand still, ns: file systems round them
 * down, those without room for more to seconds (ext4 with inodes of 128 bytes). */
static __always_inline __s64 filever_time_step(struct inode *inode)
{
	struct super_block *super = GET(inode, i_sb);

	return times_delay + GET(super, s_time_gran);
}

/* filever_settle reports whether what is in v tells the content of the file from any that it may
 * have had or get. A file open for writing may change without a trace in its times:
 * they are set before the data, and not at all by stores to shared memory. If it is
 * not settled, young says that only the age of the file is missing. The process is that of
 * task_executed(). */
static __always_inline bool filever_settle(__u64 process, struct mm_struct *mm, struct inode *inode, struct validity *v,
					   bool *young)
{
	__s64 age = filever_now() - (v->ctime_sec * 1000000000LL + v->ctime_nsec);

	*young = false;
	if (filever_is_memory(inode))
		return false;
	*young = filever_writers(inode) <= 0;
	/* A time in the future is none of a change that was just made. */
	if ((__u64)(age + times_delay) > (__u64)(times_delay + filever_time_step(inode)) && *young)
		return true;
	if (!filever_is_program(mm, inode))
		return false;
	v->pinned = process;
	return true;
}

/* filever_keeps_times reports whether the times of an inode tell each change of its content. */
static __always_inline bool filever_keeps_times(struct inode *inode)
{
	struct super_block *super = GET(inode, i_sb);

	return fs_is_trusted(GET(super, s_magic));
}

/* filever_mapping returns a number for a mapping of a process that no other mapping has, before
 * it or after it: a VMA that is made or changed is marked with the number of that change
 * (see vma_at_rest). There are no marks before 6.4, and then it is NO_MAPPING. */
static __always_inline __u64 filever_mapping(__u64 process, struct vm_area_struct *vma, __u64 start)
{
	if (!bpf_core_field_exists(vma->vm_lock_seq))
		return NO_MAPPING;
	return (hash_mix(hash_mix(process, GET(vma, vm_lock_seq)), start) >> 1 & ~11ULL) | 4;
}

/* filever_must_be_read reports whether no frame may have a serial number before an identity was
 * read: the file may have changed between the two. A program that executes is read before
 * it runs, so whoever watches that needs not wait. */
#ifdef READ_BEFORE_IT_RUNS
#define READS_FIRST true
#define filever_must_be_read(v) false
#else
#define READS_FIRST false
#define filever_must_be_read(v) filever_is_of_mapping(v)
#endif

/* filever_settle_mapping is filever_settle for a file that is mapped: where its times tell nothing, the
 * mapping is what its validity names. So it is where they tell nothing yet, because the file
 * changed a moment ago, if it is about to run, nobody writes to it, and the process can read its
 * identity. It is global as maple_find is. */
__noinline bool filever_settle_mapping(__u64 process, __u64 mm, __u64 file, __u64 mapping, struct validity *v)
{
	struct vm_area_struct *vma = (void *)mapping;
	struct inode *inode = (void *)file;
	bool young, settled, kept;

	if (!v)
		return false;
	settled = filever_settle(process, (void *)mm, inode, v, &young);
	kept = filever_keeps_times(inode);
	young = READS_FIRST && young && !settled && task_work;
	if (kept && !young)
		return settled;
	v->pinned = filever_mapping(process, vma, GET(vma, vm_start));
	if (!young || v->pinned == NO_MAPPING)
		return settled;
	if (kept)
		v->pinned |= YOUNG_MAPPING;
	return true;
}

#endif
