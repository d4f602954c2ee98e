/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From one leaf of a process's tree of VMAs to the next (lib/maple_tree.c), without a lock.
 * What is read may be anything as long as nobody has proven that the tree was at rest. */
#ifndef HALLMARK_MAPLELEAF_H
#define HALLMARK_MAPLELEAF_H

#include "maple.h"

#define LEAF_SLOTS (MAPLE_LEAF_PIVOTS + 1)

/* The leaf of a tree that an address is in. */
struct leaf {
	__u64 root;
	__u64 address;
	__u64 node;
	__u64 last; /* address in it */
};

/* maple_words_at lets the words at an address be read, as pivots are. */
static __always_inline struct maple_range_64 *maple_words_at(__u64 address)
{
	return (void *)(address - bpf_core_field_offset(struct maple_range_64, pivot));
}

/* maple_word reads the i-th word at an address; i is a constant below 16. */
static __always_inline __u64 maple_word(__u64 address, int i)
{
	return i < 15 ? GET(maple_words_at(address), pivot[i]) : GET(maple_words_at(address + 8), pivot[14]);
}

/* maple_find_leaf finds the leaf of l->address. It is global as maple_find is. */
__noinline int maple_find_leaf(struct leaf *l)
{
	__u64 last = ~0ULL;

	if (!l)
		return 0;
	l->node = maple_descend(l->root, l->address, &last);
	l->last = last;
	return l->node != 0;
}

/* maple_leaf_slot returns what is in a slot. */
static __always_inline __u64 maple_leaf_slot(const struct leaf *l, __u32 slot)
{
	return maple_read_slot((struct maple_range_64 *)l->node, slot);
}

/* maple_leaf_vmas returns a bit for each slot with a VMA, and in code one for each with a VMA of
 * code. Most VMAs are of no code, and what is read of these is in no cache: so all are read
 * before anything is asked, and the processor waits for several at a time. Nothing branches
 * on what is read, because the verifier would go both ways each time. */
static __always_inline __u32 maple_leaf_vmas(const struct leaf *l, __u32 *code)
{
	__u64 node = l->node, slots = node + bpf_core_field_offset(struct maple_range_64, slot);
	__u32 mapped = 0, executable = 0, used = ~0U >> (32 - LEAF_SLOTS);

	_Pragma("unroll") for (int i = 0; i < LEAF_SLOTS; i++)
	{
		__u64 vma = maple_word(slots, i), sign = vma | -vma;

		barrier_var(sign);
		mapped |= sign >> 63 << i;
		executable |= (GET((struct vm_area_struct *)vma, vm_flags) & VM_EXEC) / VM_EXEC << i;
	}
	_Pragma("unroll") for (int i = 0; i < LEAF_SLOTS - 1; i++)
	{
		__u64 pivot = GET((struct maple_range_64 *)node, pivot[i]);

		if (pivot >= l->last || (!pivot && i)) {
			used = (2U << i) - 1;
			break;
		}
	}
	*code = executable & mapped & used;
	return mapped & used;
}

#endif
