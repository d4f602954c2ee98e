/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The maple tree of a process's VMAs (lib/maple_tree.c), read in place without a lock: from an
 * address to the VMA that may hold it. */
#ifndef HALLMARK_MAPLE_H
#define HALLMARK_MAPLE_H

#include "kernel.h"

/* Nodes of a maple tree: include/linux/maple_tree.h. The address of a node has its
 * type in the lower bits. A pivot is the last index of its slot; behind the last
 * one in use there are zeros. */
enum { MAPLE_DENSE = 0, MAPLE_LEAF_64 = 1, MAPLE_RANGE_64 = 2, MAPLE_ARANGE_64 = 3 };
#define MAPLE_DEPTH 8

/* maple_slot_until finds the slot of an address, and its pivot unless it has none, by linear
 * search. Most nodes are cold, and this touches the least of them. */
#define maple_slot_until(node, pivots, address, end)                                          \
	({                                                                                    \
		__u32 slot_ = pivots;                                                         \
		_Pragma("unroll") for (int i_ = 0; i_ < pivots; i_++)                         \
		{                                                                             \
			__u64 pivot_ = GET(node, pivot[i_]);                                  \
			if (pivot_ >= (address) || (!pivot_ && i_)) {                         \
				slot_ = i_;                                                   \
				(end) = pivot_;                                               \
				break;                                                        \
			}                                                                     \
		}                                                                             \
		slot_;                                                                        \
	})

#define maple_slot_of(node, pivots, address)                                                  \
	({                                                                                    \
		__u64 ignored_;                                                               \
		maple_slot_until(node, pivots, address, ignored_);                            \
	})

/* maple_read_slot computes the address itself: the index is not known to the verifier. */
#define maple_read_slot(node, i) GET_POINTER((typeof(node))((__u64)(node) + (i) * sizeof(void *)), slot[0])

/* maple_child returns what is in the slot of an address. */
static __always_inline __u64 maple_child(__u64 entry, __u32 type, __u64 address)
{
	struct maple_arange_64 *inner = (void *)(entry & ~0xffULL);
	struct maple_range_64 *node = (void *)(entry & ~0xffULL);
	__u32 slot;

	if (type == MAPLE_ARANGE_64) {
		slot = maple_slot_of(inner, 9, address);
		return maple_read_slot(inner, slot);
	}
	slot = maple_slot_of(node, 15, address);
	return maple_read_slot(node, slot);
}

/* maple_find returns the address of the VMA whose range in the tree at root holds
 * address, or 0: the caller must ask the VMA whether it is true. It is global, so
 * that the verifier looks at it once. */
__noinline __u64 maple_find(__u64 root, __u64 address)
{
	if ((root & 3) != 2) /* an empty tree, or one without nodes */
		return 0;
	for (int depth = 0; depth < MAPLE_DEPTH; depth++) {
		__u32 type = (root >> 3) & 0xf;

		if (type == MAPLE_DENSE)
			return 0;
		root = maple_child(root, type, address);
		if (type == MAPLE_LEAF_64)
			return root;
	}
	return 0;
}

#endif
