/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The VMAs of the current process, without a lock of the memory management: they are found in
 * their tree (maple.h), and believed only if they say themselves, before and after they are
 * read, that they hold the address in this very process, and nobody changed them meanwhile:
 * see vma_at_rest. */
#ifndef HALLMARK_VMA_H
#define HALLMARK_VMA_H

#include "maple.h"

/* A VMA as it says itself that it is. */
struct area {
	__u64 start, end;
	__u64 offset; /* of start in the file */
	struct file *file;
	bool code; /* it may be executed */
};

/* vma_tree returns the root of the tree of a process's VMAs. */
static __always_inline __u64 vma_tree(struct mm_struct *mm) { return GET_POINTER(mm, mm_mt.ma_root); }

/* vma_find returns the VMA that may hold an address, or NULL: see vma_read. */
static __always_inline struct vm_area_struct *vma_find(struct mm_struct *mm, __u64 address)
{
	return (void *)maple_find(vma_tree(mm), address);
}

/* vma_read copies what the VMA says, and reports whether it is one of mm that
 * holds address, and did not change meanwhile. */
static __always_inline bool vma_read(struct vm_area_struct *vma, __u64 mm, __u64 address, struct area *a)
{
	a->start = GET(vma, vm_start);
	a->end = GET(vma, vm_end);
	a->offset = GET(vma, vm_pgoff) << 12;
	a->file = GET(vma, vm_file);
	a->code = GET(vma, vm_flags) & VM_EXEC;
	barrier();
	return address >= a->start && address < a->end && a->start == GET(vma, vm_start) &&
	       (__u64)GET(vma, vm_mm) == mm && a->file == GET(vma, vm_file) && a->offset == GET(vma, vm_pgoff) << 12;
}

/* vma_changes returns a number that grows when mappings of the process were changed:
 * since 6.4, else it is 0. */
static __always_inline __u32 vma_changes(struct mm_struct *mm)
{
	struct mm_struct___number *older = (void *)mm;

	/* Not computed where the kernel has no such field: that is an instruction that it
	 * refuses, and so may not be moved out of here. */
	if (bpf_core_field_exists(mm->mm_lock_seq.sequence)) {
		barrier_var(mm);
		return GET(mm, mm_lock_seq.sequence);
	}
	if (bpf_core_field_exists(older->mm_lock_seq)) {
		barrier_var(older);
		return BPF_CORE_READ(older, mm_lock_seq);
	}
	return 0;
}

/* RWSEM_READER_OWNED of kernel/locking/rwsem.c: the owner is one of many readers. */
#define READER_OWNED 1

/* Of struct pt_regs, the word with the number of the system call: arch/x86/include/asm/ptrace.h,
 * arch/arm64/include/asm/ptrace.h. */
#define SYSTEM_CALL (IS_X86 ? 15 : 35)

/* Numbers of clone, fork, vfork, clone3. */
#define IS_FORK(n) ((n) == 435 || (IS_X86 ? (n) >= 56 && (n) <= 58 : (n) == 220))

/* vma_task_forks reports whether the current task copies its memory for a child. It marks all its
 * VMAs meanwhile, but changes none of them (dup_mmap in mm/mmap.c). */
static __always_inline bool vma_task_forks(struct mm_struct *mm)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 regs = bpf_task_pt_regs(task);
	__u32 call = 0;

	/* With PREEMPT_RT a lock does not say who has it. */
	if (!bpf_core_field_exists(mm->mmap_lock.owner))
		return false;
	barrier_var(mm);
	if ((BPF_CORE_READ(mm, mmap_lock.owner.counter) & ~7ULL) != (__u64)task)
		return false;
	bpf_probe_read_kernel(&call, sizeof(call), (void *)(regs + 8 * SYSTEM_CALL));
	return IS_FORK(call);
}

/* vma_at_rest reports whether nobody has changed a VMA since vma_changes() was the given
 * number, nor is about to. Who changes or removes one marks it with that number
 * first (vma_start_write, include/linux/mmap_lock.h). Before 6.4 there are no marks,
 * and it is only asked whether somebody else may change mappings right now: the
 * process is not interrupted in the midst of a change to the code that it runs. */
static __always_inline bool vma_at_rest(struct vm_area_struct *vma, struct mm_struct *mm, __u32 since)
{
	__u64 owner;

	barrier();
	if (bpf_core_field_exists(vma->vm_lock_seq))
		return vma_changes(mm) == since && (GET(vma, vm_lock_seq) != since || vma_task_forks(mm));
	barrier_var(mm); /* not before, as in vma_changes() */
	owner = BPF_CORE_READ(mm, mmap_lock.owner.counter);
	return !owner || owner & READER_OWNED || owner == bpf_get_current_task();
}

#endif
