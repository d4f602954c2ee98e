/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From one VMA of a process to the next, without a lock. Whether something is there is
 * true at some moment only; see identity.h for when a VMA may be believed. */
#ifndef HALLMARK_SLOTS_H
#define HALLMARK_SLOTS_H

#include "identity.h"

/* The slot of a tree of VMAs that an address is in. */
struct slot {
	__u64 root;
	__u64 address;
	__u64 entry; /* 0: nothing is mapped there */
	__u64 last;  /* address in it */
};

/* enter_slot goes one level down. A slot that has no pivot ends where its node does. */
static __always_inline void enter_slot(struct slot *s, __u32 type)
{
	struct maple_arange_64 *inner = (void *)(s->entry & ~0xffULL);
	struct maple_range_64 *node = (void *)(s->entry & ~0xffULL);
	__u64 pivot = 0;
	__u32 i;

	if (type == MAPLE_ARANGE_64) {
		i = slot_until(inner, 9, s->address, pivot);
		s->entry = read_slot(inner, i);
	} else {
		i = slot_until(node, 15, s->address, pivot);
		s->entry = read_slot(node, i);
	}
	if (pivot)
		s->last = pivot;
}

/* find_slot finds the slot of s->address. It is global as find_vma is. */
__noinline int find_slot(struct slot *s)
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
			enter_slot(s, type);
		if (type == MAPLE_LEAF_64)
			break;
	}
	return 0;
}

#endif
