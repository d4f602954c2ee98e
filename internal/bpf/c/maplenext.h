/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From one VMA of a process to the next, in its tree (maple.h), without a lock. Whether
 * something is there is true at some moment only; see vma.h for when a VMA may be believed. */
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

/* maple_find_slot finds the slot of s->address. It is global as maple_find is. */
__noinline int maple_find_slot(struct slot *s)
{
	__u64 leaf, last = ~0ULL;

	if (!s)
		return 0;
	leaf = maple_descend(s->root, s->address, &last);
	s->entry = leaf ? maple_entry(leaf, s->address, &last) : 0;
	s->last = last;
	return 0;
}

#endif
