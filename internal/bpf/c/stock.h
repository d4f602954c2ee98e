/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Takes stock of what is mapped: enters every file that has code in a running process
 * into the table of files, with its identity, and says where it is mapped if asked.
 *
 * A process is looked at in two steps. While its VMAs are gone through, its mmap lock
 * is held, or since 2026 the lock of the VMA at hand: what stays mapped is met, and met
 * once. Nothing may be read from its memory then, because a page fault would want the
 * same lock. So what is found is noted down, and the files that the table does not know
 * are read afterwards, as in readid.h: that holds no lock, and believes nothing that
 * changed meanwhile.
 *
 * Threads have the memory of their process, which is looked at through the first one.
 * Where that has ended, each of the others shows the same; user space takes one. */
#ifndef HALLMARK_STOCK_H
#define HALLMARK_STOCK_H

#include "readid.h"
#include "events/stock.h"
#include "fs.h"
#include "maplenext.h"
#include "task.h"

/* Mappings of a process that are noted down in one run. */
#define MAX_AREAS 96

struct stock_order order;
struct stock_counters stock_done;

struct stock_noted {
	struct stock_area area;
	char path[MAX_PATH];
	__u64 inode;
	bool answers; /* its file system does, by itself */
};

/* Scratch memory. One iterator at a time is read. */
struct stock {
	__u64 mm;
	__u32 count;
	struct stock_again again;
	struct stock_process process;
	struct reading reading;
	struct file_entry entry;
	struct stock_noted noted[MAX_AREAS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stock);
} stocks SEC(".maps");

/* stock_look is the look at one process. */
struct stock_look {
	struct source source;
	struct stock *s;
	__u64 before; /* bytes that others have written */
};

/* stock_number returns a pointer as a number: for the verifier it is no pointer any more. */
static __always_inline __u64 stock_number(const void *pointer)
{
	__u64 n = 0;

	bpf_probe_read_kernel(&n, sizeof(n), &pointer);
	return n;
}

/* stock_note writes down what a VMA says, which is locked: all of it is true now. It
 * reports whether there was room. */
static __always_inline bool stock_note(struct stock *s, struct task_struct *task, struct vm_area_struct *vma)
{
	struct area area = {.file = vma->vm_file};
	struct file *file = area.file;
	struct stock_noted *n;
	struct stock_area *a;
	__u32 i = s->count;
	struct inode *inode;
	bool settled;

	if (!file || !(vma->vm_flags & VM_EXEC))
		return true;
	if (i >= MAX_AREAS)
		return false;
	n = &s->noted[i];
	a = &n->area;
	inode = file->f_inode;
	a->kind = STOCK_AREA;
	a->size = sizeof(*a);
	a->start = vma->vm_start;
	a->end = vma->vm_end;
	a->offset = vma->vm_pgoff << 12;
	n->inode = (__u64)inode;
	n->answers = fs_answers(inode);
	filever_read(inode, &a->valid, false);
	settled = filever_settle_mapping(task_executed(task), GET_POINTER(task, mm), stock_number(inode),
					 stock_number(vma), &a->valid);
	a->key = settled && a->valid.pinned != NO_MAPPING ? filetable_key(n->inode, &a->valid) : 0;
	if (order.list)
		a->size += serial_read_path(&area, (void *)n->path) & (MAX_PATH - 1);
	s->count = i + 1;
	return true;
}

/* stock_ends_at reports whether nothing is mapped from an address on. */
static __always_inline bool stock_ends_at(struct mm_struct *mm, __u64 address)
{
	struct slot s = {.root = vma_tree(mm), .address = address};

	maple_find_slot(&s);
	return !s.entry && s.last == ~0ULL;
}

/* stock_note_all writes down what the process has mapped, and in s->again what must be
 * looked at again: all if a change of its mappings is under way, or the rest. Where the
 * kernel locks each VMA, it also stops where it cannot have the lock. */
static __always_inline void stock_note_all(struct stock *s, struct task_struct *task)
{
	__u64 from = order.only && order.exec == s->process.exec ? order.from : 0;
	struct bpf_iter_task_vma it;
	struct vm_area_struct *vma;

	s->count = 0;
	s->again.from = from;
	s->again.kind = STOCK_AGAIN;
	s->again.busy = true;
	bpf_iter_task_vma_new(&it, task, from);
	while ((vma = bpf_iter_task_vma_next(&it))) {
		if (!stock_note(s, task, vma)) {
			s->again.from = vma->vm_start;
			s->again.busy = false;
			break;
		}
		s->again.from = vma->vm_end;
	}
	bpf_iter_task_vma_destroy(&it);
	if (s->again.busy && s->again.from && stock_ends_at((void *)s->mm, s->again.from))
		s->again.kind = 0;
}

/* stock_read_identity reads the identity of the file of an area into the table. */
static __always_inline void stock_read_identity(struct stock_look *l, struct stock_noted *n)
{
	struct stock_area *a = &n->area;
	struct reading *r = l->source.r;
	struct file_entry *e = &l->s->entry;
	enum file_state state;

	__builtin_memset(r, 0, sizeof(*r));
	r->mm = l->s->mm;
	r->exec = l->s->process.exec;
	r->key = a->key;
	r->inode = n->inode;
	r->at = a->start;
	state = readid_conclude(&l->source, e, e->serial, readid_file(&l->source, a->start));
	if (state == FILE_PENDING)
		ADD(stock_done.left, 1);
	else
		ADD(stock_done.read, 1);
}

/* stock_enter sees to it that the table knows the file of an area, and leaves the entry in
 * l->s->entry. It reports whether there is one. A file whose pages may never come is not
 * read: the process that is sampled in it reads it, or user space. Nor is one that samples wait for. */
static __always_inline bool stock_enter(struct stock_look *l, struct stock_noted *n)
{
	struct stock_area *a = &n->area;
	struct file_entry *e = &l->s->entry;

	if (!filetable_enter_quietly(a->key, e, &a->valid)) {
		ADD(stock_done.refused, 1);
		return false;
	}
	if ((e->state & ~FILE_QUIET) == FILE_PENDING && n->answers && !e->asked)
		stock_read_identity(l, n);
	else if ((e->state & ~FILE_QUIET) == FILE_PENDING)
		ADD(stock_done.left, 1);
	return true;
}

/* stock_fits reports whether a record of a size may be written. When others have written into
 * the buffer too, it may: if it overflows, this process comes again, with all of the
 * buffer for itself (bpf_seq_read, kernel/bpf/bpf_iter.c). */
static __always_inline bool stock_fits(struct stock_look *l, __u32 size)
{
	struct seq_file *seq = l->source.at->meta->seq;

	return l->before || seq->count + size + sizeof(struct stock_again) <= seq->size;
}

static long stock_loop(__u32 i, struct stock_look *l)
{
	struct stock *s = l->s;
	struct stock_noted *n;
	struct stock_area *a;
	__u32 size;

	if (i >= s->count || i >= MAX_AREAS)
		return 1;
	n = &s->noted[i];
	a = &n->area;
	if (order.list && !stock_fits(l, a->size)) {
		s->again.kind = STOCK_AGAIN;
		s->again.from = a->start;
		s->again.busy = false;
		return 1;
	}
	ADD(stock_done.areas, 1);
	a->serial = 0;
	a->state = FILE_NONE;
	a->id.kind = a->id.size = 0;
	if (a->key && stock_enter(l, n)) {
		a->serial = s->entry.serial;
		a->state = s->entry.state;
		a->id = s->entry.id;
	}
	size = a->size;
	if (order.list && size <= sizeof(n->area) + sizeof(n->path))
		bpf_seq_write(l->source.at->meta->seq, n, size);
	return 0;
}

/* stock_begin fills in what stands above all that is said of a process. */
static __always_inline void stock_begin(struct stock *s, struct task_struct *task)
{
	struct stock_process *p = &s->process;
	struct task_struct *leader = task_leader(task);

	p->kind = STOCK_PROCESS;
	p->size = sizeof(*p);
	p->tgid = task->tgid;
	p->tid = task->pid;
	p->exec = task->self_exec_id;
	p->started = GET(leader, start_boottime);
	bpf_probe_read_kernel(p->name, sizeof(p->name), &leader->comm);
	s->mm = GET_POINTER(task, mm);
	s->again.kind = STOCK_AGAIN;
	s->again.size = sizeof(s->again);
	s->again.tgid = p->tgid;
	s->again.exec = p->exec;
	s->again.from = 0;
	s->again.busy = true;
}

static __always_inline void stock_look_at(struct bpf_iter__task *ctx, struct stock *s, struct task_struct *task)
{
	struct seq_file *seq = ctx->meta->seq;
	struct stock_look l = {{&s->reading, ctx}, s, seq->count};

	ADD(stock_done.processes, 1);
	stock_note_all(s, task);
	if (order.list)
		bpf_seq_write(seq, &s->process, sizeof(s->process));
	bpf_loop(MAX_AREAS, stock_loop, &l, 0);
}

SEC("iter.s/task")
int take_stock(struct bpf_iter__task *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	struct task_struct *task = ctx->task;
	__u32 zero = 0;
	struct stock *s = bpf_map_lookup_elem(&stocks, &zero);
	bool shown;

	if (!task || !s || (order.only && task->tgid != order.only))
		return 0;
	shown = task_shows_process(task);
	if (!shown && (order.only || !task_lost_leader(task)))
		return 0;
	stock_begin(s, task);
	if (shown)
		stock_look_at(ctx, s, task);
	if (s->again.kind) {
		ADD(stock_done.again, 1);
		bpf_seq_write(seq, &s->again, sizeof(s->again));
	}
	return 0;
}

#endif
