//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Keeps the map of followed processes: see follow.h. Raw tracepoints are what every
// kernel has, and need none of its types to be attached.

#include "follow.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Processes that there was no room for. */
__u64 unfollowed;

/* Since 7.0 programs on raw tracepoints may be preempted, and the kernel leaves out what
 * another task would run of the same program on that CPU meanwhile: see hold_cpu in
 * exec.bpf.c. So the loader attaches copies there. To do a thing again changes nothing. */

/* sched_process_fork(parent, child), before the child runs. */
static __always_inline void follow_see_fork(struct bpf_raw_tracepoint_args *ctx, bool copy)
{
	struct task_struct *parent = (void *)ctx->args[0], *child = (void *)ctx->args[1];
	__u32 from = BPF_CORE_READ(parent, tgid), tgid = BPF_CORE_READ(child, tgid);
	__u32 *state = bpf_map_lookup_elem(&followed, &from);

	if (BPF_CORE_READ(child, pid) != tgid)
		return; /* a thread */
	if (state) {
		if (bpf_map_update_elem(&followed, &tgid, state, BPF_ANY) && !copy)
			ADD(unfollowed, 1);
	} else if (bpf_map_lookup_elem(&followed, &tgid)) {
		bpf_map_delete_elem(&followed, &tgid); /* of an earlier process, if follow_free could not */
	}
}

#define FOLLOW_FORK(name, copy)                                                                \
	SEC("raw_tp/sched_process_fork")                                                       \
	int name(struct bpf_raw_tracepoint_args *ctx)                                          \
	{                                                                                      \
		follow_see_fork(ctx, copy);                                                           \
		return 0;                                                                      \
	}

FOLLOW_FORK(follow_fork, false)
FOLLOW_FORK(follow_fork_2, true)
FOLLOW_FORK(follow_fork_3, true)

/* sched_process_exec(task, old pid, bprm), when the new program is there. */
static __always_inline void follow_see_exec(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (void *)ctx->args[0];
	__u32 tgid = BPF_CORE_READ(task, tgid), *state = bpf_map_lookup_elem(&followed, &tgid);

	if (state && *state == FOLLOW_WAITS)
		*state = FOLLOW_RUNS;
}

#define FOLLOW_EXEC(name)                                                                      \
	SEC("raw_tp/sched_process_exec")                                                       \
	int name(struct bpf_raw_tracepoint_args *ctx)                                          \
	{                                                                                      \
		follow_see_exec(ctx);                                                                 \
		return 0;                                                                      \
	}

FOLLOW_EXEC(follow_exec)
FOLLOW_EXEC(follow_exec_2)
FOLLOW_EXEC(follow_exec_3)

/* sched_process_free(task), when nothing of the task will run any more: at its exit it
 * still has its memory to give back. The number of a process is free a little before;
 * that it would have another owner by now takes all other numbers to be used up. */
SEC("raw_tp/sched_process_free")
int follow_free(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (void *)ctx->args[0];
	__u32 tgid = BPF_CORE_READ(task, tgid);

	if (BPF_CORE_READ(task, pid) == tgid && bpf_map_lookup_elem(&followed, &tgid))
		bpf_map_delete_elem(&followed, &tgid);
	return 0;
}
