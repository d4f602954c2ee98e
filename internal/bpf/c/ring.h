/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The ring that events come to user space in. */
#ifndef HALLMARK_RING_H
#define HALLMARK_RING_H

#include "events/stack.h"
#include "kernel.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} events SEC(".maps");

/* ring_submit sends an event and wakes user space if there is reason to. */
static __always_inline bool ring_submit(void *event, __u64 size, bool wake)
{
	wake = wake || bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > (1 << 20);
	return !bpf_ringbuf_output(&events, event, size, wake ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

/* ring_wake wakes user space, because there is something to do before the next second. */
static __noinline void ring_wake(void)
{
	__u32 kind = EVENT_WAKE;

	ring_submit(&kind, sizeof(kind), true);
}

#endif
