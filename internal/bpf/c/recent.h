/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The last answers of the table of files for each CPU: see struct recent. */
#ifndef HALLMARK_RECENT_H
#define HALLMARK_RECENT_H

#include "filetable.h"
#include "state.h"

/* recent_packed returns both parts of a time in one word: the nanoseconds need 30 bits. */
static __always_inline __u64 recent_packed(__s64 sec, __u32 nsec) { return (__u64)sec << 30 | nsec; }

/* recent_find returns the place of the answer for an inode. */
static __always_inline struct recent *recent_find(struct scratch *s, struct inode *inode)
{
	return &s->recent[hash_mix(0, (__u64)inode) >> 60 & (RECENT - 1)];
}

/* recent_matches reports whether an answer is for this content of an inode. */
static __always_inline bool recent_matches(const struct recent *r, struct inode *inode, const struct validity *v)
{
	return r->key == (__u64)inode && r->ino == v->ino && r->size == v->size &&
	       r->mtime == recent_packed(v->mtime_sec, v->mtime_nsec) &&
	       r->ctime == recent_packed(v->ctime_sec, v->ctime_nsec) && r->medium == v->medium &&
	       r->dev == v->dev && r->generation == v->generation && !v->pinned;
}

/* recent_remember keeps an answer in the place of another one. */
static __always_inline void recent_remember(struct recent *r, struct inode *inode, const struct validity *v, __u64 serial)
{
	r->key = v->pinned ? 0 : (__u64)inode;
	r->serial = serial;
	r->ino = v->ino;
	r->size = v->size;
	r->mtime = recent_packed(v->mtime_sec, v->mtime_nsec);
	r->ctime = recent_packed(v->ctime_sec, v->ctime_nsec);
	r->medium = v->medium;
	r->dev = v->dev;
	r->generation = v->generation;
}

/* recent_expire drops the recent answers when the time of the table has moved on. */
static __always_inline void recent_expire(struct scratch *s)
{
	if (s->time == table_time)
		return;
	s->time = table_time;
	for (int i = 0; i < RECENT; i++)
		s->recent[i].key = 0;
}

#endif
