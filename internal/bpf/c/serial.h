/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The serial numbers of the files that a sample is in: what the table of files has, or gets
 * here, and what user space is sent of it. */
#ifndef HALLMARK_SERIAL_H
#define HALLMARK_SERIAL_H

#include "filetable.h"
#include "path.h"
#include "recent.h"
#include "state.h"

/* serial_read_path writes the components of a path, the last first, and returns how many
 * bytes. A mount is crossed where its root is reached (fs/d_path.c). Names may change
 * meanwhile: a path is for people, and for user space to try. It is global as maple_find
 * is. */
#define MAX_COMPONENTS 32
__noinline __u32 serial_read_path(struct area *a, struct path_text *out)
{
	struct way_up p = {.out = out};
	struct vfsmount *vfs;
	struct file *file;

	if (!a || !out)
		return 0;
	file = a->file;
	p.dentry = BPF_CORE_READ(file, f_path.dentry);
	vfs = BPF_CORE_READ(file, f_path.mnt);
	p.mount = (void *)vfs - bpf_core_field_offset(struct mount, mnt);
	bpf_loop(MAX_COMPONENTS, path_loop, &p, 0);
	return p.used;
}

/* serial_may_wish reports whether the identity of one more file can be read in the current task. */
static __always_inline bool serial_may_wish(struct scratch *s) { return task_work && s->wished < WISHES; }

/* serial_is_wished reports whether a sample wishes for the identity of a file already. It is global as
 * maple_find is. */
__noinline int serial_is_wished(__u64 key)
{
	struct scratch *s = state_scratch();
	__u64 found = 0;

	if (!s)
		return false;
	_Pragma("unroll") for (int i = 0; i < WISHES; i++)
		found += i < s->wished && s->wishes[i].key == key;
	return found;
}

/* serial_wish writes down that the identity of a file is to be read in the current task. Of those
 * that neither were given their serial number just now nor are waited for, one is enough for a sample. */
static __always_inline void serial_wish(struct scratch *s, __u64 key, __u64 inode, __u64 serial, __u64 at, bool wanted)
{
	__u32 n = s->wished;
	struct wish *wish;

	if (n >= WISHES || (n && !wanted) || serial_is_wished(key))
		return;
	wish = &s->wishes[n];
	wish->key = key;
	wish->inode = inode;
	wish->serial = serial;
	wish->at = at;
	s->wished = n + 1;
}

static __noinline void serial_submit_file(struct file_event *ev, __u64 wakeup) { bpf_ringbuf_submit(ev, wakeup); }

/* serial_introduce sends user space the file that a serial number stands for. It is woken when there is
 * something to be done: where an identity has to be read first, it is woken by that. */
static __always_inline void serial_introduce(struct scratch *s, __u64 key, struct file_entry *e, struct file_event *ev)
{
	struct area *a = &s->area;

	ev->kind = EVENT_FILE;
	ev->tgid = bpf_get_current_pid_tgid() >> 32;
	ev->serial = e->serial;
	ev->key = key;
	ev->start = a->start;
	ev->end = a->end;
	ev->offset = a->offset;
	ev->valid = s->now;
	__builtin_memset(ev->path, 0, sizeof(ev->path));
	serial_read_path(a, (void *)ev->path);
	serial_submit_file(ev, e->asked ? BPF_RB_NO_WAKEUP : BPF_RB_FORCE_WAKEUP);
}

/* serial_admit gives a file a serial number and sends it to user space. It returns 0 when the table takes
 * no entry, and an error when it was overtaken. The event has its place before anybody
 * can read the entry, so that every serial number in a stack is sent before it. It is
 * global as maple_find is. */
__noinline __s64 serial_admit(__u64 key, enum known how)
{
	struct scratch *s = state_scratch();
	struct file_event *ev;
	struct file_entry *e;
	long err;

	if (!s)
		return 0;
	e = &s->fresh;
	if (how == UNKNOWN && filetable_is_full()) {
		s->n.table_full++;
		return 0;
	}
	ev = bpf_ringbuf_reserve(&events, sizeof(*ev), 0);
	if (!ev) {
		s->n.lost_events++;
		return 0;
	}
	__builtin_memset(e, 0, sizeof(*e)); /* it may have been another file's */
	e->valid = s->now;
	e->serial = filetable_new_serial();
	e->seal = filetable_seal(e->serial, &e->valid);
	e->asked = filever_must_be_read(&e->valid) ? filetable_clock() : 0;
	err = e->serial ? filetable_insert(key, e, how) : -E2BIG;
	if (!err) {
		serial_introduce(s, key, e, ev);
		return e->serial;
	}
	bpf_ringbuf_discard(ev, BPF_RB_NO_WAKEUP);
	if (filetable_overtaken(err))
		return err;
	s->n.refused++;
	return 0;
}

static __noinline void serial_submit_identity(struct id_event *ev, struct file_entry *e, __u64 wakeup)
{
	ev->kind = EVENT_ID;
	ev->state = FILE_KNOWN;
	ev->id = e->id;
	ev->pad = 0;
	ev->serial = e->serial;
	bpf_ringbuf_submit(ev, wakeup);
}

/* serial_report_identity sends user space the identity of a file. */
static __always_inline bool serial_report_identity(struct file_entry *e, __u64 wakeup)
{
	struct id_event *ev = bpf_ringbuf_reserve(&events, sizeof(*ev), 0);

	if (ev)
		serial_submit_identity(ev, e, wakeup);
	return ev;
}

/* serial_unveil sends user space a file that the table knows and it does not: now a sample
 * is in it. It returns the serial number; 0 when there was no room for the events; an error
 * when another CPU has replaced the entry. It is global as maple_find is. */
__noinline __s64 serial_unveil(__u64 key, __u64 serial)
{
	struct scratch *s = state_scratch();
	struct file_event *ev;
	struct file_entry *e;

	if (!s)
		return 0;
	e = &s->fresh;
	ev = bpf_ringbuf_reserve(&events, sizeof(*ev), 0);
	if (!ev) {
		s->n.lost_events++;
		return 0;
	}
	if (filetable_snapshot(key, e) != KNOWN || e->serial != serial) {
		bpf_ringbuf_discard(ev, BPF_RB_NO_WAKEUP);
		s->n.torn++;
		return -EAGAIN;
	}
	e->state &= ~FILE_QUIET;
	if (e->state == FILE_PENDING && filever_must_be_read(&e->valid))
		e->asked = filetable_clock();
	serial_introduce(s, key, e, ev);
	if (e->state == FILE_KNOWN && !serial_report_identity(e, BPF_RB_NO_WAKEUP)) {
		s->n.lost_events++;
		return serial; /* both are sent again */
	}
	bpf_map_update_elem(&files, &key, e, BPF_EXIST);
	return serial;
}

/* serial_abandon has an identity that nobody will read for the samples of a mapping so far count for
 * none of them. It is global as maple_find is. */
__noinline int serial_abandon(__u64 key, __u64 serial)
{
	struct scratch *s = state_scratch();
	struct file_entry *e;

	if (!s)
		return 0;
	e = &s->fresh;
	if (filetable_snapshot(key, e) != KNOWN || e->serial != serial || e->state != FILE_PENDING || !e->asked)
		return 0;
	filetable_renew(e);
	bpf_map_update_elem(&files, &key, e, BPF_EXIST);
	return 0;
}

/* The search for the serial number of a file that is in a sample. */
struct sample_look {
	__u64 key;
	__s64 serial; /* 0: there can be no entry; negative: the error of the look before */
	__u8 state;
	bool fresh;  /* the serial number was given just now */
	bool unread; /* its identity must be read before it is believed, and will not be for this sample */
};

/* serial_is_unread reports whether nobody reads the identity of a mapping for this sample, where that
 * is what it takes: it is not known yet, and cannot be read, or there are too many to read. It is global
 * as maple_find is. */
__noinline int serial_is_unread(__u64 key, enum known how, enum file_state state)
{
	struct scratch *s = state_scratch();

	if (!s || !filever_must_be_read(&s->now) || (how == KNOWN && state == FILE_KNOWN))
		return false;
	return (how == KNOWN && state == FILE_NONE) || !(serial_may_wish(s) || serial_is_wished(key));
}

static long serial_loop(__u32 i, struct sample_look *l)
{
	struct scratch *s = state_scratch();
	__u64 serial = 0;
	enum known how;
	bool quiet;

	if (!s)
		return 1;
	how = filetable_lookup(l->key, &s->now, &serial, &l->state);
	s->n.torn += how == TORN;
	s->n.stale += how == STALE;
	l->fresh = how != KNOWN;
	quiet = l->state & FILE_QUIET;
	l->state &= ~FILE_QUIET;
	if (!i && filetable_is_doubtful(how)) {
		l->serial = -EAGAIN;
	} else if (serial_is_unread(l->key, how, l->state)) {
		l->unread = true;
		return 1;
	} else if (how == KNOWN) {
		l->serial = quiet ? serial_unveil(l->key, serial) : serial;
	} else {
		l->serial = serial_admit(l->key, filetable_corrected(how, l->serial));
		l->state = FILE_PENDING;
	}
	return l->serial >= 0;
}

/* serial_look_up returns the serial number of the entry of an inode, which s->area is of and whose
 * validity is in s->now. It makes an entry where there is none to be believed, and returns 0
 * where there can be none; and what a frame is sent with, frame_where(FRAME_UNREAD), where no frame
 * may have the number. It is global as maple_find is. */
__noinline __u64 serial_look_up(__u64 inode)
{
	struct sample_look l = {};
	struct scratch *s = state_scratch();

	if (!s)
		return 0;
	l.key = filetable_key(inode, &s->now);
	bpf_loop(LOOKS, serial_loop, &l, 0);
	if (l.unread)
		return frame_where(FRAME_UNREAD);
	if (l.serial < 0)
		s->n.refused++;
	if (l.serial <= 0)
		return 0;
	if (task_work && l.state == FILE_PENDING)
		serial_wish(s, l.key, inode, l.serial, s->area.start, l.fresh || filever_must_be_read(&s->now));
	else if (!filever_is_of_mapping(&s->now))
		recent_remember(recent_find(s, (void *)inode), (void *)inode, &s->now, l.serial);
	return l.serial;
}

/* serial_of returns the serial number of the file that s->area maps, whose validity is in
 * s->now. */
static __always_inline __u64 serial_of(struct scratch *s, struct inode *inode)
{
	struct recent *r = recent_find(s, inode);

	if (recent_matches(r, inode, &s->now))
		return r->serial;
	return serial_look_up((__u64)inode);
}

#endif
