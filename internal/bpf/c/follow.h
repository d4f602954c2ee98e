/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which processes are recorded. Events are always those of CPUs, which keep their
 * phase: an event that is inherited starts a new period with each task, so that what
 * runs for less than one is never sampled. */
#ifndef HALLMARK_FOLLOW_H
#define HALLMARK_FOLLOW_H

#include "kernel.h"

/* Whether only the followed processes are recorded. */
const volatile bool follow = false;

enum followed_state {
	FOLLOW_WAITS = 0, /* to execute its program */
	FOLLOW_RUNS = 1,
};

#define MAX_FOLLOWED 16384

/* The followed processes, by tgid. Samples only look things up here; what changes it
 * runs in tasks and in RCU callbacks, never in an NMI. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_FOLLOWED);
	__type(key, __u32);
	__type(value, __u32); /* enum followed_state */
} followed SEC(".maps");

/* follow_wants reports whether the current task is to be sampled. */
static __always_inline bool follow_wants(void)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32, *state;

	if (!follow)
		return true;
	state = bpf_map_lookup_elem(&followed, &tgid);
	return state && *state == FOLLOW_RUNS;
}

#endif
