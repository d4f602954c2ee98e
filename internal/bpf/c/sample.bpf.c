//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Counts stacks whose frames are (file, file offset): see frames.h.
//
// Stacks are de-duplicated here, so that user space's work grows with the number
// of distinct stacks, not with that of samples.

#include "follow.h"
#include "stock.h"
#include "hook.h"
#include "copy.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Whether the kernel's part of stacks is wanted. */
const volatile bool want_kernel = true;

/* Whether each sample is counted by itself, with its time. */
const volatile bool want_times = false;

/* What is counted lies in one of two maps, so that user space can empty the other
 * one while nobody writes into it. */
#define MAX_COUNTS 16384

struct counts_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_COUNTS);
	__type(key, struct count_key);
	__type(value, __u64);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct counts_map);
} counts SEC(".maps");

/* Entries in the map that is written into; user space sets it to 0. */
__u64 counted;

/* sample_send sends user space the frames of a stack, once. It reports whether user space has
 * them. */
static __always_inline bool sample_send(struct scratch *s, __u32 frames, __u8 end, const struct stack_id *id)
{
	__u64 tag = hash_mix(hash_mix(epoch, id->a), id->b);
	__u32 slot = tag >> 32 & (SENT_SETS - 1);
	struct sent_set *set = bpf_map_lookup_elem(&sent, &slot);
	struct stack_event *ev = &s->out;

	if (!set || sent_has(set, tag) || frames > MAX_FRAMES)
		return set;
	ev->kind = EVENT_STACK;
	ev->count = frames;
	ev->end = end;
	ev->stack = *id;
	if (!ring_submit(ev, sizeof(*ev) - (MAX_FRAMES - frames) * sizeof(struct frame), false)) {
		s->n.lost_events++;
		return false;
	}
	sent_remember(set, tag);
	return true;
}

/* sample_add counts one sample. It reports whether there was room. */
static __always_inline bool sample_add(struct count_key *key)
{
	__u32 zero = 0;
	__u64 one = 1, *n;
	void *map = bpf_map_lookup_elem(&counts, &zero);

	if (!map)
		return false;
	n = bpf_map_lookup_elem(map, key);
	if (!n && !bpf_map_update_elem(map, key, &one, BPF_NOEXIST)) {
		if (ADD(counted, 1) == MAX_COUNTS / 2)
			ring_wake();
		return true;
	}
	if (!n) /* another CPU was faster, or it is full */
		n = bpf_map_lookup_elem(map, key);
	if (n)
		ADD(*n, 1);
	return n;
}

/* sample_set_owner writes down whose sample it is. */
static __always_inline void sample_set_owner(struct walk *w)
{
	struct task_struct *leader = task_leader(w->task);
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	struct count_key *key = &w->s->key;

	key->stack.a = w->a;
	key->stack.b = w->b;
	key->cgroup = bpf_get_current_cgroup_id();
	key->started = GET(leader, start_boottime);
	key->seen = want_times ? bpf_ktime_get_ns() : 0;
	key->tgid = pid_tgid >> 32;
	key->tid = pid_tgid;
	bpf_get_current_comm(key->thread, sizeof(key->thread));
	bpf_probe_read_kernel(key->process, sizeof(key->process), &leader->comm);
}

/* sample_count counts the sample. It reports whether user space has the frames of its stack. */
static __always_inline bool sample_count(struct walk *w)
{
	if (sample_add(&w->s->key))
		return sample_send(w->s, w->frames, w->ended, &w->s->key.stack);
	w->s->n.lost_counts++;
	return false;
}

/* sample_pass_on has user space finish the sample, and reports whether it will. */
static __always_inline bool sample_pass_on(struct walk *w)
{
	return w->s->unwinding.unfinished && sample_send(w->s, w->frames, w->ended, &w->s->key.stack) && copy_sample(false);
}

static __always_inline void sample_unwinding(struct bpf_perf_event_data *ctx, struct walk *w)
{
	unwind_user(ctx, w);
	sample_set_owner(w);
	if (!sample_pass_on(w) && sample_count(w) && copy_all && w->mm)
		copy_sample(true);
}

SEC("perf_event")
int sample(struct bpf_perf_event_data *ctx)
{
	struct walk w = {.task = bpf_get_current_task_btf()};

	if (!follow_wants())
		return 0;
	w.s = state_scratch();
	if (!w.s)
		return 0;
	w.s->n.samples++;
	w.s->wished = 0;
	if (want_kernel)
		frames_walk_kernel(ctx, &w);
	if (unwinding) {
		sample_unwinding(ctx, &w);
	} else {
		frames_walk_user(ctx, &w);
		sample_set_owner(&w);
		sample_count(&w);
	}
	readid_ask_wishes(&w);
	return 0;
}
