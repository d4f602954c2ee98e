/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The few fields of the kernel's structures that the programs read. The loader
 * finds where they are in the running kernel (CO-RE); a suffix after three
 * underscores names another form that the same structure had. */
#ifndef HALLMARK_KERNEL_H
#define HALLMARK_KERNEL_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct gendisk {
	__u64 diskseq; /* since 5.15 */
};

struct block_device {
	struct gendisk *bd_disk;
};

struct backing_dev_info {
	__u64 id;
};

struct super_block {
	__u32 s_dev;
	__u32 s_time_gran; /* the step of its files' times, ns */
	unsigned long s_magic;
	struct block_device *s_bdev;
	struct backing_dev_info *s_bdi;
};

typedef struct {
	int counter;
} atomic_t;

struct address_space {
	atomic_t i_mmap_writable; /* shared mappings that may be written to */
};

/* Since 6.11. */
struct inode {
	struct super_block *i_sb;
	struct address_space *i_mapping;
	unsigned long i_ino;
	long long i_size;
	__u32 i_generation;
	atomic_t i_writecount;
	long long i_mtime_sec;
	__u32 i_mtime_nsec;
	long long i_ctime_sec;
	__u32 i_ctime_nsec;
};

/* Around the inode of a file in memory (include/linux/shmem_fs.h). */
struct shmem_inode_info {
	unsigned int seals;
	struct inode vfs_inode;
};

struct timespec64 {
	long long tv_sec;
	long tv_nsec;
};

/* 6.7 to 6.10; the change time since 6.6. */
struct inode___underscores {
	struct timespec64 __i_mtime;
	struct timespec64 __i_ctime;
};

/* Before. */
struct inode___plain {
	struct timespec64 i_mtime;
	struct timespec64 i_ctime;
};

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
};

struct vfsmount {
	struct dentry *mnt_root;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct file {
	struct inode *f_inode;
	struct path f_path;
};

struct maple_tree {
	void *ma_root;
};

/* Of an inner node; a leaf has slots for entries in place of nodes. */
struct maple_arange_64 {
	unsigned long pivot[9];
	void *slot[10];
};

struct maple_range_64 {
	unsigned long pivot[15];
	void *slot[16];
};

typedef struct {
	void *vdso;
} mm_context_t;

typedef struct {
	long long counter;
} atomic_long_t;

typedef struct seqcount {
	unsigned int sequence;
} seqcount_t;

struct rw_semaphore {
	atomic_long_t owner;
};

struct mm_struct {
	unsigned long task_size;
	unsigned long start_stack;
	struct maple_tree mm_mt;
	mm_context_t context;
	struct file *exe_file;
	struct rw_semaphore mmap_lock;
	seqcount_t mm_lock_seq; /* since 6.13 */
	atomic_t mm_users;
};

/* 6.4 to 6.12. */
struct mm_struct___number {
	int mm_lock_seq;
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	struct mm_struct *vm_mm;
	unsigned long vm_flags;
	unsigned long vm_pgoff;
	struct file *vm_file;
	void *anon_vma;
	unsigned int vm_lock_seq; /* since 6.4, with CONFIG_PER_VMA_LOCK */
};

struct signal_struct {
	int nr_threads;
};

struct task_struct {
	struct mm_struct *mm;
	struct task_struct *group_leader;
	struct signal_struct *signal;
	__u64 start_boottime;
	__u64 self_exec_id; /* counts exec */
	__u32 flags;
	int pid; /* of the thread */
	int tgid;
	char comm[16];
};

/* Of x86-64; what the programs want of it is only whether it is this one. */
struct pt_regs {
	unsigned long r15;
};

struct seq_file {
	unsigned long size;
	unsigned long count;
};

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

/* include/uapi/linux/bpf.h since 6.18. */
struct bpf_task_work {
	__u64 opaque;
} __attribute__((aligned(8)));

/* What programs on perf events get, and what lies there. */
struct bpf_perf_event_data {
	__u64 opaque;
};

/* What task work gets; nothing here looks into it. */

struct bpf_map {
	__u32 id;
};

typedef int task_work_callback(struct bpf_map *map, void *key, void *value);

/* kernel/bpf/helpers.c: with _impl in 6.18 and 6.19, without it later. */
extern int bpf_task_work_schedule_resume_impl(struct task_struct *task, struct bpf_task_work *tw, void *map,
					      task_work_callback *callback, void *aux) __ksym __weak;
extern int bpf_task_work_schedule_resume(struct task_struct *task, struct bpf_task_work *tw, void *map,
					 task_work_callback *callback) __ksym __weak;

/* Since 6.7: the VMAs of a process, locked against changes. */
struct bpf_iter_task_vma {
	__u64 opaque;
} __attribute__((aligned(8)));

extern int bpf_iter_task_vma_new(struct bpf_iter_task_vma *it, struct task_struct *task, __u64 address) __ksym __weak;
extern struct vm_area_struct *bpf_iter_task_vma_next(struct bpf_iter_task_vma *it) __ksym __weak;
extern void bpf_iter_task_vma_destroy(struct bpf_iter_task_vma *it) __ksym __weak;

/* Since 6.2: reads through the result are as fast as plain loads. */
extern void *bpf_rdonly_cast(const void *pointer, __u32 type) __ksym __weak;

#define VM_EXEC 4             /* include/linux/mm.h */
#define PF_KTHREAD 0x00200000 /* include/linux/sched.h */

#define ksym_exists(ksym) (!!(ksym))

/* GET reads a field of a structure that may be freed meanwhile: what a bad
 * pointer gives is 0, and the caller must check what it believes. */
#define GET(pointer, field)                                                                    \
	(ksym_exists(bpf_rdonly_cast)                                                               \
		 ? ((typeof(pointer))bpf_rdonly_cast((pointer),                                \
			bpf_core_type_id_kernel(typeof(*(pointer)))))->field                   \
		 : BPF_CORE_READ((pointer), field))

/* GET_POINTER reads a field that is a pointer, as a number. The verifier would take it
 * for one and let nothing be computed with it; so it is read as if it were a pivot. */
#define GET_POINTER(pointer, field)                                                            \
	GET((struct maple_range_64 *)((__u64)(pointer) +                                       \
				      bpf_core_field_offset(typeof(*(pointer)), field) -       \
				      bpf_core_field_offset(struct maple_range_64, pivot)),    \
	    pivot[0])

/* The machine that the kernel runs on, which the loader finds out. */
#define IS_X86 bpf_core_field_exists(((struct pt_regs *)0)->r15)

#define ADD(counter, n) __sync_fetch_and_add(&(counter), n)

#endif
