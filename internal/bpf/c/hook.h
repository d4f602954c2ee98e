/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads the identity of a file when its code is mapped, where BPF may be a Linux
 * security module (lsm=...,bpf) and the kernel has no task work. So a process that is
 * sampled once and gone is identified there as well.
 *
 * The hook may fault and sleep, but runs before there is the mapping. Linkers put the
 * first bytes of a file into a segment of their own, which is mapped before the code:
 * then they are there to be read. Where they come with the code itself, as in programs
 * of Go, the reading is owed, and done when the thread maps something the next time.
 *
 * Nothing else may change the mappings meanwhile. While a process has one thread, it is
 * the one that is here; what processes with several threads load later is left to be
 * read by user space. */
#ifndef HALLMARK_HOOK_H
#define HALLMARK_HOOK_H

#include "readid.h"
#include "maplenext.h"

#define PROT_EXEC 4

struct hook_counters hook_done;

/* That the hook is called at all: where the kernel's list of security modules lacks bpf,
 * programs are attached and never run. */
bool hook_called;

/* Scratch memory, taken for one reading: the hook sleeps, and CPUs have none for that. */
struct hooked {
	__u32 taken;
	struct reading reading;
	struct file_entry entry;
};
#define HOOKED 64 /* a power of two */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HOOKED);
	__type(key, __u32);
	__type(value, struct hooked);
} hooks SEC(".maps");

/* A file that a thread has mapped and whose identity is still to be read. */
struct debt {
	__u64 mm;
	__u64 key;
	__u64 serial;
	__u32 tries;
};
#define MAX_DEBT_TRIES 16

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32); /* thread */
	__type(value, struct debt);
} debts SEC(".maps");

/* The search for the mapping of the first bytes of a file. */
struct header_search {
	struct slot slot;
	__u64 mm;
	__u64 key;
	__u64 found;
};

/* MAX_SEARCH is how many slots are looked at: the program and what was mapped last
 * come first. */
#define MAX_SEARCH 256

static long hook_header_loop(__u32 i, struct header_search *h)
{
	struct slot *s = &h->slot;
	struct area a;

	maple_find_slot(s);
	if (s->entry && vma_read((void *)s->entry, h->mm, s->address, &a) && a.file && !a.offset) {
		struct file *file = a.file;

		if ((__u64)BPF_CORE_READ(file, f_inode) == h->key) {
			h->found = a.start;
			return 1;
		}
	}
	s->address = s->last + 1;
	return !s->address;
}

/* hook_header_of returns where the current task has the first bytes of a file, or 0. */
static __always_inline __u64 hook_header_of(struct mm_struct *mm, __u64 key)
{
	struct header_search h = {.mm = (__u64)mm, .key = key};

	h.slot.root = vma_tree(mm);
	bpf_loop(MAX_SEARCH, hook_header_loop, &h, 0);
	return h.found;
}

static __always_inline struct hooked *hook_take(__u32 tid)
{
	__u32 slot = hash_mix(0, tid) & (HOOKED - 1);
	struct hooked *h = bpf_map_lookup_elem(&hooks, &slot);

	if (h && !__sync_val_compare_and_swap(&h->taken, 0, 1))
		return h;
	ADD(hook_done.busy, 1);
	return NULL;
}

/* hook_read reads the identity of a file whose first bytes the current task has mapped. */
static __always_inline void hook_read(struct hooked *h, __u64 mm, __u64 key, __u64 serial, __u64 header)
{
	struct reading *r = &h->reading;
	struct source source = {r};
	enum file_state state;

	__builtin_memset(r, 0, sizeof(*r));
	r->mm = mm;
	r->key = r->inode = key;
	state = readid_conclude(&source, &h->entry, serial, readid_file(&source, header));
	if (state == FILE_PENDING)
		ADD(hook_done.left, 1);
	else
		ADD(hook_done.read, 1);
	if (state == FILE_KNOWN && !(h->entry.state & FILE_QUIET))
		serial_report_identity(&h->entry, BPF_RB_NO_WAKEUP);
}

/* hook_pay reads what the thread owes, if it has it by now. It works with a copy: the element may
 * become another thread's, and with it the memory that an address is in. */
static __always_inline void hook_pay(struct debt *debt, __u32 tid, struct mm_struct *mm)
{
	struct debt owed = *debt;
	struct hooked *h;
	__u64 header;

	if (owed.mm != (__u64)mm || debt->tries++ > MAX_DEBT_TRIES) {
		bpf_map_delete_elem(&debts, &tid);
		return;
	}
	header = hook_header_of(mm, owed.key);
	if (!header)
		return;
	h = hook_take(tid);
	if (!h)
		return;
	hook_read(h, owed.mm, owed.key, owed.serial, header);
	h->taken = 0;
	bpf_map_delete_elem(&debts, &tid);
}

/* hook_read_or_owe sees to the identity of a file that the table does not have yet. */
static __always_inline void hook_read_or_owe(struct hooked *h, struct mm_struct *mm, __u32 tid, __u64 key, __u64 serial)
{
	struct debt debt = {(__u64)mm, key, serial};
	__u64 header = hook_header_of(mm, key);

	if (header) {
		hook_read(h, (__u64)mm, key, serial, header);
		return;
	}
	ADD(hook_done.owed, 1);
	bpf_map_update_elem(&debts, &tid, &debt, BPF_ANY);
}

/* hook_see sees a file whose code is about to be mapped. */
static __always_inline void hook_see(struct inode *inode, struct mm_struct *mm, __u32 tid)
{
	__u64 key = (__u64)inode, serial = 0;
	struct validity now;
	struct hooked *h;
	__u8 state = 0;
	bool young;

	ADD(hook_done.mapped, 1);
	if (!filever_keeps_times(inode))
		return; /* an identity would be the mapping's, which is not there yet */
	filever_read(inode, &now, false);
	if (!filever_settle(task_executed(bpf_get_current_task_btf()), mm, inode, &now, &young)) {
		ADD(hook_done.written, 1);
		return;
	}
	if (filetable_lookup(key, &now, &serial, &state) == KNOWN && (state & ~FILE_QUIET) != FILE_PENDING)
		return;
	h = hook_take(tid);
	if (!h)
		return;
	if (!filetable_enter_quietly(key, &h->entry, &now))
		ADD(hook_done.refused, 1);
	else if ((h->entry.state & ~FILE_QUIET) == FILE_PENDING)
		hook_read_or_owe(h, mm, tid, key, h->entry.serial);
	h->taken = 0;
}

/* security_mmap_file(file, reqprot, prot, flags). There is no file when anonymous memory
 * is mapped. Verifiers that do not believe so take the question out; what is read of no
 * file is 0 then. Since 7.0 they want it asked. */
SEC("lsm.s/mmap_file")
int see_mapping(__u64 *ctx)
{
	struct file *file = (void *)ctx[0];
	struct inode *inode = file ? BPF_CORE_READ(file, f_inode) : NULL;
	struct mm_struct *mm = bpf_get_current_task_btf()->mm;
	__u32 tid = bpf_get_current_pid_tgid();
	struct debt *debt = bpf_map_lookup_elem(&debts, &tid);

	if (!hook_called)
		hook_called = true; /* not for nothing: all CPUs share it */
	if (debt)
		hook_pay(debt, tid, mm);
	if (inode && mm && ctx[2] & PROT_EXEC)
		hook_see(inode, mm, tid);
	return 0;
}

#endif
