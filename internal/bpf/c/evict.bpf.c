//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Marks in the table of files which inodes are gone, so that their entries are the first
// to make room. Nothing depends on it: an entry of an inode that is gone is not valid
// for whatever has its memory next.
//
// Entries are marked and not deleted: deleting takes a lock of the map in the context
// of any task. See ARCHITECTURE.md for what may be called.

#include "events/stack.h"
#include "kernel.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct xfs_inode {
	struct inode i_vnode;
} __attribute__((preserve_access_index));

/* The sampler's. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct file_entry);
} files SEC(".maps");

/* Entries whose inode is gone. */
__u64 gone;

static __always_inline int evict_mark(const struct inode *inode)
{
	__u64 key = (__u64)inode;
	struct file_entry *e = bpf_map_lookup_elem(&files, &key);

	if (e) {
		e->used = 0;
		ADD(gone, 1);
	}
	return 0;
}

/* Of every file system: fs/inode.c calls both in __destroy_inode. */

SEC("fentry/security_inode_free")
int BPF_PROG(free_fentry, struct inode *inode) { return evict_mark(inode); }

SEC("lsm/inode_free_security")
int BPF_PROG(free_lsm, struct inode *inode) { return evict_mark(inode); }

/* Of one each, where trampolines are refused. */

SEC("tp_btf/ext4_evict_inode")
int BPF_PROG(evict_ext4, struct inode *inode) { return evict_mark(inode); }

SEC("tp_btf/btrfs_inode_evict")
int BPF_PROG(evict_btrfs, const struct inode *inode) { return evict_mark(inode); }

SEC("tp_btf/f2fs_evict_inode")
int BPF_PROG(evict_f2fs, struct inode *inode) { return evict_mark(inode); }

SEC("tp_btf/xfs_destroy_inode")
int BPF_PROG(evict_xfs, struct xfs_inode *inode) { return evict_mark(&inode->i_vnode); }
