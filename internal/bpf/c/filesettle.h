/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whether what validates a file distinguishes its content from any that it had or may get. Where it does
 * not, because of the file system (fs.h) or because the file has just changed, a mapping of the
 * file takes the place of its times. */
#ifndef HALLMARK_FILESETTLE_H
#define HALLMARK_FILESETTLE_H

#include "filever.h"
#include "fs.h"
#include "hash.h"
#include "task.h"
#include "vma.h"

/* Set by the loader where the kernel has task work. */
const volatile bool task_work = false;

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

/* filever_settle reports whether v distinguishes the content of the file from any that it may
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

#define TMPFS_SUPER_MAGIC 0x01021994
#define SEAL_WRITE 8 /* F_SEAL_WRITE of include/uapi/linux/fcntl.h */

/* filever_is_sealed reports whether nobody can write to a memfd any more. The kernel denies mappings for
 * writing before it waits for those that write by other ways, and sets the seal when none is
 * left (memfd_add_seals, mm/memfd.c). F_SEAL_EXEC alone set the seal until May 2026, and denied nothing. */
static __always_inline bool filever_is_sealed(struct inode *inode)
{
	struct shmem_inode_info *info = (void *)inode;
	struct address_space *mapping = GET(inode, i_mapping);
	__u32 writable = GET(mapping, i_mmap_writable.counter), seals;

	if (!bpf_core_field_exists(info->seals))
		return false;
	info = (void *)info - bpf_core_field_offset(info->vfs_inode);
	seals = GET(info, seals);
	return writable >> 31 & seals / SEAL_WRITE;
}

/* filever_keeps_times reports whether the times of an inode show each change of its content: those of a
 * file in memory do but for stores to pages that are mapped for writing. */
static __always_inline bool filever_keeps_times(struct inode *inode)
{
	struct super_block *super = GET(inode, i_sb);
	__u64 magic = GET(super, s_magic);
	__u64 difference = magic ^ TMPFS_SUPER_MAGIC;

	barrier_var(difference);
	return fs_is_trusted(magic) | ((difference - 1) >> 63 & filever_is_sealed(inode));
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

/* filever_settle_mapping is filever_settle for a file that is mapped: where its times show nothing, the
 * mapping is what its validity names. So it is where they show nothing yet, because the file
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
