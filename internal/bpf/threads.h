/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Threads have the memory of their process, which is looked at through the first one. Where
 * that has ended, each of the others shows the same. */
#ifndef HALLMARK_THREADS_H
#define HALLMARK_THREADS_H

#include "kernel.h"

/* leader_of returns the first thread of a process. */
static __always_inline struct task_struct *leader_of(struct task_struct *task)
{
	return (void *)GET_POINTER(task, group_leader);
}

/* lost_leader reports whether the first thread of a process has ended and others go on,
 * which may have been passed over while it had not. */
static __always_inline bool lost_leader(struct task_struct *task)
{
	struct signal_struct *signal = (void *)GET_POINTER(task, signal);

	return !GET_POINTER(task, mm) && task->pid == task->tgid && !(task->flags & PF_KTHREAD) && GET(signal, nr_threads) > 1;
}

/* shows_process reports whether a process is looked at through this thread. */
static __always_inline bool shows_process(struct task_struct *task)
{
	return GET_POINTER(task, mm) && !(task->flags & PF_KTHREAD) &&
	       (task->pid == task->tgid || !GET_POINTER(leader_of(task), mm));
}

#endif
