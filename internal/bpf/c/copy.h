/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sends samples that user space is to finish: the registers, the memory of the stack, and
 * before that, once for each state of a process, what lies where in it. So user space can
 * go on when the process is gone. */
#ifndef HALLMARK_COPY_H
#define HALLMARK_COPY_H

#include "maplenext.h"
#include "sent.h"
#include "unwind.h"

/* What functions may use of the stack below the stack pointer: System V ABI for x86-64,
 * section 3.2.2. arm64 has nothing of the kind. */
#define RED_ZONE (IS_X86 ? 128 : 0)

#define PAGE 4096

/* Memory that events are made in, of a CPU: more than a map for each CPU may have. */
struct desk {
	struct slot slot;
	union {
		struct {
			struct copy_event copy;
			__u8 stack[MAX_COPY + PAGE];
		};
		struct space_event space;
	};
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader sets it: as many as CPUs */
	__type(key, __u32);
	__type(value, struct desk);
} desks SEC(".maps");

static __always_inline struct desk *copy_desk(void)
{
	__u32 cpu = bpf_get_smp_processor_id();
	return bpf_map_lookup_elem(&desks, &cpu);
}

/* The reading of the stack, page by page: what is not there now cannot be had. That need
 * not be its end: what a large frame has not touched yet has no pages. */
struct stack_reading {
	struct desk *desk;
	__u64 from, end;
	__u32 n;       /* bytes so far */
	__u32 size;    /* up to the last page that was there */
	__u32 missing; /* a bit for each page */
};

static long copy_page_loop(__u32 i, struct stack_reading *r)
{
	__u64 n = PAGE - r->from % PAGE;
	__u32 at = r->n;

	if (r->from >= r->end || at >= MAX_COPY)
		return 1;
	if (n > r->end - r->from)
		n = r->end - r->from;
	barrier_var(n); /* so that the verifier sees the next line */
	if (n > PAGE)
		return 1;
	r->n = at + n;
	if (bpf_probe_read_user(&r->desk->stack[at & (MAX_COPY - 1)], n, (void *)r->from))
		r->missing |= 1U << (i & 31);
	else
		r->size = r->n;
	r->from += n;
	return 0;
}

/* copy_read_stack copies the stack from an address on, up to where the process's began or to
 * the end of what may be copied. */
static __always_inline void copy_read_stack(struct desk *d, __u64 from, __u64 entry)
{
	struct stack_reading r = {d, from, from + MAX_COPY};

	if (entry > from && entry + 2 * ENTRY_SLACK < r.end)
		r.end = entry + 2 * ENTRY_SLACK;
	bpf_loop(MAX_COPY / PAGE + 1, copy_page_loop, &r, 0);
	d->copy.start = from;
	d->copy.size = r.size < MAX_COPY ? r.size : MAX_COPY;
	d->copy.missing = r.missing;
}

/* The VMAs of a process, one after the other. */
#define MAX_SLOTS 4096

struct listing {
	struct desk *d;
	struct scratch *s;
	__u64 mm;
};

static __always_inline void copy_list_area(struct listing *l, __u64 address)
{
	struct unwind_place *p = &l->s->unwinding.places[0];
	struct space_event *ev = &l->d->space;
	struct space_area *a;

	if (ev->count >= MAX_AREAS_OF_SPACE) {
		ev->cut = true;
		return;
	}
	unwind_find_place(l->s, address, p);
	a = &ev->areas[ev->count % MAX_AREAS_OF_SPACE];
	a->start = p->start;
	a->end = p->end;
	a->where = p->where;
	a->base = p->base;
	ev->space = hash_mix(hash_mix(hash_mix(hash_mix(ev->space, p->start), p->end), p->where), p->base);
	ev->count++;
}

static long copy_slot_loop(__u32 i, struct listing *l)
{
	struct slot *s = &l->d->slot;
	struct area *a = &l->s->area;

	maple_find_slot(s);
	if (s->entry && vma_read((void *)s->entry, l->mm, s->address, a) && a->code)
		copy_list_area(l, s->address);
	s->address = s->last + 1;
	if (i == MAX_SLOTS - 1 && s->address)
		l->d->space.cut = true;
	return !s->address || l->d->space.cut;
}

/* copy_was_sent reports whether user space has what a hash stands for, and where that is
 * remembered. */
static __always_inline bool copy_was_sent(__u64 hash, struct sent_set **set, __u64 *tag)
{
	__u32 slot;

	*tag = hash_mix(hash_mix(epoch, hash), EVENT_SPACE);
	slot = *tag >> 32 & (SENT_SETS - 1);
	*set = bpf_map_lookup_elem(&sent, &slot);
	return *set && sent_has(*set, *tag);
}

/* copy_list_space writes down the executable memory of the current process, and returns a
 * number for it, or 0 if it was changing. Files in it are introduced. */
static __always_inline __u64 copy_list_space(struct walk *w, struct desk *d)
{
	struct mm_struct *mm = (void *)w->mm;
	struct listing l = {d, w->s, w->mm};
	struct space_event *ev = &d->space;
	__u32 since = vma_changes(mm);

	d->slot.root = vma_tree(mm);
	d->slot.address = 0;
	ev->kind = EVENT_SPACE;
	ev->tgid = w->tgid;
	ev->started = w->s->key.started;
	ev->space = hash_mix(ev->started, ev->tgid);
	ev->count = ev->cut = 0;
	bpf_loop(MAX_SLOTS, copy_slot_loop, &l, 0);
	if (vma_changes(mm) != since)
		return 0;
	ev->space = hash_mix(ev->space, ev->cut) | 1;
	return ev->space;
}

/* copy_send_space sees to it that user space has the executable memory of the current process,
 * and returns the number of that, or 0. Where the kernel counts changes of the mappings, it
 * is only looked at after one. */
static __always_inline __u64 copy_send_space(struct walk *w, struct desk *d)
{
	struct unwinding *u = &w->s->unwinding;
	struct vm_area_struct *vma = NULL;
	struct sent_set *set;
	__u64 key, tag;

	key = hash_mix(hash_mix(task_executed(w->task), vma_changes((void *)w->mm)), table_time);
	if (bpf_core_field_exists(vma->vm_lock_seq) && u->space_key == key && copy_was_sent(u->space, &set, &tag))
		return u->space;
	u->space = copy_list_space(w, d);
	u->space_key = key;
	if (!u->space || copy_was_sent(u->space, &set, &tag))
		return u->space;
	if (!set || d->space.count > MAX_AREAS_OF_SPACE ||
	    !ring_submit(&d->space, sizeof(d->space) - (MAX_AREAS_OF_SPACE - d->space.count) * sizeof(struct space_area),
			 false))
		return 0;
	sent_remember(set, tag);
	w->s->n.spaces++;
	return u->space;
}

/* copy_begin writes down the sample of s->key, from the frame where the walk ended on, or
 * from the innermost one on if the walk was counted. It is only read here which: the stack
 * of the program is as long as may be. */
static __always_inline void copy_begin(struct copy_event *ev, struct scratch *s, __u64 space, bool counted)
{
	struct unwinding *u = &s->unwinding;

	ev->kind = EVENT_COPY;
	ev->key = s->key;
	ev->space = space;
	ev->entry = u->entry;
	ev->counted = counted;
	if (counted) {
		ev->ip = u->first_ip;
		ev->known = IS_X86 ? 0xffff : ~0U;
		ev->exact = true;
		__builtin_memcpy(ev->registers, u->first, sizeof(ev->registers));
	} else {
		ev->ip = u->ip;
		ev->known = u->known;
		ev->exact = u->exact;
		__builtin_memcpy(ev->registers, u->registers, sizeof(ev->registers));
	}
}

/* copy_submit sends a sample, whose stack user space has been sent. */
static __always_inline bool copy_submit(struct walk *w, bool counted)
{
	struct desk *d = copy_desk();
	struct copy_event *ev;
	__u64 space;

	if (!d)
		return false;
	space = copy_send_space(w, d); /* before ev is written: they have the same memory */
	ev = &d->copy;
	copy_begin(ev, w->s, space, counted);
	copy_read_stack(d, ev->registers[STACK_POINTER] - RED_ZONE, ev->entry);
	return ev->size <= MAX_COPY && ring_submit(ev, sizeof(*ev) + ev->size, false);
}

/* Copies are large, and leave the rest of the ring to the records of files and stacks: a
 * sample that is counted as it is lacks some frames, and one whose stack was not sent is lost. */
#define RING_FOR_COPIES (2 << 20)

/* copy_sample sends a sample to be finished, or to be compared. It reports whether user
 * space has it. It is global as maple_find is. */
__noinline int copy_sample(bool counted)
{
	struct walk w = {.s = state_scratch(), .task = bpf_get_current_task_btf()};
	bool sent;

	if (!w.s || !unwinding)
		return false;
	w.mm = (__u64)task_current_mm();
	w.tgid = bpf_get_current_pid_tgid() >> 32;
	if (!counted && bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > RING_FOR_COPIES) {
		w.s->n.lost_copies++;
		return false;
	}
	sent = copy_submit(&w, counted);
	if (sent)
		w.s->n.copies++;
	else
		w.s->n.lost_copies++;
	return sent;
}

#endif
