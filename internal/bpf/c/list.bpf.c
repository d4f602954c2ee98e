//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Says which code is mapped in which process, and from which files: a file once, with its
// path, and each mapping with the number that the file was given. Nothing is read from
// memory or from files.
//
// There are two ways. list_processes goes through the trees of VMAs itself: listcode.h.
// For list_code the kernel goes through all VMAs while it holds the lock of the mappings.
// That takes several times as long, but works where there is nothing to prove what the
// other one reads, and with a process whose mappings never stay as they are.

#include "listcode.h"

struct bpf_iter__task_vma {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct vm_area_struct *vma;
};

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The process whose mappings follow. */
struct {
	__u64 look;
	__u64 task;
	__u32 tid;
} current_process;

/* Scratch memory. One iterator at a time is read. */
struct scratch {
	struct listed_process process;
	struct listed_area area;
	struct file_scratch file;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

/* list_has_room reports whether all that is said of one VMA fits into what the reader gets. Where
 * not, the kernel shows the VMA again, with a buffer that is empty (bpf_seq_read). */
static __always_inline bool list_has_room(struct seq_file *seq)
{
	return seq->count + sizeof(struct listed_process) + sizeof(struct listed_file) + MAX_PATH + 8 +
		       sizeof(struct listed_area) <
	       seq->size;
}

/* list_is_current reports whether the reader was sent whose mappings follow. */
static __always_inline bool list_is_current(struct task_struct *task)
{
	return current_process.task == (__u64)task && current_process.tid == task->pid && current_process.look == look;
}

/* list_write_process says whose mappings follow. */
static __always_inline void list_write_process(struct seq_file *seq, struct task_struct *task, struct listed_process *p)
{
	current_process.look = look;
	current_process.task = (__u64)task;
	current_process.tid = task->pid;
	p->kind = LISTED_PROCESS;
	p->size = sizeof(*p);
	p->tgid = task->tgid;
	p->tid = task->pid;
	p->started = task->group_leader->start_boottime;
	bpf_probe_read_kernel(p->name, sizeof(p->name), &task->group_leader->comm);
	bpf_seq_write(seq, p, sizeof(*p));
}

/* list_write_area says where a file is mapped. */
static __always_inline void list_write_area(struct seq_file *seq, struct vm_area_struct *vma, __u64 number,
					    struct listed_area *a)
{
	a->kind = LISTED_AREA;
	a->size = sizeof(*a);
	a->start = vma->vm_start;
	a->end = vma->vm_end;
	a->offset = vma->vm_pgoff << 12;
	a->number = number;
	bpf_seq_write(seq, a, sizeof(*a));
}

/* Most VMAs are of no code: of these nothing but the flags is looked at. */
SEC("iter/task_vma")
int list_code(struct bpf_iter__task_vma *ctx)
{
	struct task_struct *task = ctx->task;
	struct vm_area_struct *vma = ctx->vma;
	struct seq_file *seq;
	struct file *file;
	struct scratch *s;
	bool current, code;
	__u32 zero = 0;

	if (!task || !vma)
		return 0;
	current = list_is_current(task);
	code = vma->vm_flags & VM_EXEC;
	if (current && !code)
		return 0;
	seq = ctx->meta->seq;
	s = bpf_map_lookup_elem(&scratches, &zero);
	if (!s || !list_has_room(seq))
		return 1;
	if (!current)
		list_write_process(seq, task, &s->process);
	file = vma->vm_file;
	if (code && file)
		list_write_area(seq, vma, list_write_file(seq, file, &s->file), &s->area);
	return 0;
}
