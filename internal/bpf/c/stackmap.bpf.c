//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Counts stacks by the kernel's own means: a map of stacks whose user frames are
// (build ID, file offset), BPF_MAP_TYPE_STACK_TRACE with BPF_F_STACK_BUILD_ID, and
// one of addresses for the kernel's part, which has no build IDs.
//
// Nothing here is newer than Linux 5.8; it is tested with 5.10.

#include "events/stack.h"
#include "follow.h"
#include "kernel.h"

#include <linux/errno.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Whether the kernel's part of stacks is wanted. */
const volatile bool want_kernel = true;

/* Whether each sample is counted by itself, with its time. */
const volatile bool want_times = false;

/* There is everything twice, so that user space can empty one side while nobody
 * writes into it. User space sets how many entries there are, and how deep they may
 * be. */
struct user_stacks {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(map_flags, BPF_F_STACK_BUILD_ID);
	__uint(max_entries, 4096);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, MAX_DEPTH * sizeof(struct bpf_stack_build_id));
} users_a SEC(".maps"), users_b SEC(".maps");

struct kernel_stacks {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 4096);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, MAX_DEPTH * sizeof(__u64));
} kernels_a SEC(".maps"), kernels_b SEC(".maps");

/* In the keys the two halves of a stack's number are the numbers that the maps of
 * stacks gave for the user's and the kernel's part, below 0 for none. */
struct counts_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct count_key);
	__type(value, __u64);
} counts_a SEC(".maps"), counts_b SEC(".maps");

/* Which side is written into: false for a. It lies in a map of maps, because
 * replacing an element of one waits for the programs that still have the old one. */
struct side_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct side_map);
} side SEC(".maps");

struct stackmap_counters {
	__u64 samples;
	__u64 collided; /* samples whose stack fell on the place of another one */
	__u64 no_room;  /* samples that a map of stacks had no room for */
	__u64 lost_counts;
} n;

/* Whether a part of the stack found no place. -EFAULT says that there is none. */
static __always_inline bool stackmap_lost(long id) { return id < 0 && id != -EFAULT; }

/* stackmap_add counts one sample. It reports whether there was room. */
static __always_inline bool stackmap_add(void *counts, struct count_key *key)
{
	__u64 one = 1, *count = bpf_map_lookup_elem(counts, key);

	if (!count) {
		if (!bpf_map_update_elem(counts, key, &one, BPF_NOEXIST))
			return true;
		/* another CPU was faster, or it is full */
		count = bpf_map_lookup_elem(counts, key);
	}
	if (count)
		ADD(*count, 1);
	return count;
}

static __always_inline void stackmap_count(void *ctx, void *users, void *kernels, void *counts)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	struct count_key key = {};
	long user, kernel;

	/* Not BPF_F_REUSE_STACKID: what was counted of the stack that was there before
	 * would go to the new one. */
	key.stack.a = user = bpf_get_stackid(ctx, users, BPF_F_USER_STACK);
	key.stack.b = kernel = want_kernel ? bpf_get_stackid(ctx, kernels, 0) : -EFAULT;
	if (stackmap_lost(user) || stackmap_lost(kernel)) {
		if (user == -EEXIST || kernel == -EEXIST)
			ADD(n.collided, 1);
		else
			ADD(n.no_room, 1);
		return;
	}
	key.cgroup = bpf_get_current_cgroup_id();
	key.started = BPF_CORE_READ(leader, start_boottime);
	key.seen = want_times ? bpf_ktime_get_ns() : 0;
	key.tgid = pid_tgid >> 32;
	key.tid = pid_tgid;
	bpf_get_current_comm(key.thread, sizeof(key.thread));
	bpf_probe_read_kernel(key.process, sizeof(key.process), &leader->comm);
	if (!stackmap_add(counts, &key))
		ADD(n.lost_counts, 1);
}

SEC("perf_event")
int sample_stackmap(struct bpf_perf_event_data *ctx)
{
	__u32 zero = 0, *b;
	void *map;

	if (!follow_wants())
		return 0;
	map = bpf_map_lookup_elem(&side, &zero);
	if (!map)
		return 0;
	b = bpf_map_lookup_elem(map, &zero);
	if (!b)
		return 0;
	ADD(n.samples, 1);
	if (*b)
		stackmap_count(ctx, &users_b, &kernels_b, &counts_b);
	else
		stackmap_count(ctx, &users_a, &kernels_a, &counts_a);
	return 0;
}
