/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The table of files: the serial number of each, by its inode or its mapping.
 *
 * A serial number stands for one content of one file. The table gives a new one when it meets
 * an inode for the first time, or when what validates its entry (filever.h) is not as it was. So
 * a frame never means another file than the one that was mapped, whatever becomes of the entry.
 * What identity a serial number has is reported by an event, now or later.
 *
 * Where the times of files show nothing (fs.h), a serial number is for one mapping. Frames have it
 * while its identity is read from the pages of that mapping (readid.h): they wait for that reading,
 * and where it comes to nothing, no later one counts for them. */
#ifndef HALLMARK_FILETABLE_H
#define HALLMARK_FILETABLE_H

#include "filesettle.h"
#include "hash.h"
#include "ring.h"
#include <linux/errno.h>

/* The last serial number that was given. */
__u64 last_serial;
#define LAST_SERIAL 0xffff0000

/* The table of files, by the address of the struct inode. Its elements are recycled
 * at any time, so that what is read of one must be sealed and valid to be believed.
 *
 * It is no LRU map: the lists of these have spin locks, and a sample taken in an NMI
 * may have interrupted their holder. See ARCHITECTURE.md for what may be called. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384); /* the loader sets it */
	__type(key, __u64);
	__type(value, struct file_entry);
} files SEC(".maps");

/* Set by the loader: how many files there is room for, and the number at which user
 * space is asked to make room. */
const volatile __u64 table_size = 16384;
const volatile __u64 table_high = 12288;

/* Entries that were put into the table, and those that user space took out. */
__u64 inserted;
__u64 removed;

/* The time of the table, which user space moves on: about once a second, and
 * whenever it takes out an entry. */
__u32 table_time = 1;

/* filetable_seal binds a serial number to the validity that it was given for: a copy of an
 * element that was half written by another CPU does not have it. */
static __always_inline __u64 filetable_seal(__u64 serial, const struct validity *v)
{
	__u64 hash = hash_mix(serial, v->ino);

	hash = hash_mix(hash, v->size);
	hash = hash_mix(hash, v->mtime_sec);
	hash = hash_mix(hash, v->ctime_sec);
	hash = hash_mix(hash, (__u64)v->mtime_nsec << 32 | v->ctime_nsec);
	hash = hash_mix(hash, v->pinned);
	hash = hash_mix(hash, v->medium);
	return hash_mix(hash, (__u64)v->dev << 32 | v->generation);
}

/* filetable_key returns the key of the entry of a file. */
static __always_inline __u64 filetable_key(__u64 inode, const struct validity *v)
{
	return filever_is_of_mapping(v) ? v->pinned : inode;
}

enum known { UNKNOWN, TORN, STALE, KNOWN };

/* How long the samples in a mapping may wait for its identity, ns: the first of their threads may
 * sleep in the kernel before it reads, and what it reads then says nothing of that time. */
#define WORK_NS 1000000000ULL

/* Times of entries, in 2^20 ns; never 0. */
static __always_inline __u32 filetable_clock(void) { return bpf_ktime_get_ns() >> 20 | 1; }

/* filetable_is_late reports whether a reading that ends now comes too late for samples that have
 * waited for it since then; 0 for none. It is global as maple_find is. */
__noinline int filetable_is_late(__u32 asked) { return asked && filetable_clock() - asked > WORK_NS >> 20; }

/* filetable_lookup looks for the entry of an inode whose validity is now the given one: only that
 * makes the seal of the entry. */
static __noinline enum known filetable_lookup(__u64 key, const struct validity *now, __u64 *serial, __u8 *state)
{
	struct file_entry *e = bpf_map_lookup_elem(&files, &key);
	__u64 given, sealed;

	if (!e)
		return UNKNOWN;
	given = e->serial;
	sealed = e->seal;
	*state = e->state;
	barrier();
	if (e->seal != sealed) /* the state is another file's */
		return TORN;
	if (sealed != filetable_seal(given, now))
		return sealed == filetable_seal(given, &e->valid) ? STALE : TORN;
	if (*state == FILE_PENDING && filetable_is_late(e->asked))
		return STALE;
	*serial = given;
	if (e->used != table_time)
		e->used = table_time; /* what is another file's by now only looks younger */
	return KNOWN;
}

/* filetable_seal_identity binds an identity to the serial number that it was read for. */
static __always_inline __u64 filetable_seal_identity(__u64 serial, const struct identity *id)
{
	const __u64 *words = (const void *)id;
	__u64 hash = hash_mix(serial, id->bytes[MAX_ID - 2] | id->bytes[MAX_ID - 1] << 8);

	_Pragma("unroll") for (int i = 0; i < sizeof(*id) / sizeof(*words); i++)
		hash = hash_mix(hash, words[i]);
	return hash;
}

/* filetable_snapshot copies the entry of an inode, and returns an enum known: KNOWN if the copy is
 * whole. An element that became another file's before the copy was complete has another
 * seal; in which order its parts were written is not said anywhere, so the identity has one
 * of its own. It is global as maple_find is. */
__noinline int filetable_snapshot(__u64 key, struct file_entry *out)
{
	struct file_entry *e = bpf_map_lookup_elem(&files, &key);

	if (!e || !out)
		return UNKNOWN;
	*out = *e;
	barrier();
	if (out->seal != filetable_seal(out->serial, &out->valid) || e->seal != out->seal)
		return TORN;
	if ((out->state & ~FILE_QUIET) == FILE_KNOWN && out->id_seal != filetable_seal_identity(out->serial, &out->id))
		return TORN;
	return KNOWN;
}

/* filetable_new_serial returns a serial number that was never given before, or 0 when there are
 * no more: frames have room for 32 bits. All CPUs may pass the check at once. */
static __always_inline __u64 filetable_new_serial(void)
{
	return last_serial < LAST_SERIAL ? ADD(last_serial, 1) + 1 : 0;
}

/* filetable_renew gives an entry a serial number that no frame has: what is read from now on is nothing
 * that the samples with the number before waited for. It is global as maple_find is. */
__noinline int filetable_renew(struct file_entry *e)
{
	if (!e)
		return 0;
	e->serial = filetable_new_serial();
	e->seal = filetable_seal(e->serial, &e->valid);
	e->id_seal = filetable_seal_identity(e->serial, &e->id);
	e->asked = 0;
	e->state |= FILE_QUIET;
	if (!e->serial)
		e->state = FILE_NONE;
	return 0;
}

/* filetable_is_full reports whether the table has no room for another file. Signed: an entry may
 * be taken out before it is counted. */
static __always_inline bool filetable_is_full(void)
{
	return (__s64)(inserted - removed) >= (__s64)table_size;
}

/* filetable_insert puts an entry into the table, for an inode that it knows in this way. It returns 0 or
 * an error, which overtaken judges. */
static __always_inline long filetable_insert(__u64 key, struct file_entry *e, enum known how)
{
	long err;

	e->used = table_time;
	if (how != UNKNOWN)
		return bpf_map_update_elem(&files, &key, e, BPF_EXIST);
	err = bpf_map_update_elem(&files, &key, e, BPF_NOEXIST);
	if (!err && ADD(inserted, 1) + 1 - removed == table_high)
		ring_wake();
	return err;
}

/* How often a file is looked for: once more each time that another CPU was faster, or user
 * space took the entry out. table_model_test.go shows that this is enough. */
#define LOOKS 5

/* filetable_overtaken reports whether an insert failed because the entry was put in or taken out after
 * the look. */
static __always_inline bool filetable_overtaken(long err) { return err == -EEXIST || err == -ENOENT; }

/* filetable_is_doubtful reports whether a first look is no reason to write. A look takes no lock: it
 * may miss an entry, or find it torn, while that is being replaced. */
static __always_inline bool filetable_is_doubtful(enum known how) { return how == UNKNOWN || how == TORN; }

/* filetable_corrected returns how an inode is known, by a look and by the error of the insert before:
 * an entry that is there is replaced, also where the look has missed it again. */
static __always_inline enum known filetable_corrected(enum known how, long err)
{
	return how == UNKNOWN && err == -EEXIST ? TORN : how;
}

/* filetable_admit_quietly gives a file a serial number that is sent to user space when a sample
 * is in the file. All of the entry is written. It returns 0, or an error where the table did
 * not take it: the last quarter is for what is sampled. */
static __always_inline long filetable_admit_quietly(__u64 key, struct file_entry *e, const struct validity *now,
						    enum known how)
{
	if (how == UNKNOWN && (__s64)(inserted - removed) >= (__s64)table_high)
		return -E2BIG;
	__builtin_memset(e, 0, sizeof(*e));
	e->valid = *now;
	e->serial = filetable_new_serial();
	e->seal = filetable_seal(e->serial, &e->valid);
	e->state = FILE_PENDING | FILE_QUIET;
	return e->serial ? filetable_insert(key, e, how) : -E2BIG;
}

/* filetable_enter_quietly sees to it that the table has an entry of a file that is valid now, of which
 * e becomes a copy. It reports whether there is one. */
static __always_inline bool filetable_enter_quietly(__u64 key, struct file_entry *e, const struct validity *now)
{
	long err = 0; /* of the look before */

	for (int i = 0; i < LOOKS; i++) {
		enum known how = filetable_snapshot(key, e);

		if (how == KNOWN && filever_same(&e->valid, now))
			return true;
		if (!i && filetable_is_doubtful(how))
			continue;
		err = filetable_admit_quietly(key, e, now, filetable_corrected(how, err));
		if (!filetable_overtaken(err))
			return !err;
	}
	return false;
}

#endif
