/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The hash that tags, seals and numbers are made with. It is fast, and keeps nobody from making
 * two of one. */
#ifndef HALLMARK_HASH_H
#define HALLMARK_HASH_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>

/* hash_mix mixes a value into a hash. */
static __always_inline __u64 hash_mix(__u64 hash, __u64 value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15;
	return hash ^ hash >> 29;
}

#endif
