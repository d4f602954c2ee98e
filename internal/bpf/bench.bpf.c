//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Three ways of taking the user's part of a stack, to be measured side by side: as
// addresses, with build IDs by the kernel's own means, and by ours.

#include "capture.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct stackmap_counters {
	__u64 stacks;
	__u64 failed;
	__u64 valid; /* frames with a build ID */
	__u64 ip;    /* frames with an address only */
	__u64 empty;
};

struct stackmap_frames {
	struct stackmap_counters n;
	struct bpf_stack_build_id ids[MAX_DEPTH];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stackmap_frames);
} stackmaps SEC(".maps");

SEC("perf_event")
int raw(struct bpf_perf_event_data *ctx)
{
	struct scratch *s = scratch();

	if (s)
		bpf_get_stack(ctx, s->ips, sizeof(s->ips), BPF_F_USER_STACK);
	return 0;
}

static long status_loop(__u32 i, struct stackmap_frames **p)
{
	struct stackmap_frames *f = *p;

	if (i >= MAX_DEPTH)
		return 1;
	switch (f->ids[i].status) {
	case BPF_STACK_BUILD_ID_VALID:
		f->n.valid++;
		break;
	case BPF_STACK_BUILD_ID_IP:
		f->n.ip++;
		break;
	default:
		f->n.empty++;
	}
	return 0;
}

SEC("perf_event")
int stackmap(struct bpf_perf_event_data *ctx)
{
	__u32 zero = 0;
	struct stackmap_frames *f = bpf_map_lookup_elem(&stackmaps, &zero);
	long n;

	if (!f)
		return 0;
	n = bpf_get_stack(ctx, f->ids, sizeof(f->ids), BPF_F_USER_STACK | BPF_F_USER_BUILD_ID);
	if (n < 0) {
		f->n.failed++;
		return 0;
	}
	f->n.stacks++;
	bpf_loop(n / sizeof(f->ids[0]), status_loop, &f, 0);
	return 0;
}

SEC("perf_event")
int ours(struct bpf_perf_event_data *ctx)
{
	struct walk w = {.s = scratch(), .task = bpf_get_current_task_btf()};

	if (!w.s)
		return 0;
	w.s->n.samples++;
	walk_user(ctx, &w);
	return 0;
}
