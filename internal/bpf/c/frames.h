/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From addresses to frames: (serial number of a file, file offset), or the reason why there is
 * none. */
#ifndef HALLMARK_FRAMES_H
#define HALLMARK_FRAMES_H

#include "serial.h"
#include "task.h"

/* A walk is the way through the user frames of one sample. */
struct walk {
	struct scratch *s;
	struct task_struct *task;
	__u64 mm;
	__u32 tgid;
	__u32 frames; /* that were written so far */
	__u64 a, b;   /* two hashes over them */
	/* The VMA of the frame before: neighbours are often in one. */
	__u64 start, end;
	__u64 base;  /* what is to be taken from an address to get frame.at */
	__u64 where; /* see struct frame */
	__u32 ended; /* enum stack_end */
};

enum seen { NOTHING, DATA, MEMORY, SEEN, WRITTEN, MOVED, UNREAD };

/* frames_look finds the VMA that holds ip, and reads what it says of itself and its file.
 * The tree is read after the number of its changes: a VMA that was taken out of it
 * before that is not in it any more. */
static __always_inline enum seen frames_look(struct walk *w, __u64 ip, struct area *a, struct inode **inode)
{
	struct mm_struct *mm = (void *)w->mm;
	__u32 since = vma_changes(mm);
	struct vm_area_struct *vma;
	struct file *file;
	enum seen seen = SEEN;
	bool settled, memory = false;

	w->s->n.walks++;
	vma = vma_find(mm, ip);
	if (!vma)
		return vma_changes(mm) == since ? NOTHING : MOVED;
	if (!vma_read(vma, w->mm, ip, a))
		return MOVED;
	file = a->file;
	if (file && a->code) {
		*inode = (void *)GET_POINTER(file, f_inode);
		filever_read(*inode, &w->s->now, false);
		memory = filever_is_memory(*inode);
		/* What was old enough before is so now, and need only not be written to. */
		if (recent_matches(recent_find(w->s, *inode), *inode, &w->s->now))
			settled = filever_writers(*inode) <= 0;
		else
			settled = filever_settle_mapping(task_executed(w->task), w->mm, (__u64)*inode, (__u64)vma,
							 &w->s->now);
		seen = !settled ? WRITTEN : w->s->now.pinned == NO_MAPPING ? UNREAD : SEEN;
	}
	if (!vma_at_rest(vma, mm, since))
		return MOVED;
	if (!a->code) /* a stack that was walked through code without frame pointers */
		return DATA;
	if (memory) /* runtimes map a memfd twice, to write code and to run it */
		return MEMORY;
	return seen;
}

/* frames_miss counts what was not seen, and returns what the frame is. */
static __always_inline __u64 frames_miss(struct scratch *s, enum seen seen)
{
	switch (seen) {
	case NOTHING:
		return frame_where(FRAME_NOT_MAPPED);
	case DATA:
		return frame_where(FRAME_NOT_CODE);
	case MEMORY:
		return frame_where(FRAME_GENERATED);
	case WRITTEN:
		s->n.written++;
		return frame_where(FRAME_WRITTEN);
	case UNREAD:
		return frame_where(FRAME_UNREAD);
	default:
		s->n.unstable++;
		return frame_where(FRAME_UNSTABLE);
	}
}

/* frames_locate finds what is mapped at an address, into w. */
static __always_inline void frames_locate(struct walk *w, __u64 ip)
{
	struct inode *inode = NULL;
	enum seen seen = MOVED;
	struct mm_struct *mm = (void *)w->mm;
	struct area *a = &w->s->area;
	__u64 serial;

	w->start = ip;
	w->end = ip + 1;
	w->base = 0;
	for (int tries = 0; tries < 2 && seen == MOVED; tries++)
		seen = frames_look(w, ip, a, &inode);
	if (seen != SEEN) {
		w->where = frames_miss(w->s, seen);
		return;
	}
	if (a->file) {
		serial = serial_of(w->s, inode);
		if (!serial || serial >> 32) {
			w->where = serial ? serial : frame_where(FRAME_NO_ENTRY);
			return;
		}
		w->where = serial & 0xffffffff;
		w->base = a->start - a->offset;
	} else if (a->start == GET_POINTER(mm, context.vdso)) {
		w->where = frame_where(a->start >> 32 ? FRAME_VDSO : FRAME_VDSO_32);
		w->base = a->start;
	} else {
		w->where = frame_where(FRAME_GENERATED);
	}
	w->start = a->start;
	w->end = a->end;
}

/* frames_push writes a frame. */
static __always_inline void frames_push(struct walk *w, __u64 where, __u64 at)
{
	struct frame *f = &w->s->out.frames[w->frames & (MAX_FRAMES - 1)];

	f->where = where;
	f->at = at;
	w->frames++;
	w->a = hash_mix(hash_mix(w->a, where), at);
	w->b = (w->b + at) * 0xd6e8feb86659fd93 + where;
	w->b ^= w->b >> 32;
}

/* frames_call_site turns a return address into one in the call before it. The innermost
 * address of each context is none. */
static __always_inline __u64 frames_call_site(struct scratch *s, __u32 i)
{
	return i < MAX_DEPTH ? s->ips[i] - !!i : 0;
}

static long frames_user_loop(__u32 i, struct walk *w)
{
	__u64 ip = frames_call_site(w->s, i);

	if (ip < w->start || ip >= w->end)
		frames_locate(w, ip);
	frames_push(w, w->where, ip - w->base);
	return 0;
}

static long frames_kernel_loop(__u32 i, struct walk *w)
{
	frames_push(w, frame_where(FRAME_KERNEL), frames_call_site(w->s, i));
	return 0;
}

/* frames_walk_kernel takes the kernel's part of the stack. */
static __always_inline void frames_walk_kernel(struct bpf_perf_event_data *ctx, struct walk *w)
{
	long n = bpf_get_stack(ctx, w->s->ips, sizeof(w->s->ips), 0);

	if (n > 0)
		bpf_loop(n / sizeof(__u64), frames_kernel_loop, w, 0);
}

/* frames_walk_user takes the user's part of the stack, if the task has one. */
static __always_inline void frames_walk_user(struct bpf_perf_event_data *ctx, struct walk *w)
{
	struct mm_struct *mm = task_current_mm();
	long n;

	w->ended = END_NO_USER_STACK;
	if (!mm)
		return;
	w->ended = END_FRAME_POINTERS;
	n = bpf_get_stack(ctx, w->s->ips, sizeof(w->s->ips), BPF_F_USER_STACK);
	if (n <= 0)
		return;
	recent_expire(w->s);
	w->mm = (__u64)mm;
	w->tgid = bpf_get_current_pid_tgid() >> 32;
	w->s->n.frames += n / sizeof(__u64);
	bpf_loop(n / sizeof(__u64), frames_user_loop, w, 0);
}

#endif
