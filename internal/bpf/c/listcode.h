/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The executable mappings of a process, read in its tree of VMAs without a lock, and
 * believed only if they were all there at one moment.
 *
 * Whoever changes mappings has the lock of all of them for writing, and the kernel counts
 * when it is taken and when it is given back, for readers just as this one
 * (mmap_lock_speculate_try_begin, include/linux/mmap_lock.h). So if the number is even and
 * the same before and after, nothing was changed meanwhile. That it was the number of this
 * very process all the time follows from the task: it has the same memory before and after
 * and has executed nothing, and memory that a task has is not given back.
 *
 * Before that is known, all that was read may be anything: it is read so that no address
 * can be a wrong one, and sent to nobody. Files are sent before, because their paths
 * must be read before the number is; but nobody refers to one unless it was true. */
#ifndef HALLMARK_LISTCODE_H
#define HALLMARK_LISTCODE_H

#include "listfiles.h"
#include "mapleleaf.h"
#include "task.h"

/* Mappings that are sent at once: they and a file fit into the 32 KiB that the kernel
 * has for what a program writes (bpf_seq_read). */
#define MAX_PLACES 672

#define MAX_LEAVES 65536 /* a process has no more VMAs (vm.max_map_count), unless root wants it */

/* How often a process is looked at in one run while its mappings change. */
#define MAX_TRIES 8

struct list_order order;

/* How often mappings had changed while they were read. */
__u64 changed;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct mm_struct___count {
	int map_count; /* VMAs */
};

#pragma clang attribute pop

/* What is found of one process. One iterator at a time is read. */
struct code_scratch {
	struct leaf leaf;
	__u64 before; /* bytes that were written of other processes */
	__u64 told;   /* number of the last file before */
	__u64 mm;
	__u64 next;  /* address where the last place ends */
	__u32 areas; /* VMAs that were met, all in all */
	__u32 left;  /* bits of the slots of a leaf that are still to be looked at */
	__u32 since; /* number of the last change */
	__u32 count; /* of places */
	__u8 full;   /* there was no room for more places */
	__u8 restart; /* nor for files, because of what was written of other processes */
	__u8 whole;  /* the end of the tree was reached, or full is set */
	__u8 strange; /* something was met that is no VMA of the process at its place */
	__u8 proven;
	struct listed_again again;
	struct file_scratch file;
	struct listed_code code;
	struct listed_place places[MAX_PLACES]; /* behind it */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct code_scratch);
} code_scratches SEC(".maps");

/* code_look is a look at a process. */
struct code_look {
	struct code_scratch *s;
	struct seq_file *seq;
	struct task_struct *task;
};

/* list_fenced lets nothing be read earlier or later than it stands there. With the result of the
 * addition, it is a full barrier (Documentation/atomic_t.txt). */
__u64 fences;
#define list_fenced()                                                                         \
	({                                                                                    \
		__u64 was_ = __sync_fetch_and_add(&fences, 1);                                \
		barrier_var(was_);                                                            \
	})

/* list_note_place notes down what a VMA says. A process that has more than can be sent at once
 * is looked at again from there on. */
static __always_inline void list_note_place(struct code_scratch *s, struct vm_area_struct *vma)
{
	__u64 file = GET_POINTER(vma, vm_file), start = GET(vma, vm_start), end = GET(vma, vm_end);
	struct listed_place *p;
	__u32 i = s->count;

	s->strange |= GET_POINTER(vma, vm_mm) != s->mm || start < s->next || end <= start;
	s->next = end;
	if (!file || s->full || start < s->code.from)
		return;
	if (i >= MAX_PLACES) {
		s->full = true;
		s->again.from = start;
		return;
	}
	p = &s->places[i];
	p->start = start;
	p->end = end;
	p->offset = GET(vma, vm_pgoff) << 12;
	p->number = file; /* until it is sent */
	s->count = i + 1;
}

/* list_slot_loop takes the first of the slots that are left. */
static long list_slot_loop(__u32 i, struct code_look *l)
{
	struct code_scratch *s = l->s;
	__u32 left = s->left, others = left & (left - 1);

	list_note_place(s, (void *)maple_leaf_slot(&s->leaf, __builtin_popcount((left ^ others) - 1) & (LEAF_SLOTS - 1)));
	s->left = others;
	return 0;
}

static long list_leaf_loop(__u32 i, struct code_look *l)
{
	struct code_scratch *s = l->s;

	if (!maple_find_leaf(&s->leaf))
		return 1;
	s->areas += __builtin_popcount(maple_leaf_vmas(&s->leaf, &s->left));
	bpf_loop(__builtin_popcount(s->left), list_slot_loop, l, 0);
	s->leaf.address = s->leaf.last + 1;
	s->whole = !s->leaf.address || s->full;
	return s->whole ? 1 : 0;
}

/* list_bytes returns how long the record of a process is. */
static __always_inline __u32 list_bytes(const struct code_scratch *s)
{
	return sizeof(s->code) + s->count * sizeof(s->places[0]);
}

/* list_fits reports whether the places, and one file before them, may be written. */
static __always_inline bool list_fits(struct code_look *l)
{
	return l->seq->count + sizeof(l->s->file.record) + list_bytes(l->s) + sizeof(l->s->again) <= l->seq->size;
}

/* list_number_loop puts the number of its file into a place. */
static long list_number_loop(__u32 i, struct code_look *l)
{
	struct code_scratch *s = l->s;
	struct listed_place *p;
	struct file *file;

	if (i >= s->count || i >= MAX_PLACES)
		return 1;
	p = &s->places[i];
	if (!list_fits(l)) {
		s->restart = s->before > 0;
		s->full = true;
		s->again.from = p->start;
		s->count = i;
		return 1;
	}
	file = bpf_rdonly_cast((void *)p->number, bpf_core_type_id_kernel(struct file));
	p->number = list_write_file(l->seq, file, &s->file);
	return 0;
}

/* list_begin remembers what must be the same afterwards. It reports whether nobody is about
 * to change mappings. */
static __always_inline bool list_begin(struct code_scratch *s, struct task_struct *task)
{
	s->code.exec = task->self_exec_id;
	list_fenced();
	s->mm = GET_POINTER(task, mm);
	s->since = GET((struct mm_struct *)s->mm, mm_lock_seq.sequence);
	list_fenced();
	s->code.from = order.only && order.exec == s->code.exec ? order.from : 0;
	s->leaf.root = GET_POINTER((struct mm_struct *)s->mm, mm_mt.ma_root);
	s->leaf.address = s->code.from;
	s->count = s->areas = s->next = 0;
	s->told = numbers;
	s->full = s->restart = s->whole = s->strange = false;
	return s->mm && !(s->since & 1);
}

/* list_is_all reports whether all VMAs were met that there are, or so many that more cannot be
 * sent. It says nothing that the numbers of list_was_true do not say, unless a kernel has trees
 * that are not as they are thought to be here. */
static __always_inline bool list_is_all(struct code_scratch *s)
{
	struct mm_struct___count *mm = (void *)s->mm;

	return s->whole && !s->strange && (s->full || s->code.from || s->areas == GET(mm, map_count));
}

/* list_was_true reports whether all that was read since list_begin was there at one moment. */
static __always_inline bool list_was_true(struct code_scratch *s, struct task_struct *task)
{
	__u32 now;

	list_fenced();
	now = GET((struct mm_struct *)s->mm, mm_lock_seq.sequence);
	list_fenced();
	return now == s->since && GET_POINTER(task, mm) == s->mm && task->self_exec_id == s->code.exec;
}

/* list_try looks at a process once. */
static long list_try(__u32 i, struct code_look *l)
{
	struct code_scratch *s = l->s;

	if (!list_begin(s, l->task))
		return 0;
	bpf_loop(MAX_LEAVES, list_leaf_loop, l, 0);
	bpf_loop(MAX_PLACES, list_number_loop, l, 0);
	s->proven = list_is_all(s) && list_was_true(s, l->task);
	if (s->proven && !s->restart)
		return 1;
	/* What was sent of files may be wrong, or comes to nobody. */
	if (numbers != s->told)
		look++;
	changed += !s->proven;
	return s->restart ? 1 : 0;
}

/* list_write_code sends what a process has mapped. */
static __always_inline void list_write_code(struct seq_file *seq, struct code_scratch *s)
{
	__u32 size = list_bytes(s);

	s->code.size = size;
	if (size <= sizeof(s->code) + sizeof(s->places))
		bpf_seq_write(seq, &s->code, size);
}

/* list_describe fills in what stands above all that is said of a process. */
static __always_inline void list_describe(struct code_scratch *s, struct task_struct *task)
{
	struct task_struct *leader = task_leader(task);

	s->code.kind = LISTED_CODE;
	s->code.tgid = task->tgid;
	s->code.tid = task->pid;
	s->code.started = GET(leader, start_boottime);
	bpf_probe_read_kernel(s->code.name, sizeof(s->code.name), &leader->comm);
	s->again.kind = LISTED_AGAIN;
	s->again.size = sizeof(s->again);
	s->again.tgid = task->tgid;
	s->proven = s->restart = s->full = false;
}

/* Since Linux 6.13, and with some releases of 6.12. */
SEC("iter/task")
int list_processes(struct bpf_iter__task *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	struct task_struct *task = ctx->task;
	struct code_look l = {.seq = seq, .task = task};
	__u32 zero = 0;
	bool shown;

	if (!task || (order.only && task->tgid != order.only))
		return 0;
	shown = task_shows_process(task);
	if (!shown && (order.only || !task_lost_leader(task)))
		return 0;
	l.s = bpf_map_lookup_elem(&code_scratches, &zero);
	if (!l.s)
		return 0;
	list_describe(l.s, task);
	l.s->before = seq->count;
	if (shown)
		bpf_loop(MAX_TRIES, list_try, &l, 0);
	if (l.s->restart)
		return 1;
	if (l.s->proven)
		list_write_code(seq, l.s);
	if (l.s->proven && !l.s->full)
		return 0;
	l.s->again.busy = !l.s->proven;
	l.s->again.exec = l.s->code.exec;
	if (!l.s->proven)
		l.s->again.from = 0;
	bpf_seq_write(seq, &l.s->again, sizeof(l.s->again));
	return 0;
}

#endif
