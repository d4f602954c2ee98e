/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The maple tree of a process's VMAs (lib/maple_tree.c), read in place without a lock: from an
 * address to the VMA that may hold it. */
#ifndef HALLMARK_MAPLE_H
#define HALLMARK_MAPLE_H

#include "kernel.h"

/* Nodes: include/linux/maple_tree.h. The address of a node has its type in the lower bits.
 * A pivot is the last index of its slot; behind the last one in use there are zeros. */
#define MAPLE_LEAF 1  /* maple_leaf_64, with VMAs in its slots */
#define MAPLE_INNER 3 /* maple_arange_64, as trees of VMAs have them (MM_MT_FLAGS) */
#define MAPLE_DEPTH 8
#define MAPLE_LEAF_PIVOTS 15 /* and a slot more */
#define MAPLE_INNER_PIVOTS 9

/* maple_slot_until finds the slot of an address by linear search, and narrows down to where it
 * reaches; a slot without a pivot ends where its node does. Most nodes are cold, and this
 * touches the least of them. */
#define maple_slot_until(node, pivots, address, last)                                         \
	({                                                                                    \
		__u32 slot_ = pivots;                                                         \
		_Pragma("unroll") for (int i_ = 0; i_ < pivots; i_++)                         \
		{                                                                             \
			__u64 pivot_ = GET(node, pivot[i_]);                                  \
			if (pivot_ >= (address) || (!pivot_ && i_)) {                         \
				slot_ = i_;                                                   \
				if (pivot_)                                                   \
					(last) = pivot_;                                      \
				break;                                                        \
			}                                                                     \
		}                                                                             \
		slot_;                                                                        \
	})

/* maple_read_slot computes the address itself: the index is not known to the verifier. */
#define maple_read_slot(node, i) GET_POINTER((typeof(node))((__u64)(node) + (i) * sizeof(void *)), slot[0])

/* maple_descend returns the address of the leaf that an address is in, and narrows down to where
 * the leaf reaches. It returns 0 if the tree is empty, or has no nodes. */
static __always_inline __u64 maple_descend(__u64 root, __u64 address, __u64 *last)
{
	__u64 entry = root;

	if ((root & 3) != 2)
		return 0;
	for (int depth = 0; depth < MAPLE_DEPTH; depth++) {
		struct maple_arange_64 *inner = (void *)(entry & ~0xffULL);
		__u32 slot, type = (entry >> 3) & 0xf;

		if (type == MAPLE_LEAF)
			return (__u64)inner;
		if (type != MAPLE_INNER)
			return 0;
		slot = maple_slot_until(inner, MAPLE_INNER_PIVOTS, address, *last);
		entry = maple_read_slot(inner, slot);
	}
	return 0;
}

/* maple_entry returns what is in the slot of an address in a leaf, and narrows down to where the
 * slot reaches. */
static __always_inline __u64 maple_entry(__u64 leaf, __u64 address, __u64 *last)
{
	struct maple_range_64 *node = (void *)leaf;
	__u32 slot = maple_slot_until(node, MAPLE_LEAF_PIVOTS, address, *last);

	return maple_read_slot(node, slot);
}

/* maple_find returns the address of the VMA whose range in the tree at root holds
 * address, or 0: the caller must ask the VMA whether it is true. It is global, so
 * that the verifier looks at it once. */
__noinline __u64 maple_find(__u64 root, __u64 address)
{
	__u64 last = ~0ULL, leaf = maple_descend(root, address, &last);

	return leaf ? maple_entry(leaf, address, &last) : 0;
}

#endif
