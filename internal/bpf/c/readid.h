/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads the identity of a file from the memory of a process that has it mapped: in
 * the task that was sampled, before the task returns to user mode (task work, since
 * 6.18), and in tasks that an iterator is at. There it may fault and sleep.
 *
 * What is read is the memory of a process, and must be the content of the file: it
 * is, if no page of the mapping was ever copied for a write (anon_vma), and if the
 * mappings of the process (see readid_is_watched) and the file itself (its validity) did not
 * change from before to after. Whatever is not so is left to user space.
 *
 * The order in which notes count is that of package buildid: a GNU note in a
 * PT_NOTE segment, one behind the last note of such a segment, Go's own note. */
#ifndef HALLMARK_READID_H
#define HALLMARK_READID_H

#include "frames.h"

#define MAX_SEGMENTS 64
#define MAX_NOTES 32
#define MAX_TRIES 16
#define PT_NOTE 4
#define NT_GNU_BUILD_ID 3
#define NT_GO_BUILD_ID 4 /* Go cmd/link/internal/ld/elf.go */

struct work_counters works_done;
enum outcome { GOING_ON, FOUND, LEFT, CHANGED };

/* How the segments are gone through, one way after the other. */
enum pass { OWN_ALIGNMENT, BY_FOUR, BEHIND, PASSES };

/* The reading of one file. */
struct reading {
	__u64 mm;
	__u64 exec;   /* how many times the task had executed a program */
	__u64 key;    /* of the table of files */
	__u64 inode;
	__u64 at;     /* an address in the mapping that is asked for */
	__u64 header; /* address of the file's first byte */
	__u64 size;   /* bytes from there on that are mapped in one piece */
	struct validity valid, before;
	struct area area;
	enum outcome outcome;
	enum pass pass;
	bool wide;    /* ELFCLASS64 */
	bool damaged; /* there are notes that cannot be */
	__u64 segments;
	__u16 segment_size, segment_count;
	__u64 note, end, align; /* offset of the next note, of the end of its segment */
	__u8 raw[64];
	struct identity gnu, go;
};

/* Whose memory is read, and how. */
struct source {
	struct reading *r;
	struct bpf_iter__task *at; /* of the task that an iterator is at; NULL: the current one */
	struct work *at_once;      /* of a sample, which does not wait for pages: a pointer, or verifiers forget it */
};

struct work {
	struct bpf_task_work tw;
	__u64 since; /* ns; 0 when free */
	__u64 thread;
	__u64 key;
	__u64 inode;
	__u64 serial;
	__u64 at; /* an address in a mapping of the file */
	struct reading reading;
	struct file_entry entry;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, struct work);
} works SEC(".maps");

/* readid_file_at finds the VMA that holds address, into r->area, and reports whether it shows the
 * content of the file and nothing else. */
__noinline int readid_file_at(struct reading *r, __u64 address)
{
	struct area *a = &r->area;
	struct vm_area_struct *vma;
	struct mm_struct *mm;
	struct inode *inode;
	struct file *file;

	if (!r)
		return false;
	a = &r->area;
	mm = (void *)r->mm;
	vma = vma_find(mm, address);
	if (!vma || !vma_read(vma, r->mm, address, a) || !a->file)
		return false;
	file = a->file;
	inode = BPF_CORE_READ(file, f_inode);
	filever_read(inode, &r->valid, false);
	return (__u64)inode == r->inode && !GET(vma, anon_vma);
}

/* readid_mapping_at returns the number of the mapping that was asked for: NO_MAPPING if it is not
 * there, or if its file may be written to. It is global as maple_find is. */
__noinline __u64 readid_mapping_at(struct reading *r, __u64 process)
{
	struct vm_area_struct *vma;
	struct mm_struct *mm;
	struct inode *inode;
	struct file *file;

	if (!r)
		return NO_MAPPING;
	mm = (void *)r->mm;
	vma = (void *)maple_find(vma_tree(mm), r->at);
	if (!vma || !vma_read(vma, r->mm, r->at, &r->area) || !r->area.file)
		return NO_MAPPING;
	file = r->area.file;
	inode = BPF_CORE_READ(file, f_inode);
	if ((__u64)inode != r->inode || filever_writers(inode) > 0 || filever_is_memory(inode))
		return NO_MAPPING;
	return filever_mapping(process, vma, r->area.start);
}

struct search {
	struct reading *r;
	__u64 at;
};

/* readid_step_back looks at the VMA before: the loader puts the segments of a file in the
 * order of the file. */
static long readid_step_back(__u32 i, struct search *s)
{
	struct area *a = &s->r->area;

	if (!readid_file_at(s->r, s->at))
		return 1;
	if (!a->offset) {
		s->r->header = a->start;
		s->r->size = a->end - a->start;
		return 1;
	}
	s->at = a->start - 1;
	return 0;
}

static __always_inline long readid_copy_memory(struct source *s, void *to, __u32 n, const void *from)
{
	struct task_struct *task;

	if (s->at_once)
		return bpf_probe_read_user(to, n, from);
	if (!s->at)
		return bpf_copy_from_user(to, n, from);
	task = s->at->task;
	return task ? bpf_copy_from_user_task(to, n, from, task, 0) : -1;
}

/* readid_copy reads from the file, as far as its first bytes are mapped in one piece. */
static __always_inline bool readid_copy(struct source *s, void *to, __u32 n, __u64 offset)
{
	struct reading *r = s->r;

	if (offset > r->size || n > r->size - offset) {
		r->outcome = LEFT;
		return false;
	}
	if (readid_copy_memory(s, to, n, (void *)(r->header + offset))) {
		r->outcome = CHANGED;
		return false;
	}
	return true;
}

#define RAW(r, type, offset) (*(type *)&(r)->raw[offset])

/* readid_header reads the ELF header: gABI chapter 4. */
static __always_inline bool readid_header(struct source *s)
{
	struct reading *r = s->r;

	if (!readid_copy(s, r->raw, 64, 0))
		return false;
	r->wide = r->raw[4] == 2;
	r->outcome = LEFT;
	if (RAW(r, __u32, 0) != 0x464c457f || r->raw[4] < 1 || r->raw[4] > 2 || r->raw[5] != 1)
		return false; /* not ELF, or not little-endian */
	r->segments = r->wide ? RAW(r, __u64, 32) : RAW(r, __u32, 28);
	r->segment_size = r->wide ? RAW(r, __u16, 54) : RAW(r, __u16, 42);
	r->segment_count = r->wide ? RAW(r, __u16, 56) : RAW(r, __u16, 44);
	if (r->segment_size != (r->wide ? 56 : 32) || r->segment_count > MAX_SEGMENTS)
		return false;
	r->outcome = GOING_ON;
	return true;
}

/* readid_note_segment reads a program header, and reports whether it is PT_NOTE. */
static __always_inline bool readid_note_segment(struct source *s, __u32 i)
{
	struct reading *r = s->r;

	if (!readid_copy(s, r->raw, r->wide ? 56 : 32, r->segments + i * r->segment_size))
		return false;
	if (RAW(r, __u32, 0) != PT_NOTE)
		return false;
	r->note = r->wide ? RAW(r, __u64, 8) : RAW(r, __u32, 4);
	r->end = r->note + (r->wide ? RAW(r, __u64, 32) : RAW(r, __u32, 16));
	r->align = (r->wide ? RAW(r, __u64, 48) : RAW(r, __u32, 28)) == 8 ? 8 : 4;
	if (r->end > r->size || r->note > r->end) {
		r->outcome = LEFT; /* elsewhere in memory, or damaged */
		return false;
	}
	return true;
}

struct note_header {
	__u32 name, content, type;
	char text[4];
};

static __always_inline __u64 readid_padded(__u64 n, __u64 align) { return (n + align - 1) & ~(align - 1); }

/* readid_take copies the content of a note. */
static __always_inline bool readid_take(struct source *s, struct identity *id, __u8 kind, __u32 n, __u64 offset)
{
	if (n < 1 || n > MAX_ID) {
		s->r->outcome = LEFT;
		return false;
	}
	id->kind = kind;
	id->size = n;
	return readid_copy(s, id->bytes, n, offset);
}

/* readid_note looks at the note at r->note and moves on. It reports whether there is
 * a next one. */
static __always_inline bool readid_note(struct source *s, __u64 end)
{
	struct reading *r = s->r;
	struct note_header *h = (void *)r->raw;
	__u64 content;

	if (!readid_copy(s, h, sizeof(*h), r->note))
		return false;
	content = r->note + readid_padded(12 + (__u64)h->name, r->align);
	if (content + h->content > end) {
		r->damaged = true;
		return false;
	}
	r->note = content + readid_padded(h->content, r->align);
	if (h->name != 4)
		return true;
	if (h->type == NT_GNU_BUILD_ID && *(__u32 *)h->text == 0x00554e47) {
		if (readid_take(s, &r->gnu, ID_GNU, h->content, content))
			r->outcome = FOUND;
		return false;
	}
	if (h->type == NT_GO_BUILD_ID && *(__u32 *)h->text == 0x00006f47 && !r->go.size)
		return readid_take(s, &r->go, ID_GO, h->content, content);
	return true;
}

static long readid_note_loop(__u32 i, struct source *s)
{
	struct reading *r = s->r;

	if (r->note + 12 > r->end)
		return 1;
	if (i == MAX_NOTES) {
		r->outcome = LEFT;
		return 1;
	}
	return !readid_note(s, r->end);
}

/* readid_look_behind looks at the note behind the last one of a segment, which may be
 * nothing of the kind. */
static __always_inline void readid_look_behind(struct source *s)
{
	struct reading *r = s->r;
	struct note_header *h = (void *)r->raw;

	if (r->note > r->size || r->size - r->note < sizeof(*h) || !readid_copy(s, h, sizeof(*h), r->note))
		return;
	r->align = 4;
	if (h->name == 4 && h->type == NT_GNU_BUILD_ID && *(__u32 *)h->text == 0x00554e47)
		readid_note(s, r->size);
}

static long readid_segment_loop(__u32 i, struct source *s)
{
	struct reading *r = s->r;
	__u64 first;

	if (!readid_note_segment(s, i))
		return r->outcome != GOING_ON;
	if (r->pass == BY_FOUR && r->align != 8)
		return 0;
	if (r->pass == BY_FOUR)
		r->align = 4;
	first = r->note;
	bpf_loop(MAX_NOTES + 1, readid_note_loop, s, 0);
	if (r->pass == BEHIND && r->outcome == GOING_ON && !r->damaged && r->note != first)
		readid_look_behind(s);
	return r->outcome != GOING_ON;
}

static long readid_pass_loop(__u32 pass, struct source *s)
{
	struct reading *r = s->r;

	r->pass = pass;
	bpf_loop(r->segment_count, readid_segment_loop, s, 0);
	return r->outcome != GOING_ON;
}

/* readid_is_watched reports whether a change of the mappings during a reading would be noticed.
 * Since 6.13 a number is odd during one. Before, it moved at the end of each: to read
 * the memory of another task takes the lock that changes need, so no change was under
 * way then, and one that ended before or began after it does no harm. Without either
 * nobody else may be there who could change them. */
static __always_inline bool readid_is_watched(struct source *s, struct mm_struct *mm)
{
	struct mm_struct___number *older = (void *)mm;

	if (bpf_core_field_exists(mm->mm_lock_seq.sequence) || (s->at && bpf_core_field_exists(older->mm_lock_seq)))
		return true;
	return GET(mm, mm_users.counter) == 1;
}

/* readid_remains reports whether the task that an iterator is at still has the memory that it
 * had: as long as it does, that is not anybody else's. */
static __always_inline bool readid_remains(struct source *s)
{
	struct task_struct *task;

	if (!s->at)
		return true;
	task = s->at->task;
	return task && GET_POINTER(task, mm) == s->r->mm && task->self_exec_id == s->r->exec;
}

/* readid_is_unchanged reports whether the mappings are as they were at the number of changes. */
static __always_inline bool readid_is_unchanged(struct source *s, struct mm_struct *mm, __u32 since)
{
	barrier();
	if (bpf_core_field_exists(mm->mm_lock_seq.sequence) && since & 1)
		return false; /* they were being changed */
	return vma_changes(mm) == since && readid_is_watched(s, mm) && readid_remains(s);
}

/* readid_file reads the identity of the file that is mapped at an address, and
 * returns how that went. */
static __always_inline enum outcome readid_file(struct source *s, __u64 at)
{
	struct reading *r = s->r;
	struct mm_struct *mm = (void *)r->mm;
	struct search back = {r, at};
	__u32 since;

	if (!readid_is_watched(s, mm))
		return LEFT;
	since = vma_changes(mm);
	bpf_loop(8, readid_step_back, &back, 0);
	if (!r->size)
		return readid_is_unchanged(s, mm, since) ? LEFT : CHANGED;
	r->before = r->valid;
	if (readid_header(s))
		bpf_loop(PASSES, readid_pass_loop, s, 0);
	if (r->outcome == CHANGED || !readid_file_at(r, r->header) || !filever_same(&r->before, &r->valid) ||
	    !readid_is_unchanged(s, mm, since))
		return CHANGED;
	if (r->outcome == GOING_ON && r->damaged)
		return LEFT;
	return r->outcome;
}

/* readid_pinned_by returns what a reading in a task has in common with the validity that it is
 * for: the mapping, or the execution of a program. */
static __always_inline __u64 readid_pinned_by(struct reading *r, struct task_struct *task, const struct validity *valid)
{
	if (filever_is_of_mapping(valid))
		return readid_mapping_at(r, task_executed(task)) | (valid->pinned & YOUNG_MAPPING);
	if (valid->pinned && filever_is_program((void *)r->mm, (void *)r->inode))
		return task_executed(task);
	return 0;
}

/* readid_is_still reports whether what was read is the content that an entry stands for. */
static __always_inline bool readid_is_still(struct source *s, struct file_entry *e)
{
	struct task_struct *task = s->at ? s->at->task : bpf_get_current_task_btf();
	struct reading *r = s->r;

	if (task)
		r->valid.pinned = readid_pinned_by(r, task, &e->valid);
	return filever_same(&e->valid, &r->valid);
}

/* readid_conclude replaces the entry of the file by one with the outcome, unless it is not
 * that of this content any more. It returns the state of the file if it is settled,
 * and FILE_PENDING else. What one process could not find out of a file that user space
 * does not know of, another one may. Where samples wait for the reading, they wait for no other one:
 * if it comes to nothing, or too late, the entry gets a new serial number.
 *
 * Between copy and update another CPU may change or replace the entry, and the update undoes
 * that. No answer gets wrong: each entry has its seal. The next look at the file makes a new
 * entry, or has the identity read again. */
static __always_inline enum file_state readid_conclude(struct source *s, struct file_entry *e, __u64 serial,
						       enum outcome outcome)
{
	bool none = outcome == LEFT || outcome == CHANGED, again;
	struct reading *r = s->r;
	__u8 quiet;

	if (filetable_snapshot(r->key, e) != KNOWN || e->serial != serial || (e->state & ~FILE_QUIET) != FILE_PENDING)
		return FILE_PENDING;
	quiet = e->state & FILE_QUIET;
	again = outcome == CHANGED || (outcome == LEFT && (quiet || e->asked));
	if (none ? again && e->tries++ < MAX_TRIES : !readid_is_still(s, e)) {
		if (e->asked)
			filetable_renew(e);
		else if (!none)
			return FILE_PENDING; /* as it is */
		bpf_map_update_elem(&files, &r->key, e, BPF_EXIST);
		return FILE_PENDING;
	}
	e->state = FILE_NONE;
	if (outcome == FOUND || (outcome == GOING_ON && r->go.size)) {
		e->state = FILE_KNOWN;
		e->id = outcome == FOUND ? r->gnu : r->go;
		e->id_seal = filetable_seal_identity(e->serial, &e->id);
	}
	e->state |= quiet;
	if (filetable_is_late(e->asked))
		filetable_renew(e);
	bpf_map_update_elem(&files, &r->key, e, BPF_EXIST);
	return e->state & ~FILE_QUIET;
}

/* readid_publish concludes a reading and sends its result. It returns what readid_conclude does. User
 * space is woken where it has waited for that. */
static __always_inline enum file_state readid_publish(struct source *s, struct work *w, enum outcome outcome)
{
	enum file_state state = readid_conclude(s, &w->entry, w->serial, outcome);
	struct file_entry *e = &w->entry;

	if (state == FILE_NONE)
		ADD(works_done.none, 1);
	if (state != FILE_KNOWN)
		return state;
	ADD(works_done.known, 1);
	if (e->state & FILE_QUIET || serial_report_identity(e, e->asked ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP))
		return state;
	ADD(works_done.lost_events, 1);
	if (e->asked) { /* user space cannot read it itself: it is sent with the next sample */
		filetable_renew(e);
		bpf_map_update_elem(&files, &w->reading.key, e, BPF_EXIST);
	}
	return state;
}

/* readid_begin makes the reading of a work. */
static __always_inline void readid_begin(struct work *w, struct mm_struct *mm)
{
	struct reading *r = &w->reading;

	__builtin_memset(r, 0, sizeof(*r));
	r->mm = (__u64)mm;
	r->key = w->key;
	r->inode = w->inode;
	r->at = w->at;
}

/* readid_at_once reads an identity that a sample waits for during that sample, as long as all that is
 * to be read is in memory. It reports whether that settled the matter. It is global as maple_find is. */
static __noinline int readid_at_once(__u32 slot)
{
	struct work *w = bpf_map_lookup_elem(&works, &slot);
	struct mm_struct *mm = task_current_mm();
	struct source source = {};
	enum outcome outcome;

	if (!w || !mm || !task_work)
		return false;
	source.r = &w->reading;
	source.at_once = w;
	readid_begin(w, mm);
	outcome = readid_file(&source, w->at);
	return (outcome == FOUND || outcome == GOING_ON) && readid_publish(&source, w, outcome) != FILE_PENDING;
}

/* readid_work runs in the task that was sampled. */
static int readid_work(struct bpf_map *map, void *key, void *value)
{
	struct work *w = value;
	struct source source = {&w->reading};
	struct mm_struct *mm = task_current_mm();
	enum outcome outcome;

	ADD(works_done.runs, 1);
	if (mm) {
		readid_begin(w, mm);
		outcome = readid_file(&source, w->at);
		if (outcome == LEFT)
			ADD(works_done.left, 1);
		if (outcome == CHANGED)
			ADD(works_done.changed, 1);
		readid_publish(&source, w, outcome);
	}
	w->since = 0;
	return 0;
}

static __always_inline int readid_schedule(struct task_struct *task, struct work *w)
{
	if (ksym_exists(bpf_task_work_schedule_resume_impl))
		return bpf_task_work_schedule_resume_impl(task, &w->tw, &works, readid_work, NULL);
	if (ksym_exists(bpf_task_work_schedule_resume))
		return bpf_task_work_schedule_resume(task, &w->tw, &works, readid_work);
	return -1;
}

/* readid_is_asked reports whether a work that has not ended is what a thread is asked for once more. */
static __always_inline bool readid_is_asked(struct work *w, __u64 thread, const struct wish *wish)
{
	return w->thread == thread && w->key == wish->key && w->serial == wish->serial;
}

/* readid_ask has the identity of a file read in the current task, and reports whether it will be. Each
 * thread reads for its own samples: another one may be asleep. A work that did not come to its end in
 * WORK_NS never will, or is taken for one: what it works on are hints, which it checks. */
static __always_inline bool readid_ask(struct walk *walk, const struct wish *wish)
{
	__u64 now, since, thread = bpf_get_current_pid_tgid();
	struct work *w;
	__u32 slot;

	ADD(works_done.asked, 1);
	slot = hash_mix(wish->key, thread) & 255;
	w = bpf_map_lookup_elem(&works, &slot);
	if (!w)
		return false;
	now = bpf_ktime_get_ns();
	since = w->since;
	if (since && now - since < WORK_NS && readid_is_asked(w, thread, wish))
		return true;
	if ((since && now - since < WORK_NS) || __sync_val_compare_and_swap(&w->since, since, now) != since) {
		ADD(works_done.busy, 1);
		return false;
	}
	w->thread = thread;
	w->key = wish->key;
	w->inode = wish->inode;
	w->serial = wish->serial;
	w->at = wish->at;
	if (wish->key != wish->inode && readid_at_once(slot)) {
		w->since = 0;
		return true;
	}
	if (!readid_schedule(walk->task, w))
		return true;
	w->since = 0;
	ADD(works_done.busy, 1);
	return false;
}

static long readid_wish_loop(__u32 i, struct walk *walk)
{
	struct scratch *s = state_scratch();
	struct wish *wish;

	if (!s || i >= WISHES || i >= s->wished)
		return 1;
	wish = &s->wishes[i];
	if (!readid_ask(walk, wish))
		serial_abandon(wish->key, wish->serial);
	return 0;
}

/* readid_ask_wishes has the identities read that a sample wished for. It comes last: no
 * function that the verifier looks at by itself may do what leads to sleeping. Its frames were sent
 * by then, and what is not read for them must never be theirs. */
static __always_inline void readid_ask_wishes(struct walk *walk)
{
	if (task_work && walk->s->wished)
		bpf_loop(WISHES, readid_wish_loop, walk, 0);
}

#endif
