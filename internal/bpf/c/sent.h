/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What user space has been sent already: stacks, mostly. */
#ifndef HALLMARK_SENT_H
#define HALLMARK_SENT_H

#include "kernel.h"

/* Sets of tags, the last one first. A tag is a hash of the stack and of the epoch in which
 * it was sent; user space begins a new epoch when it forgets stacks. It is one word, so
 * that it is never half written, and takes no lock. Two stacks of one tag, one in 2^64,
 * would be one that is never sent: its samples count as lost. */
#define SENT_SETS 16384 /* a power of two */
#define SENT_WAYS 4

struct sent_set {
	__u64 tags[SENT_WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SENT_SETS);
	__type(key, __u32);
	__type(value, struct sent_set);
} sent SEC(".maps");

/* Begins with 1: the tag of a stack without frames in epoch 0 would be that of an empty
 * place. */
__u32 epoch = 1;

static __always_inline bool sent_has(const struct sent_set *set, __u64 tag)
{
	return set->tags[0] == tag || set->tags[1] == tag || set->tags[2] == tag || set->tags[3] == tag;
}

/* sent_remember puts a tag in the place of the oldest of its set. When CPUs do so at
 * once, a tag may be lost or be there twice. */
static __always_inline void sent_remember(struct sent_set *set, __u64 tag)
{
	set->tags[3] = set->tags[2];
	set->tags[2] = set->tags[1];
	set->tags[1] = set->tags[0];
	set->tags[0] = tag;
}

#endif
