//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Keeps the map of followed processes: see follow.h. Raw tracepoints are what every
// kernel has, and need none of its types to be attached.

#include "follow.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Processes that there was no room for. */
__u64 unfollowed;

/* sched_process_fork(parent, child), before the child runs. */
SEC("raw_tp/sched_process_fork")
int follow_fork(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *parent = (void *)ctx->args[0], *child = (void *)ctx->args[1];
	__u32 from = BPF_CORE_READ(parent, tgid), tgid = BPF_CORE_READ(child, tgid);
	__u32 *state = bpf_map_lookup_elem(&followed, &from);

	if (BPF_CORE_READ(child, pid) != tgid)
		return 0; /* a thread */
	if (state) {
		if (bpf_map_update_elem(&followed, &tgid, state, BPF_ANY))
			ADD(unfollowed, 1);
	} else if (bpf_map_lookup_elem(&followed, &tgid)) {
		bpf_map_delete_elem(&followed, &tgid); /* of an earlier process, if follow_free could not */
	}
	return 0;
}

/* sched_process_exec(task, old pid, bprm), when the new program is there. */
SEC("raw_tp/sched_process_exec")
int follow_exec(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (void *)ctx->args[0];
	__u32 tgid = BPF_CORE_READ(task, tgid), *state = bpf_map_lookup_elem(&followed, &tgid);

	if (state && *state == FOLLOW_WAITS)
		*state = FOLLOW_RUNS;
	return 0;
}

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
