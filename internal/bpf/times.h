/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* On which file systems the times of a file tell whether its content changed. Elsewhere an
 * identity counts for one mapping of one process alone, and only once it was read from the
 * pages of that mapping. */
#ifndef HALLMARK_TIMES_H
#define HALLMARK_TIMES_H

#include "kernel.h"
#include "events.h"

/* Magic numbers of file systems, which the loader sets: package fstimes has the list, with
 * the reasons. */
#define MAX_TRUSTED 8
const volatile __u32 trusted_magics[MAX_TRUSTED];

/* is_trusted reports whether the times of a file system with this magic number are believed.
 * Nothing branches, because the verifier would go both ways each time. */
static __always_inline bool is_trusted(__u32 magic)
{
	__u64 found = 0;

	_Pragma("unroll") for (int i = 0; i < MAX_TRUSTED; i++)
	{
		__u64 difference = magic ^ trusted_magics[i];

		barrier_var(difference);
		found |= (difference - 1) >> 63; /* 1 if there is none */
	}
	return found && magic;
}

/* is_of_mapping reports whether a validity is that of one mapping alone: see struct validity. */
static __always_inline bool is_of_mapping(const struct validity *v) { return v->pinned && !(v->pinned & 1); }

#endif
