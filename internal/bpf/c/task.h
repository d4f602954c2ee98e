/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Tasks and their processes.
 *
 * Threads have the memory of their process, which is looked at through the first one. Where
 * that has ended, each of the others shows the same. */
#ifndef HALLMARK_TASK_H
#define HALLMARK_TASK_H

#include "hash.h"
#include "kernel.h"

/* task_current_mm returns the memory of the current task. It is read as a number: of each pointer
 * that is loaded through one that may be trusted, the verifier looks for the type by name,
 * among all of the kernel's. */
static __always_inline struct mm_struct *task_current_mm(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return (void *)GET_POINTER(task, mm);
}

/* task_executed returns a number for the program that a process executed. */
static __always_inline __u64 task_executed(struct task_struct *task)
{
	struct task_struct *leader = GET(task, group_leader);

	return hash_mix(GET(leader, start_boottime), GET(task, self_exec_id)) | 1;
}

/* task_leader returns the first thread of a process. */
static __always_inline struct task_struct *task_leader(struct task_struct *task)
{
	return (void *)GET_POINTER(task, group_leader);
}

/* task_lost_leader reports whether the first thread of a process has ended and others go on,
 * which may have been passed over while it had not. */
static __always_inline bool task_lost_leader(struct task_struct *task)
{
	struct signal_struct *signal = (void *)GET_POINTER(task, signal);

	return !GET_POINTER(task, mm) && task->pid == task->tgid && !(task->flags & PF_KTHREAD) &&
	       GET(signal, nr_threads) > 1;
}

/* task_shows_process reports whether a process is looked at through this thread. */
static __always_inline bool task_shows_process(struct task_struct *task)
{
	return GET_POINTER(task, mm) && !(task->flags & PF_KTHREAD) &&
	       (task->pid == task->tgid || !GET_POINTER(task_leader(task), mm));
}

#endif
