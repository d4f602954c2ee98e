//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Says which open files there are: through the descriptors of all tasks, and through
// what is mapped. Who reads the iterators counts; here is only said what is seen.

#include "events/census.h"
#include "kernel.h"

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd __attribute__((aligned(8)));
	struct file *file;
};

struct bpf_iter__task_vma {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct vm_area_struct *vma;
};

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* A descriptor of a process. Threads that share them with the first one are left out by
 * the kernel. */
SEC("iter/task_file")
int descriptors(struct bpf_iter__task_file *ctx)
{
	struct file *file = ctx->file;
	struct census_descriptor d = {};

	if (!ctx->task || !file)
		return 0;
	d.file = (__u64)file;
	d.inode = GET_POINTER(file, f_inode);
	bpf_seq_write(ctx->meta->seq, &d, sizeof(d));
	return 0;
}

/* A mapping of a file. Processes that share their memory show the same ones. */
SEC("iter/task_vma")
int mappings(struct bpf_iter__task_vma *ctx)
{
	struct vm_area_struct *vma = ctx->vma;
	struct census_mapping m = {};
	struct file *file;

	if (!ctx->task || !vma)
		return 0;
	file = vma->vm_file;
	m.mm = GET_POINTER(vma, vm_mm);
	m.start = vma->vm_start;
	m.file = (__u64)file;
	if (file)
		m.inode = GET_POINTER(file, f_inode);
	m.code = !!(vma->vm_flags & VM_EXEC);
	bpf_seq_write(ctx->meta->seq, &m, sizeof(m));
	return 0;
}
