//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Ways of taking the user's part of a stack, to be measured side by side: as
// addresses, with build IDs by the kernel's own means, and by ours. And one that
// looks at the same frames in both ways.

#include "readid.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Where a frame is, by the mappings that the process had at that moment. */
enum where_mapped {
	IN_CODE,      /* in an executable mapping of a file */
	IN_DATA,      /* in another mapping of a file */
	IN_MEMORY,    /* in memory without a file, the vdso for instance */
	IN_NOTHING,   /* in no mapping */
	IN_CHANGE,    /* the mappings changed meanwhile */
	WHERE_MAPPED, /* how many these are */
};

#define STATUSES 3 /* enum bpf_stack_build_id_status */

struct comparison_counters {
	__u64 stacks;
	__u64 frames[WHERE_MAPPED * STATUSES];
};

struct comparison {
	struct comparison_counters n;
	struct bpf_stack_build_id ids[MAX_DEPTH];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct comparison);
} comparisons SEC(".maps");

/* User space sets how deep stacks may be. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(map_flags, BPF_F_STACK_BUILD_ID);
	__uint(max_entries, 4096);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, MAX_DEPTH * sizeof(struct bpf_stack_build_id));
} stacks SEC(".maps");

static __always_inline struct comparison *bench_comparison(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&comparisons, &zero);
}

SEC("perf_event")
int addresses(struct bpf_perf_event_data *ctx)
{
	struct scratch *s = state_scratch();

	if (s)
		bpf_get_stack(ctx, s->ips, sizeof(s->ips), BPF_F_USER_STACK);
	return 0;
}

SEC("perf_event")
int build_ids(struct bpf_perf_event_data *ctx)
{
	struct comparison *c = bench_comparison();

	if (c)
		bpf_get_stack(ctx, c->ids, sizeof(c->ids), BPF_F_USER_STACK | BPF_F_USER_BUILD_ID);
	return 0;
}

/* Nobody reads these stacks, so a new one may take the place of an old one. */
SEC("perf_event")
int stack_ids(struct bpf_perf_event_data *ctx)
{
	bpf_get_stackid(ctx, &stacks, BPF_F_USER_STACK | BPF_F_REUSE_STACKID);
	return 0;
}

SEC("perf_event")
int offsets(struct bpf_perf_event_data *ctx)
{
	struct walk w = {.s = state_scratch(), .task = bpf_get_current_task_btf()};

	if (!w.s)
		return 0;
	w.s->n.samples++;
	frames_walk_user(ctx, &w);
	return 0;
}

static __always_inline enum where_mapped bench_where_mapped(struct walk *w, __u64 ip)
{
	struct vm_area_struct *vma = vma_find((void *)w->mm, ip);
	struct area a;

	if (!vma)
		return IN_NOTHING;
	if (!vma_read(vma, w->mm, ip, &a))
		return IN_CHANGE;
	if (!a.file)
		return IN_MEMORY;
	return a.code ? IN_CODE : IN_DATA;
}

/* Both is one stack as it is seen in both ways. */
struct both {
	struct walk w;
	struct comparison *c;
};

static long bench_compare_loop(__u32 i, struct both *b)
{
	__u32 status, at;

	if (i >= MAX_DEPTH)
		return 1;
	status = b->c->ids[i].status;
	at = bench_where_mapped(&b->w, b->w.s->ips[i]) * STATUSES + status;
	if (status < STATUSES && at < WHERE_MAPPED * STATUSES)
		b->c->n.frames[at]++;
	return 0;
}

/* compare looks where each frame of a stack is to which the kernel gave a status. */
SEC("perf_event")
int compare(struct bpf_perf_event_data *ctx)
{
	struct both b = {.c = bench_comparison()};
	struct task_struct *task = bpf_get_current_task_btf();
	struct mm_struct *mm = task->mm;
	long n;

	b.w.s = state_scratch();
	if (!b.c || !b.w.s || !mm)
		return 0;
	n = bpf_get_stack(ctx, b.w.s->ips, sizeof(b.w.s->ips), BPF_F_USER_STACK);
	if (n <= 0 || bpf_get_stack(ctx, b.c->ids, sizeof(b.c->ids), BPF_F_USER_STACK | BPF_F_USER_BUILD_ID) <= 0)
		return 0;
	b.w.mm = (__u64)mm;
	b.c->n.stacks++;
	bpf_loop(n / sizeof(__u64), bench_compare_loop, &b, 0);
	return 0;
}
