//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Reports which programs are executed and which processes end. The identity of a program is
// read by the process itself before it runs its first instruction (readid.h), so that it
// is known however short it lives and wherever its file is.
//
// The programs are on raw tracepoints, in the task that they report or, when it has
// ended, in an RCU callback.

#define READ_BEFORE_IT_RUNS 1
#include "follow.h"
#include "hook.h"
#include "events/exec.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Since 6.10. */
extern void bpf_preempt_disable(void) __ksym __weak;
extern void bpf_preempt_enable(void) __ksym __weak;

/* Since 7.0 programs on raw tracepoints may be preempted, and what another task executes on
 * that CPU meanwhile is left out: the kernel takes it for a program that interrupts itself.
 * So the loader lets the programs hold the CPU while they use its memory, and attaches
 * each more than once: a copy does what those before it were left out of. */
const volatile bool hold_cpu = false;

static __always_inline void exec_hold_cpu(void)
{
	if (hold_cpu && ksym_exists(bpf_preempt_disable))
		bpf_preempt_disable();
}

static __always_inline void exec_release_cpu(void)
{
	if (hold_cpu && ksym_exists(bpf_preempt_enable))
		bpf_preempt_enable();
}

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct linux_binprm {
	const char *filename;
	const char *interp;
};

typedef struct {
	__u32 val;
} kuid_t;

typedef struct {
	__u32 val;
} kgid_t;

struct cred {
	kuid_t uid, euid;
	kgid_t gid, egid;
};

struct sched_entity {
	__u64 sum_exec_runtime;
};

struct task_struct___exec {
	struct task_struct *real_parent;
	struct cred *cred;
	int exit_code;
	struct sched_entity se;
};

struct signal_struct___exec {
	atomic_t live;
	unsigned int flags;
	int group_exit_code;
	unsigned long long sum_sched_runtime;
};

struct mm_struct___exec {
	unsigned long start_code;
	unsigned long arg_start, arg_end;
};

struct inode___links {
	unsigned int i_nlink;
};

struct pt_regs___x86 {
	unsigned long ip;
};

struct pt_regs___arm64 {
	unsigned long pc;
};

#pragma clang attribute pop

#define SIGNAL_GROUP_EXIT 4 /* include/linux/sched/signal.h */

struct exec_counters exec_done;

/* Whether user space waits to be woken by the next event. While it looks by itself every
 * now and then, it is woken by files that it should open, and before the ring is full. */
bool wake_reader = true;

/* The size of the ring, bytes. */
const volatile __u64 ring_size;

/* exec_fills reports whether an event takes the ring one eighth further, of those behind its
 * first half. */
static __always_inline bool exec_fills(__u64 size)
{
	__u64 used = bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA), eighth = ring_size / 8;

	return used + size >= ring_size / 2 && (used + size) / eighth != used / eighth;
}

static __always_inline bool exec_send(void *event, __u64 size)
{
	__u64 wake = wake_reader ? 0 : exec_fills(size) ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;

	return !bpf_ringbuf_output(&events, event, size, wake);
}

/* So that the Go types can be made from these. */
const struct exit_event *types_exit __attribute__((unused));
const struct ended_event *types_ended __attribute__((unused));

/* Room for all texts of an event; a power of two, and behind it the longest one. */
#define EXEC_TEXT 16384

/* Memory that an event is made in. A program that is interrupted by itself on one CPU is
 * left out by the kernel, which counts that. */
struct exec_desk {
	__u64 last_exec, last_end; /* that were reported: hashes */
	struct exec_event ev;
	char text[EXEC_TEXT + MAX_EXEC_PATH];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct exec_desk);
} exec_desks SEC(".maps");

/* exec_is_followed reports whether a process is to be reported. What it is followed from is its
 * exec at the latest, so in which state it is does not matter. */
static __always_inline bool exec_is_followed(__u32 tgid) { return !follow || bpf_map_lookup_elem(&followed, &tgid); }

/* path_walk is the way from a file up to the root of its mount namespace. */
struct path_walk {
	struct exec_desk *d;
	struct dentry *dentry;
	struct mount *mount;
	struct dentry *root; /* of the mount */
	__u32 used;
	bool cut;
};

#define MAX_PATH_STEPS 256 /* components and mounts */

static long exec_path_loop(__u32 i, struct path_walk *p)
{
	struct dentry *dentry = p->dentry, *parent = BPF_CORE_READ(dentry, d_parent);
	struct mount *mount = p->mount;
	__u32 at = p->used;
	long n;

	if (dentry == p->root && mount != BPF_CORE_READ(mount, mnt_parent)) {
		p->dentry = BPF_CORE_READ(mount, mnt_mountpoint);
		p->mount = mount = BPF_CORE_READ(mount, mnt_parent);
		p->root = BPF_CORE_READ(mount, mnt.mnt_root);
		return 0;
	}
	if (dentry == parent && at)
		return 1;
	if (at > MAX_EXEC_PATH - MAX_NAME || i == MAX_PATH_STEPS - 1) {
		p->cut = true;
		return 1;
	}
	n = bpf_probe_read_kernel_str(&p->d->text[at & (EXEC_TEXT - 1)], MAX_NAME, BPF_CORE_READ(dentry, d_name.name));
	if (n <= 0)
		return 1;
	p->used = at + n;
	p->dentry = parent;
	return dentry == parent;
}

/* exec_write_path writes the path of the program, as the mount namespace of the process has it,
 * and returns how many bytes. */
static __always_inline __u32 exec_write_path(struct exec_desk *d, struct file *file)
{
	struct vfsmount *vfs = BPF_CORE_READ(file, f_path.mnt);
	struct path_walk p = {.d = d, .dentry = BPF_CORE_READ(file, f_path.dentry)};

	p.mount = (void *)vfs - bpf_core_field_offset(struct mount, mnt);
	p.root = BPF_CORE_READ(vfs, mnt_root);
	bpf_loop(MAX_PATH_STEPS, exec_path_loop, &p, 0);
	if (p.cut)
		d->ev.flags |= EXEC_PATH_CUT;
	return p.used;
}

/* exec_write_text writes a text of the kernel with its NUL, and returns how many bytes. */
static __always_inline __u32 exec_write_text(struct exec_desk *d, __u32 at, __u32 size, const char *from)
{
	long n = bpf_probe_read_kernel_str(&d->text[at & (EXEC_TEXT - 1)], size, from);

	return n > 0 ? n : 0;
}

/* exec_write_args writes the arguments, which lie where the new program will find them, and
 * returns how many bytes. */
static __always_inline __u32 exec_write_args(struct exec_desk *d, __u32 at, struct mm_struct *mm)
{
	struct mm_struct___exec *e = (void *)mm;
	__u64 start = BPF_CORE_READ(e, arg_start), n = BPF_CORE_READ(e, arg_end) - start;

	if (n > MAX_EXEC_ARGS) {
		n = MAX_EXEC_ARGS;
		d->ev.flags |= EXEC_ARGS_CUT;
	}
	barrier_var(n); /* so that the verifier sees the next line */
	if (n > MAX_EXEC_ARGS || bpf_probe_read_user(&d->text[at & (EXEC_TEXT - 1)], n, (void *)start)) {
		d->ev.flags |= EXEC_ARGS_UNREAD;
		return 0;
	}
	return n;
}

/* exec_write_texts writes all texts and returns how many bytes. */
static __always_inline __u32 exec_write_texts(struct exec_desk *d, struct mm_struct *mm, struct linux_binprm *bprm)
{
	const char *filename = BPF_CORE_READ(bprm, filename), *interp = BPF_CORE_READ(bprm, interp);
	struct exec_event *ev = &d->ev;
	__u32 at;

	at = ev->path_size = exec_write_path(d, BPF_CORE_READ(mm, exe_file));
	at += ev->file_size = exec_write_text(d, at, MAX_EXEC_PATH, filename);
	ev->interp_size = 0;
	if (interp != filename) { /* bprm_change_interp, fs/exec.c */
		ev->flags |= EXEC_SCRIPT;
		at += ev->interp_size = exec_write_text(d, at, MAX_INTERP, interp);
	}
	at += ev->args_size = exec_write_args(d, at, mm);
	return at;
}

/* exec_entry returns where the process will run first: in the interpreter of its program, or
 * in the program. */
static __always_inline __u64 exec_entry(struct task_struct *task)
{
	void *regs = (void *)bpf_task_pt_regs(task);
	struct pt_regs___x86 *x86 = regs;
	struct pt_regs___arm64 *arm64 = regs;

	/* Not computed where there is no such register: see vma_changes. */
	if (bpf_core_field_exists(x86->ip)) {
		barrier_var(x86);
		return BPF_CORE_READ(x86, ip);
	}
	if (bpf_core_field_exists(arm64->pc)) {
		barrier_var(arm64);
		return BPF_CORE_READ(arm64, pc);
	}
	return 0;
}

/* The reading of an identity by the process that has just executed the file. It is reported by
 * the file's serial number, whatever the table of files says by then: the number of a file
 * that was just written is for one process alone, and the next one that executes it takes
 * the entry. */
struct exec_work {
	struct bpf_task_work tw;
	__u64 since; /* ns; 0 when free */
	__u64 key;
	__u64 inode;
	__u64 serial;
	__u64 at; /* an address in a mapping of the file */
	struct validity valid;
	struct reading reading;
	struct file_entry entry;
};
#define EXEC_WORKS 256 /* a power of two */
#define WORK_PLACES 8  /* that one may take */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, EXEC_WORKS);
	__type(key, __u32);
	__type(value, struct exec_work);
} exec_works SEC(".maps");

static __always_inline void exec_report_reading(struct exec_work *w, struct identity *id)
{
	w->entry.id = *id;
	w->entry.serial = w->serial;
	if (serial_report_identity(&w->entry, BPF_RB_NO_WAKEUP))
		ADD(works_done.known, 1);
	else
		ADD(works_done.lost_events, 1);
}

/* exec_reading is the reading of a file that a process has just executed. */
struct exec_reading {
	struct source source;
	struct exec_work *work;
	enum outcome outcome;
};

/* How often a file is read while it changes: nobody comes again. */
#define READINGS 3

static long exec_reading_loop(__u32 i, struct exec_reading *x)
{
	struct exec_work *w = x->work;
	struct reading *r = &w->reading;

	__builtin_memset(r, 0, sizeof(*r));
	r->mm = GET_POINTER(bpf_get_current_task_btf(), mm);
	r->key = w->key;
	r->inode = w->inode;
	r->at = w->at;
	x->outcome = readid_file(&x->source, w->at);
	return x->outcome != CHANGED;
}

/* exec_is_asked reports whether what was read is of the content that was asked for. All that a
 * mapping shows since it was made counts as that. */
static __always_inline bool exec_is_asked(const struct validity *asked, const struct validity *read)
{
	return filever_is_of_mapping(asked) ? asked->pinned == read->pinned : filever_same(asked, read);
}

/* exec_do_work runs in the process before it returns to user mode: nothing of the program
 * has run. */
static int exec_do_work(struct bpf_map *map, void *key, void *value)
{
	struct exec_work *w = value;
	struct reading *r = &w->reading;
	struct task_struct *task = bpf_get_current_task_btf();
	struct exec_reading x = {.source = {r}, .work = w, .outcome = CHANGED};

	ADD(works_done.runs, 1);
	if (task->mm) {
		bpf_loop(READINGS, exec_reading_loop, &x, 0);
		readid_conclude(&x.source, &w->entry, w->serial, x.outcome);
		r->valid.pinned = readid_pinned_by(r, task, &w->valid);
		if (exec_is_asked(&w->valid, &r->valid) && x.outcome == FOUND)
			exec_report_reading(w, &r->gnu);
		else if (exec_is_asked(&w->valid, &r->valid) && x.outcome == GOING_ON && r->go.size)
			exec_report_reading(w, &r->go);
	}
	w->since = 0;
	return 0;
}

static __always_inline int exec_schedule(struct task_struct *task, struct exec_work *w)
{
	if (ksym_exists(bpf_task_work_schedule_resume_impl))
		return bpf_task_work_schedule_resume_impl(task, &w->tw, &exec_works, exec_do_work, NULL);
	if (ksym_exists(bpf_task_work_schedule_resume))
		return bpf_task_work_schedule_resume(task, &w->tw, &exec_works, exec_do_work);
	return -1;
}

/* exec_take_work takes an element that is free, or that was never given back. */
static __always_inline struct exec_work *exec_take_work(__u64 now, __u32 first)
{
	for (__u32 i = 0; i < WORK_PLACES; i++) {
		__u32 slot = (first + i) & (EXEC_WORKS - 1);
		struct exec_work *w = bpf_map_lookup_elem(&exec_works, &slot);
		__u64 since;

		if (!w)
			return NULL;
		since = w->since;
		if ((!since || now - since >= WORK_NS) && __sync_val_compare_and_swap(&w->since, since, now) == since)
			return w;
	}
	return NULL;
}

/* How many elements are tried for a reading. The kernel refuses one whose last reading has given
 * it back and not returned yet, and any while it has no memory at hand for its own part. */
#define WORK_TRIES 3

/* The order to read a file. */
struct exec_order {
	struct task_struct *task;
	const struct wish *wish;
	const struct validity *valid;
	__u32 first; /* element to try */
	bool given;
};

static long exec_order_loop(__u32 i, struct exec_order *o)
{
	struct exec_work *w = exec_take_work(bpf_ktime_get_ns(), o->first + i);

	if (!w)
		return 1;
	w->key = o->wish->key;
	w->inode = o->wish->inode;
	w->serial = o->wish->serial;
	w->at = o->wish->at;
	w->valid = *o->valid;
	o->given = !exec_schedule(o->task, w);
	if (!o->given)
		w->since = 0;
	return o->given;
}

/* exec_have_read has the identity of a file read that the table does not know. */
static __always_inline void exec_have_read(struct walk *walk, const struct wish *wish)
{
	struct exec_order o = {walk->task, wish, &walk->s->now, hash_mix(wish->serial, walk->tgid)};

	ADD(works_done.asked, 1);
	bpf_loop(WORK_TRIES, exec_order_loop, &o, 0);
	if (!o.given)
		ADD(works_done.busy, 1);
}

/* exec_identify says which file is mapped at an address, and has its identity read. */
static __always_inline __u64 exec_identify(struct walk *w, __u64 address)
{
	w->s->wished = 0;
	frames_locate(w, address);
	if (task_work && w->s->wished)
		exec_have_read(w, &w->s->wishes[0]);
	return w->where;
}

/* The time of a process's first thread is in the sum of all threads only when that was
 * reaped, and it may have run for a moment after that. */
static __always_inline __u64 exec_more(__u64 own, __u64 sum) { return sum > own ? sum : own; }

/* exec_cpu_time returns what all threads of a process have run, ns. */
static __always_inline __u64 exec_cpu_time(struct task_struct *leader)
{
	struct task_struct___exec *t = (void *)leader;
	struct signal_struct___exec *signal = (void *)BPF_CORE_READ(leader, signal);

	return exec_more(BPF_CORE_READ(t, se.sum_exec_runtime), BPF_CORE_READ(signal, sum_sched_runtime));
}

/* The current task is read as the verifier lets a program read it, without a helper for each
 * field: each would take as long as a dozen of these. */
static __always_inline void exec_write_owner(struct exec_event *ev)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct task_struct___exec *t = (void *)task;

	ev->started = task->group_leader->start_boottime;
	ev->exec = task->self_exec_id;
	ev->cgroup = bpf_get_current_cgroup_id();
	ev->cpu = exec_cpu_time(task); /* which is the first thread now */
	ev->ppid = BPF_CORE_READ(t, real_parent, tgid);
	ev->uid = t->cred->uid.val;
	ev->gid = t->cred->gid.val;
	ev->euid = t->cred->euid.val;
	ev->egid = t->cred->egid.val;
	bpf_get_current_comm(ev->comm, sizeof(ev->comm));
}

static __always_inline bool exec_is_nameless(struct file *file)
{
	struct inode___links *inode = (void *)BPF_CORE_READ(file, f_inode);

	return !BPF_CORE_READ(inode, i_nlink);
}

/* exec_report reports what the current task has executed. */
static __always_inline void exec_report(struct exec_desk *d, struct walk *w, __u32 tid, struct linux_binprm *bprm)
{
	struct exec_event *ev = &d->ev;
	struct mm_struct *mm = (void *)w->mm;
	__u32 n;

	ev->kind = EVENT_EXEC;
	ev->flags = 0;
	ev->tgid = w->tgid;
	ev->tid = tid;
	exec_write_owner(ev);
	if (exec_is_nameless(BPF_CORE_READ(mm, exe_file)))
		ev->flags |= EXEC_DELETED;
	n = exec_write_texts(d, mm, bprm);
	if (n > EXEC_TEXT || !exec_send(ev, sizeof(*ev) + n))
		ADD(exec_done.lost_execs, 1);
}

/* exec_was_reported reports whether a program before this one has reported what the current task has
 * executed. When it is wrong, for want of the CPU, that is reported twice. */
static __always_inline bool exec_was_reported(void)
{
	__u32 zero = 0;
	struct exec_desk *d = bpf_map_lookup_elem(&exec_desks, &zero);

	return d && d->last_exec == hash_mix(task_executed(bpf_get_current_task_btf()), bpf_get_current_pid_tgid() >> 32);
}

static __always_inline void exec_see_program(__u32 tid, struct linux_binprm *bprm)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct walk w = {.task = task};
	struct mm_struct___exec *mm;
	__u64 now = bpf_ktime_get_ns(), address;
	__u32 zero = 0;
	struct exec_desk *d = bpf_map_lookup_elem(&exec_desks, &zero);

	w.s = state_scratch();
	w.mm = (__u64)task_current_mm();
	w.tgid = bpf_get_current_pid_tgid() >> 32;
	if (!d || !w.s || !w.mm || !exec_is_followed(w.tgid))
		return;
	d->last_exec = hash_mix(task_executed(task), w.tgid);
	mm = (void *)w.mm;
	recent_expire(w.s);
	d->ev.time = now;
	d->ev.program = exec_identify(&w, BPF_CORE_READ(mm, start_code));
	address = exec_entry(task);
	d->ev.interpreter = address >= w.start && address < w.end ? w.where : exec_identify(&w, address);
	exec_report(d, &w, tid, bprm);
}

/* sched_process_exec(task, old pid, bprm): the new memory is there, and nothing of it has
 * run. */
#define SEE_EXEC(name, copy)                                                                   \
	SEC("raw_tp/sched_process_exec")                                                       \
	int name(struct bpf_raw_tracepoint_args *ctx)                                          \
	{                                                                                      \
		if (copy && exec_was_reported())                                                        \
			return 0;                                                              \
		exec_hold_cpu();                                                                        \
		exec_see_program(ctx->args[1], (void *)ctx->args[2]);                               \
		exec_release_cpu();                                                                      \
		return 0;                                                                      \
	}

SEE_EXEC(see_exec, false)
SEE_EXEC(see_exec_2, true)
SEE_EXEC(see_exec_3, true)

/* exec_was_ended does the same for the end of a process. Most threads are not the last one. */
static __always_inline bool exec_was_ended(void)
{
	struct task_struct *task = bpf_get_current_task_btf(), *leader = task->group_leader;
	struct signal_struct___exec *signal = (void *)task->signal;
	__u32 zero = 0;
	struct exec_desk *d = bpf_map_lookup_elem(&exec_desks, &zero);

	return signal->live.counter || (d && d->last_end == hash_mix(leader->start_boottime, task->tgid));
}

/* exec_see_end reports the end of the current task's process. */
static __always_inline void exec_see_end(void)
{
	struct task_struct *task = bpf_get_current_task_btf(), *leader = task->group_leader;
	struct task_struct___exec *l = (void *)leader, *t = (void *)task;
	struct signal_struct___exec *signal = (void *)task->signal;
	struct exit_event ev = {.kind = EVENT_EXIT, .tgid = task->tgid};
	__u32 zero = 0;
	struct exec_desk *d = bpf_map_lookup_elem(&exec_desks, &zero);

	if (signal->live.counter || task->flags & PF_KTHREAD || !exec_is_followed(ev.tgid))
		return;
	ev.started = leader->start_boottime;
	if (d)
		d->last_end = hash_mix(ev.started, ev.tgid);
	ev.time = bpf_ktime_get_ns();
	ev.cgroup = bpf_get_current_cgroup_id();
	ev.cpu = exec_more(l->se.sum_exec_runtime, signal->sum_sched_runtime);
	ev.ppid = BPF_CORE_READ(l, real_parent, tgid);
	ev.uid = t->cred->uid.val;
	ev.gid = t->cred->gid.val;
	/* As wait_task_zombie of kernel/exit.c has it. */
	ev.status = signal->flags & SIGNAL_GROUP_EXIT ? signal->group_exit_code : l->exit_code;
	bpf_probe_read_kernel(ev.comm, sizeof(ev.comm), &leader->comm);
	if (!exec_send(&ev, sizeof(ev)))
		ADD(exec_done.lost_exits, 1);
}

/* sched_process_exit(task), for each thread, in that thread. */
#define SEE_EXIT(name, copy)                                                                   \
	SEC("raw_tp/sched_process_exit")                                                       \
	int name(struct bpf_raw_tracepoint_args *ctx)                                          \
	{                                                                                      \
		if (copy && exec_was_ended())                                                       \
			return 0;                                                              \
		exec_hold_cpu();                                                                        \
		exec_see_end();                                                                     \
		exec_release_cpu();                                                                      \
		return 0;                                                                      \
	}

SEE_EXIT(see_exit, false)
SEE_EXIT(see_exit_2, true)
SEE_EXIT(see_exit_3, true)

/* sched_process_free(task), when the task has been switched out for good: before, what it
 * has run is only known up to the last time that the scheduler looked. */
SEC("raw_tp/sched_process_free")
int see_free(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (void *)ctx->args[0];
	struct ended_event ev = {.kind = EVENT_ENDED, .tgid = BPF_CORE_READ(task, tgid)};

	if (BPF_CORE_READ(task, pid) != ev.tgid || !exec_is_followed(ev.tgid))
		return 0;
	ev.started = BPF_CORE_READ(task, start_boottime);
	ev.cpu = exec_cpu_time(task);
	if (!exec_send(&ev, sizeof(ev)))
		ADD(exec_done.lost_ends, 1);
	return 0;
}
