/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From one VMA of a process to the next, in its tree (maple.h), without a lock. Whether something is there is
 * true at some moment only; see vma.h for when a VMA may be believed. */
#ifndef HALLMARK_MAPLENEXT_H
#define HALLMARK_MAPLENEXT_H

#include "maple.h"

/* The slot of a tree of VMAs that an address is in. */
struct slot {
	__u64 root;
	__u64 address;
	__u64 entry; /* 0: nothing is mapped there */
	__u64 last;  /* address in it */
};

/* maple_enter_slot goes one level down. A slot that has no pivot ends where its node does. */
static __always_inline void maple_enter_slot(struct slot *s, __u32 type)
{
	struct maple_arange_64 *inner = (void *)(s->entry & ~0xffULL);
	struct maple_range_64 *node = (void *)(s->entry & ~0xffULL);
	__u64 pivot = 0;
	__u32 i;

	if (type == MAPLE_ARANGE_64) {
		i = maple_slot_until(inner, 9, s->address, pivot);
		s->entry = maple_read_slot(inner, i);
	} else {
		i = maple_slot_until(node, 15, s->address, pivot);
		s->entry = maple_read_slot(node, i);
	}
	if (pivot)
		s->last = pivot;
}

/* maple_find_slot finds the slot of s->address. It is global as maple_find is. */
__noinline int maple_find_slot(struct slot *s)
{
	if (!s)
		return 0;
	s->entry = s->root;
	s->last = ~0ULL;
	if ((s->root & 3) != 2)
		s->entry = 0;
	for (int depth = 0; depth < MAPLE_DEPTH && s->entry; depth++) {
		__u32 type = (s->entry >> 3) & 0xf;

		if (type == MAPLE_DENSE)
			s->entry = 0;
		else
			maple_enter_slot(s, type);
		if (type == MAPLE_LEAF_64)
			break;
	}
	return 0;
}

#endif
