/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From a user address to (serial number of a file, file offset).
 *
 * A serial number stands for one content of one file. The table of files gives a
 * new one when it meets an inode for the first time, or when what validates its
 * entry (inode number, device, generation, size, times) is not as it was. So a
 * frame never means another file than the one that was mapped, whatever becomes of
 * the entry. What identity a serial number has is told by an event, now or later.
 *
 * Where the times of files tell nothing (times.h), a serial number is for one mapping,
 * and no frame has it before an identity was read from the pages of that mapping.
 *
 * Nothing here takes a lock of the memory management: VMAs are found by walking
 * the maple tree of the current process in place (lib/maple_tree.c), and believed
 * only if they say themselves, before and after they are read, that they hold the
 * address in this very process, and nobody changed them meanwhile: see at_rest. */
#ifndef HALLMARK_IDENTITY_H
#define HALLMARK_IDENTITY_H

#include "paths.h"
#include "times.h"
#include <linux/errno.h>

/* The last serial number that was given. */
__u64 last_serial;
#define LAST_SERIAL 0xffff0000

/* Set by the loader where the kernel has task work. */
const volatile bool task_work = false;

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
 * space is told to make room. */
const volatile __u64 table_size = 16384;
const volatile __u64 table_high = 12288;

/* Entries that were put into the table, and those that user space took out. */
__u64 inserted;
__u64 removed;

/* The time of the table, which user space moves on: about once a second, and
 * whenever it takes out an entry. */
__u32 table_time = 1;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} events SEC(".maps");

/* A VMA as it says itself that it is. */
struct area {
	__u64 start, end;
	__u64 offset; /* of start in the file */
	struct file *file;
	bool code; /* it may be executed */
};

/* What the table of files said last of files that are at rest, one cache line each:
 * most lines are cold when a sample is taken, and the table itself touches four. */
struct recent {
	__u64 key;
	__u64 serial;
	__u64 ino, size, mtime, ctime, medium;
	__u32 dev, generation;
};
#define RECENT 16

/* A rule of a table: package unwind has the format. */
struct unwind_rule {
	__u8 kind;
	__u8 reg; /* or why there is none */
	__u8 flags;
	__s8 ra;
	__s32 offset;
	__s8 saved[6];
	__s8 addend;
	__u8 link;
};

/* A VMA that frames of a sample are in, and how they are unwound: see unwind.h. */
struct unwind_place {
	__u64 start, end;
	__u64 base;
	__u64 where;
	struct unwind_table table;
	__u32 how;
	__u32 pad;
};
#define PLACES 4 /* a power of two */

/* The unwinding of the user's part of a stack. */
struct unwinding {
	__u64 registers[DWARF_REGISTERS]; /* of the frame, by their DWARF numbers */
	__u64 ip;
	__u64 shown; /* the address that the frame is told with */
	__u64 entry; /* where the stack of the process began */
	__u32 known; /* a bit for each register */
	__u8 exact;  /* execution stands at ip, which is no return address */
	__u8 method;
	__u8 end;
	__u8 unfinished; /* only because a table was not there yet */
	struct unwind_rule rule;
	__u32 at;     /* the place of the frame */
	__u32 oldest; /* the last one that was found */
	struct unwind_place places[PLACES];
	__u64 words[DWARF_REGISTERS + 4]; /* read from the stack */
	/* The innermost frame's, when all samples are copied. */
	__u64 first[DWARF_REGISTERS];
	__u64 first_ip;
	/* The space that was last told: see unwind.h. */
	__u64 space_key, space;
};

/* A file whose identity is to be read in the current task: at an address that it is
 * mapped at. That is asked for when all else is done. */
struct wish {
	__u64 key;
	__u64 inode;
	__u64 serial;
	__u64 at;
};
#define WISHES 4

/* Scratch memory of a CPU, for programs on perf events only: they do not interrupt
 * each other on one CPU, the kernel drops the inner one. */
struct scratch {
	struct sample_counters n;
	__u32 time; /* of the table, when the recent answers were last dropped */
	struct recent recent[RECENT];
	__u64 ips[MAX_DEPTH];
	struct area area;    /* that is looked at */
	__u64 inode;         /* of its file */
	struct validity now; /* of its inode */
	struct file_entry fresh;
	struct count_key key;
	struct stack_event out;
	__u32 wished;
	struct wish wishes[WISHES];
	struct unwinding unwinding;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

static __always_inline struct scratch *scratch(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&scratches, &zero);
}

/* Nodes of a maple tree: include/linux/maple_tree.h. The address of a node has its
 * type in the lower bits. A pivot is the last index of its slot; behind the last
 * one in use there are zeros. */
enum { MAPLE_DENSE = 0, MAPLE_LEAF_64 = 1, MAPLE_RANGE_64 = 2, MAPLE_ARANGE_64 = 3 };
#define MAPLE_DEPTH 8

/* slot_until finds the slot of an address, and its pivot unless it has none, by linear
 * search. Most nodes are cold, and this touches the least of them. */
#define slot_until(node, pivots, address, end)                                                \
	({                                                                                    \
		__u32 slot_ = pivots;                                                         \
		_Pragma("unroll") for (int i_ = 0; i_ < pivots; i_++)                         \
		{                                                                             \
			__u64 pivot_ = GET(node, pivot[i_]);                                  \
			if (pivot_ >= (address) || (!pivot_ && i_)) {                         \
				slot_ = i_;                                                   \
				(end) = pivot_;                                               \
				break;                                                        \
			}                                                                     \
		}                                                                             \
		slot_;                                                                        \
	})

#define slot_of(node, pivots, address)                                                        \
	({                                                                                    \
		__u64 ignored_;                                                               \
		slot_until(node, pivots, address, ignored_);                                  \
	})

/* read_slot computes the address itself: the index is not known to the verifier. */
#define read_slot(node, i) GET_POINTER((typeof(node))((__u64)(node) + (i) * sizeof(void *)), slot[0])

/* child returns what is in the slot of an address. */
static __always_inline __u64 child(__u64 entry, __u32 type, __u64 address)
{
	struct maple_arange_64 *inner = (void *)(entry & ~0xffULL);
	struct maple_range_64 *node = (void *)(entry & ~0xffULL);
	__u32 slot;

	if (type == MAPLE_ARANGE_64) {
		slot = slot_of(inner, 9, address);
		return read_slot(inner, slot);
	}
	slot = slot_of(node, 15, address);
	return read_slot(node, slot);
}

/* find_vma returns the address of the VMA whose range in the tree at root holds
 * address, or 0: the caller must ask the VMA whether it is true. It is global, so
 * that the verifier looks at it once. */
__noinline __u64 find_vma(__u64 root, __u64 address)
{
	if ((root & 3) != 2) /* an empty tree, or one without nodes */
		return 0;
	for (int depth = 0; depth < MAPLE_DEPTH; depth++) {
		__u32 type = (root >> 3) & 0xf;

		if (type == MAPLE_DENSE)
			return 0;
		root = child(root, type, address);
		if (type == MAPLE_LEAF_64)
			return root;
	}
	return 0;
}

/* tree returns the root of the tree of a process's VMAs. */
static __always_inline __u64 tree(struct mm_struct *mm) { return GET_POINTER(mm, mm_mt.ma_root); }

/* read_area copies what the VMA says, and reports whether it is one of mm that
 * holds address, and did not change meanwhile. */
static __always_inline bool read_area(struct vm_area_struct *vma, __u64 mm, __u64 address, struct area *a)
{
	a->start = GET(vma, vm_start);
	a->end = GET(vma, vm_end);
	a->offset = GET(vma, vm_pgoff) << 12;
	a->file = GET(vma, vm_file);
	a->code = GET(vma, vm_flags) & VM_EXEC;
	barrier();
	return address >= a->start && address < a->end && a->start == GET(vma, vm_start) &&
	       (__u64)GET(vma, vm_mm) == mm && a->file == GET(vma, vm_file) && a->offset == GET(vma, vm_pgoff) << 12;
}

/* changes returns a number that grows when mappings of the process were changed:
 * since 6.4, else it is 0. */
static __always_inline __u32 changes(struct mm_struct *mm)
{
	struct mm_struct___number *older = (void *)mm;

	/* Not computed where the kernel has no such field: that is an instruction that it
	 * refuses, and so may not be moved out of here. */
	if (bpf_core_field_exists(mm->mm_lock_seq.sequence)) {
		barrier_var(mm);
		return GET(mm, mm_lock_seq.sequence);
	}
	if (bpf_core_field_exists(older->mm_lock_seq)) {
		barrier_var(older);
		return BPF_CORE_READ(older, mm_lock_seq);
	}
	return 0;
}

/* RWSEM_READER_OWNED of kernel/locking/rwsem.c: the owner is one of many readers. */
#define READER_OWNED 1

/* The machine that the kernel runs on, which the loader finds out. */
#define IS_X86 bpf_core_field_exists(((struct pt_regs *)0)->r15)

/* Of struct pt_regs, the word with the number of the system call: arch/x86/include/asm/ptrace.h,
 * arch/arm64/include/asm/ptrace.h. */
#define SYSTEM_CALL (IS_X86 ? 15 : 35)

/* Numbers of clone, fork, vfork, clone3. */
#define IS_FORK(n) ((n) == 435 || (IS_X86 ? (n) >= 56 && (n) <= 58 : (n) == 220))

/* forks reports whether the current task copies its memory for a child. It marks all its
 * VMAs meanwhile, but changes none of them (dup_mmap in mm/mmap.c). */
static __always_inline bool forks(struct mm_struct *mm)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 regs = bpf_task_pt_regs(task);
	__u32 call = 0;

	/* With PREEMPT_RT a lock tells nobody who has it. */
	if (!bpf_core_field_exists(mm->mmap_lock.owner))
		return false;
	barrier_var(mm);
	if ((BPF_CORE_READ(mm, mmap_lock.owner.counter) & ~7ULL) != (__u64)task)
		return false;
	bpf_probe_read_kernel(&call, sizeof(call), (void *)(regs + 8 * SYSTEM_CALL));
	return IS_FORK(call);
}

/* at_rest reports whether nobody has changed a VMA since changes() was the given
 * number, nor is about to. Who changes or removes one marks it with that number
 * first (vma_start_write, include/linux/mmap_lock.h). Before 6.4 there are no marks,
 * and it is only asked whether somebody else may change mappings right now: the
 * process is not interrupted in the midst of a change to the code that it runs. */
static __always_inline bool at_rest(struct vm_area_struct *vma, struct mm_struct *mm, __u32 since)
{
	__u64 owner;

	barrier();
	if (bpf_core_field_exists(vma->vm_lock_seq))
		return changes(mm) == since && (GET(vma, vm_lock_seq) != since || forks(mm));
	barrier_var(mm); /* not before, as in changes() */
	owner = BPF_CORE_READ(mm, mmap_lock.owner.counter);
	return !owner || owner & READER_OWNED || owner == bpf_get_current_task();
}

static __always_inline void read_times(struct inode *inode, struct validity *v)
{
	struct inode___underscores *newer = (void *)inode;
	struct inode___plain *older = (void *)inode;
	struct timespec64 m = {}, c = {};

	if (bpf_core_field_exists(newer->__i_mtime))
		BPF_CORE_READ_INTO(&m, newer, __i_mtime);
	else if (bpf_core_field_exists(older->i_mtime))
		BPF_CORE_READ_INTO(&m, older, i_mtime);
	if (bpf_core_field_exists(newer->__i_ctime))
		BPF_CORE_READ_INTO(&c, newer, __i_ctime);
	else if (bpf_core_field_exists(older->i_ctime))
		BPF_CORE_READ_INTO(&c, older, i_ctime);
	v->mtime_sec = m.tv_sec;
	v->mtime_nsec = m.tv_nsec;
	v->ctime_sec = c.tv_sec;
	v->ctime_nsec = c.tv_nsec;
}

/* I_CTIME_QUERIED of include/linux/fs.h, since 6.13: no part of the time. */
#define CTIME_QUERIED (1U << 31)

/* medium returns a number that no two media have, though one after the other has the
 * same device number, and files of the same numbers and times: images of read-only file
 * systems that were built to be reproducible have. */
static __always_inline __u64 medium(struct super_block *super)
{
	struct block_device *device = GET(super, s_bdev);
	struct backing_dev_info *info;
	struct gendisk *disk;

	if (device) {
		disk = GET(device, bd_disk);
		return GET(disk, diskseq);
	}
	info = GET(super, s_bdi);
	return GET(info, id);
}

static __always_inline void read_validity(struct inode *inode, struct validity *v)
{
	struct super_block *super = GET(inode, i_sb);

	v->pinned = 0;
	v->ino = GET(inode, i_ino);
	v->size = GET(inode, i_size);
	v->dev = GET(super, s_dev);
	v->medium = medium(super);
	v->generation = GET(inode, i_generation);
	if (!bpf_core_field_exists(inode->i_mtime_sec)) {
		read_times(inode, v);
		return;
	}
	v->mtime_sec = GET(inode, i_mtime_sec);
	v->mtime_nsec = GET(inode, i_mtime_nsec);
	v->ctime_sec = GET(inode, i_ctime_sec);
	v->ctime_nsec = GET(inode, i_ctime_nsec) & ~CTIME_QUERIED;
}

static __always_inline bool same(const struct validity *a, const struct validity *b)
{
	return a->ino == b->ino && a->size == b->size && a->dev == b->dev && a->generation == b->generation &&
	       a->mtime_sec == b->mtime_sec && a->mtime_nsec == b->mtime_nsec &&
	       a->ctime_sec == b->ctime_sec && a->ctime_nsec == b->ctime_nsec && a->pinned == b->pinned && a->medium == b->medium;
}

static __always_inline __u64 mix(__u64 hash, __u64 value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15;
	return hash ^ hash >> 29;
}

/* Both parts of a time in one word: the nanoseconds need 30 bits. */
static __always_inline __u64 packed(__s64 sec, __u32 nsec) { return (__u64)sec << 30 | nsec; }

static __always_inline struct recent *recent_of(struct scratch *s, struct inode *inode)
{
	return &s->recent[mix(0, (__u64)inode) >> 60 & (RECENT - 1)];
}

static __always_inline bool is_recent(const struct recent *r, struct inode *inode, const struct validity *v)
{
	return r->key == (__u64)inode && r->ino == v->ino && r->size == v->size &&
	       r->mtime == packed(v->mtime_sec, v->mtime_nsec) && r->ctime == packed(v->ctime_sec, v->ctime_nsec) &&
	       r->medium == v->medium && r->dev == v->dev && r->generation == v->generation && !v->pinned;
}

static __always_inline void remember_recent(struct recent *r, struct inode *inode, const struct validity *v, __u64 serial)
{
	r->key = v->pinned ? 0 : (__u64)inode;
	r->serial = serial;
	r->ino = v->ino;
	r->size = v->size;
	r->mtime = packed(v->mtime_sec, v->mtime_nsec);
	r->ctime = packed(v->ctime_sec, v->ctime_nsec);
	r->medium = v->medium;
	r->dev = v->dev;
	r->generation = v->generation;
}

/* seal binds a serial number to the validity that it was given for: a copy of an
 * element that was half written by another CPU does not have it. */
static __always_inline __u64 seal(__u64 serial, const struct validity *v)
{
	__u64 hash = mix(serial, v->ino);

	hash = mix(hash, v->size);
	hash = mix(hash, v->mtime_sec);
	hash = mix(hash, v->ctime_sec);
	hash = mix(hash, (__u64)v->mtime_nsec << 32 | v->ctime_nsec);
	hash = mix(hash, v->pinned);
	hash = mix(hash, v->medium);
	return mix(hash, (__u64)v->dev << 32 | v->generation);
}

/* Where the clock of files (CLOCK_REALTIME) is from that of the programs, ns. User
 * space keeps it up to date. */
__s64 wall_clock;

/* How far the times that files get may be behind the clock, ns: a change that comes so soon
 * after another one may leave the times as they are. User space sets it (fstimes.Delay). */
const volatile __s64 times_delay;

static __always_inline __s64 wall_now(void) { return bpf_ktime_get_ns() + wall_clock; }

/* How many have the file open for writing; below 0 when nobody may. */
static __always_inline int writers(struct inode *inode) { return GET(inode, i_writecount.counter); }

/* is_memory reports whether the file is memory that somebody may write to at any moment
 * and nobody has opened: who makes a memfd does not count as one who has it open for
 * writing. Stores into its mappings leave a trace in the times once for each page. */
static __always_inline bool is_memory(struct inode *inode)
{
	struct super_block *super = GET(inode, i_sb);
	struct address_space *mapping;

	if (GET(super, s_bdev) || writers(inode) > 0)
		return false;
	mapping = GET(inode, i_mapping);
	return GET(mapping, i_mmap_writable.counter) > 0;
}

/* is_program reports whether the file is the one that the process executed, and nobody
 * can write to it as long as the process is there (exe_file_deny_write_access). */
static __always_inline bool is_program(struct mm_struct *mm, struct inode *inode)
{
	struct file *exe = GET(mm, exe_file);

	return writers(inode) < 0 && BPF_CORE_READ(exe, f_inode) == inode;
}

/* A number for what a process executed. */
static __always_inline __u64 executed(struct task_struct *task)
{
	struct task_struct *leader = GET(task, group_leader);

	return mix(GET(leader, start_boottime), GET(task, self_exec_id)) | 1;
}

/* step returns how long the times of a file may stand still, ns: file systems round them
 * down, those without room for more to seconds (ext4 with inodes of 128 bytes). */
static __always_inline __s64 step(struct inode *inode)
{
	struct super_block *super = GET(inode, i_sb);

	return times_delay + GET(super, s_time_gran);
}

/* settle reports whether what is in v tells the content of the file from any that it may
 * have had or get. A file open for writing may change without a trace in its times:
 * they are set before the data, and not at all by stores to shared memory. If it is
 * not settled, young says that only the age of the file is missing. The process is that of
 * executed(). */
static __always_inline bool settle(__u64 process, struct mm_struct *mm, struct inode *inode, struct validity *v, bool *young)
{
	__s64 age = wall_now() - (v->ctime_sec * 1000000000LL + v->ctime_nsec);

	*young = false;
	if (is_memory(inode))
		return false;
	*young = writers(inode) <= 0;
	/* A time in the future is none of a change that was just made. */
	if ((__u64)(age + times_delay) > (__u64)(times_delay + step(inode)) && *young)
		return true;
	if (!is_program(mm, inode))
		return false;
	v->pinned = process;
	return true;
}

/* keeps_times reports whether the times of an inode tell each change of its content. */
static __always_inline bool keeps_times(struct inode *inode)
{
	struct super_block *super = GET(inode, i_sb);

	return is_trusted(GET(super, s_magic));
}

/* mapping_of returns a number for a mapping of a process that no other mapping has, before
 * it or after it: a VMA that is made or changed is marked with the number of that change
 * (see at_rest). There are no marks before 6.4, and then it is NO_MAPPING. */
static __always_inline __u64 mapping_of(__u64 process, struct vm_area_struct *vma, __u64 start)
{
	if (!bpf_core_field_exists(vma->vm_lock_seq))
		return NO_MAPPING;
	return (mix(mix(process, GET(vma, vm_lock_seq)), start) >> 1 & ~11ULL) | 4;
}

/* must_be_read reports whether no frame may have a serial number before an identity was
 * read: the file may have changed between the two. A program that executes is read before
 * it runs, so whoever watches that needs not wait. */
#ifdef READ_BEFORE_IT_RUNS
#define READS_FIRST true
#define must_be_read(v) false
#else
#define READS_FIRST false
#define must_be_read(v) is_of_mapping(v)
#endif

/* settle_mapping is settle for a file that is mapped: where its times tell nothing, the
 * mapping is what its validity names. So it is where they tell nothing yet, because the file
 * changed a moment ago, if it is about to run, nobody writes to it, and the process can read its
 * identity. It is global as find_vma is. */
__noinline bool settle_mapping(__u64 process, __u64 mm, __u64 file, __u64 mapping, struct validity *v)
{
	struct vm_area_struct *vma = (void *)mapping;
	struct inode *inode = (void *)file;
	bool young, settled, kept;

	if (!v)
		return false;
	settled = settle(process, (void *)mm, inode, v, &young);
	kept = keeps_times(inode);
	young = READS_FIRST && young && !settled && task_work;
	if (kept && !young)
		return settled;
	v->pinned = mapping_of(process, vma, GET(vma, vm_start));
	if (!young || v->pinned == NO_MAPPING)
		return settled;
	if (kept)
		v->pinned |= YOUNG_MAPPING;
	return true;
}

/* key_of returns the key of the entry of a file. */
static __always_inline __u64 key_of(__u64 inode, const struct validity *v) { return is_of_mapping(v) ? v->pinned : inode; }

enum known { UNKNOWN, TORN, STALE, KNOWN };

/* known looks for the entry of an inode whose validity is now the given one: only that
 * makes the seal of the entry. */
static __noinline enum known known(__u64 key, const struct validity *now, __u64 *serial, __u8 *state)
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
	if (sealed != seal(given, now))
		return sealed == seal(given, &e->valid) ? STALE : TORN;
	*serial = given;
	if (e->used != table_time)
		e->used = table_time; /* what is another file's by now only looks younger */
	return KNOWN;
}

/* seal_identity binds an identity to the serial number that it was read for. */
static __always_inline __u64 seal_identity(__u64 serial, const struct identity *id)
{
	const __u64 *words = (const void *)id;
	__u64 hash = mix(serial, id->bytes[MAX_ID - 2] | id->bytes[MAX_ID - 1] << 8);

	_Pragma("unroll") for (int i = 0; i < sizeof(*id) / sizeof(*words); i++)
		hash = mix(hash, words[i]);
	return hash;
}

/* snapshot copies the entry of an inode, and returns an enum known: KNOWN if the copy is
 * whole. An element that became another file's before the copy was complete has another
 * seal; in which order its parts were written is not said anywhere, so the identity has one
 * of its own. It is global as find_vma is. */
__noinline int snapshot(__u64 key, struct file_entry *out)
{
	struct file_entry *e = bpf_map_lookup_elem(&files, &key);

	if (!e || !out)
		return UNKNOWN;
	*out = *e;
	barrier();
	if (out->seal != seal(out->serial, &out->valid) || e->seal != out->seal)
		return TORN;
	if ((out->state & ~FILE_QUIET) == FILE_KNOWN && out->id_seal != seal_identity(out->serial, &out->id))
		return TORN;
	return KNOWN;
}

/* read_path writes the components of a path, the last first, and returns how many
 * bytes. A mount is crossed where its root is reached (fs/d_path.c). Names may change
 * meanwhile: a path is for people, and for user space to try. It is global as find_vma
 * is. */
#define MAX_COMPONENTS 32
__noinline __u32 read_path(struct area *a, struct path_text *out)
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
	bpf_loop(MAX_COMPONENTS, read_component, &p, 0);
	return p.used;
}

/* Walk is the way through the user frames of one sample. */
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

static __always_inline __u64 where(enum frame_kind kind) { return (__u64)kind << 32; }

/* wish writes down that the identity of a file is to be read in the current task. Of those
 * that were not given their serial number just now, one is enough for a sample. */
static __always_inline void wish(struct scratch *s, __u64 key, __u64 inode, __u64 serial, __u64 at, bool fresh)
{
	__u32 n = s->wished;
	struct wish *wish;

	if (n >= WISHES || (n && !fresh))
		return;
	wish = &s->wishes[n];
	wish->key = key;
	wish->inode = inode;
	wish->serial = serial;
	wish->at = at;
	s->wished = n + 1;
}

/* submit sends an event and wakes user space if there is reason to. */
static __always_inline bool submit(void *event, __u64 size, bool wake)
{
	wake = wake || bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > (1 << 20);
	return !bpf_ringbuf_output(&events, event, size, wake ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

/* new_serial returns a serial number that was never given before, or 0 when there are
 * no more: frames have room for 32 bits. All CPUs may pass the check at once. */
static __always_inline __u64 new_serial(void)
{
	return last_serial < LAST_SERIAL ? ADD(last_serial, 1) + 1 : 0;
}

/* wake tells user space that there is something to do before the next second. */
static __noinline void wake(void)
{
	__u32 kind = EVENT_WAKE;

	submit(&kind, sizeof(kind), true);
}

/* full reports whether the table has no room for another file. Signed: an entry may
 * be taken out before it is counted. */
static __always_inline bool full(void)
{
	return (__s64)(inserted - removed) >= (__s64)table_size;
}

/* insert puts an entry into the table, for an inode that it knows in this way. It returns 0 or
 * an error, which overtaken judges. */
static __always_inline long insert(__u64 key, struct file_entry *e, enum known how)
{
	long err;

	e->used = table_time;
	if (how != UNKNOWN)
		return bpf_map_update_elem(&files, &key, e, BPF_EXIST);
	err = bpf_map_update_elem(&files, &key, e, BPF_NOEXIST);
	if (!err && ADD(inserted, 1) + 1 - removed == table_high)
		wake();
	return err;
}

/* How often a file is looked for: once more each time that another CPU was faster, or user
 * space took the entry out. table_model_test.go shows that this is enough. */
#define LOOKS 5

/* overtaken reports whether an insert failed because the entry was put in or taken out after
 * the look. */
static __always_inline bool overtaken(long err) { return err == -EEXIST || err == -ENOENT; }

/* doubtful reports whether a first look is no reason to write. A look takes no lock: it
 * may miss an entry, or find it torn, while that is being replaced. */
static __always_inline bool doubtful(enum known how) { return how == UNKNOWN || how == TORN; }

/* corrected returns how an inode is known, by a look and by the error of the insert before:
 * an entry that is there is replaced, also where the look has missed it again. */
static __always_inline enum known corrected(enum known how, long err)
{
	return how == UNKNOWN && err == -EEXIST ? TORN : how;
}

static __noinline void submit_file(struct file_event *ev) { bpf_ringbuf_submit(ev, BPF_RB_FORCE_WAKEUP); }

/* introduce tells user space what file a serial number stands for. */
static __always_inline void introduce(struct scratch *s, __u64 key, __u64 serial, struct file_event *ev)
{
	struct area *a = &s->area;

	ev->kind = EVENT_FILE;
	ev->tgid = bpf_get_current_pid_tgid() >> 32;
	ev->serial = serial;
	ev->key = key;
	ev->start = a->start;
	ev->end = a->end;
	ev->offset = a->offset;
	ev->valid = s->now;
	__builtin_memset(ev->path, 0, sizeof(ev->path));
	read_path(a, (void *)ev->path);
	submit_file(ev);
}

/* admit gives a file a serial number and tells user space. It returns 0 when the table takes
 * no entry, and an error when it was overtaken. The event has its place before anybody
 * can read the entry, so that every serial number in a stack is told before it. It is
 * global as find_vma is. */
__noinline __s64 admit(__u64 key, enum known how)
{
	struct scratch *s = scratch();
	struct file_event *ev;
	struct file_entry *e;
	long err;

	if (!s)
		return 0;
	e = &s->fresh;
	if (how == UNKNOWN && full()) {
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
	e->serial = new_serial();
	e->seal = seal(e->serial, &e->valid);
	err = e->serial ? insert(key, e, how) : -E2BIG;
	if (!err) {
		introduce(s, key, e->serial, ev);
		return e->serial;
	}
	bpf_ringbuf_discard(ev, BPF_RB_NO_WAKEUP);
	if (overtaken(err))
		return err;
	s->n.refused++;
	return 0;
}

/* admit_unread gives a mapping a serial number that nobody is told of, until its identity
 * was read. It returns what admit does, and is global as find_vma is. */
__noinline __s64 admit_unread(__u64 key, enum known how)
{
	struct scratch *s = scratch();
	struct file_entry *e;
	long err;

	if (!s)
		return 0;
	e = &s->fresh;
	if (how == UNKNOWN && full()) {
		s->n.table_full++;
		return 0;
	}
	__builtin_memset(e, 0, sizeof(*e));
	e->valid = s->now;
	e->serial = new_serial();
	e->seal = seal(e->serial, &e->valid);
	e->state = FILE_PENDING | FILE_QUIET;
	err = e->serial ? insert(key, e, how) : -E2BIG;
	if (!err)
		return e->serial;
	if (overtaken(err))
		return err;
	s->n.refused++;
	return 0;
}

static __noinline void submit_identity(struct id_event *ev, struct file_entry *e)
{
	ev->kind = EVENT_ID;
	ev->state = FILE_KNOWN;
	ev->id = e->id;
	ev->pad = 0;
	ev->serial = e->serial;
	bpf_ringbuf_submit(ev, BPF_RB_NO_WAKEUP);
}

/* tell_identity tells user space what identity a file has. */
static __always_inline bool tell_identity(struct file_entry *e)
{
	struct id_event *ev = bpf_ringbuf_reserve(&events, sizeof(*ev), 0);

	if (ev)
		submit_identity(ev, e);
	return ev;
}

/* unveil tells user space of a file that the table knows and it does not: now a sample
 * is in it. It returns the serial number; 0 when there was no room for the events; an error
 * when another CPU has replaced the entry. It is global as find_vma is. */
__noinline __s64 unveil(__u64 key, __u64 serial)
{
	struct scratch *s = scratch();
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
	if (snapshot(key, e) != KNOWN || e->serial != serial) {
		bpf_ringbuf_discard(ev, BPF_RB_NO_WAKEUP);
		s->n.torn++;
		return -EAGAIN;
	}
	introduce(s, key, serial, ev);
	e->state &= ~FILE_QUIET;
	if (e->state == FILE_KNOWN && !tell_identity(e)) {
		s->n.lost_events++;
		return serial; /* both are told again */
	}
	bpf_map_update_elem(&files, &key, e, BPF_EXIST);
	return serial;
}

/* The search for the serial number of a file that is in a sample. */
struct sample_look {
	__u64 key;
	__s64 serial; /* 0: there can be no entry; negative: the error of the look before */
	__u8 state;
	bool fresh; /* the serial number was given just now */
};

static long sample_loop(__u32 i, struct sample_look *l)
{
	struct scratch *s = scratch();
	__u64 serial = 0;
	enum known how;

	if (!s)
		return 1;
	how = known(l->key, &s->now, &serial, &l->state);
	s->n.torn += how == TORN;
	s->n.stale += how == STALE;
	l->fresh = how != KNOWN;
	if (how == KNOWN && must_be_read(&s->now) && (l->state & ~FILE_QUIET) != FILE_KNOWN) {
		l->serial = serial;
		l->state &= ~FILE_QUIET;
	} else if (how == KNOWN) {
		l->serial = l->state & FILE_QUIET ? unveil(l->key, serial) : serial;
		l->state &= ~FILE_QUIET;
	} else if (!i && doubtful(how)) {
		l->serial = -EAGAIN;
	} else if (must_be_read(&s->now)) {
		l->serial = admit_unread(l->key, corrected(how, l->serial));
		l->state = FILE_PENDING;
	} else {
		l->serial = admit(l->key, corrected(how, l->serial));
		l->state = FILE_PENDING;
	}
	return l->serial >= 0;
}

/* look_up returns the serial number of the entry of an inode, which s->area is of and whose
 * validity is in s->now. It makes an entry where there is none to be believed, and returns 0
 * where there can be none; and what a frame is told with, where(FRAME_UNREAD), where no frame
 * may have the number yet. It is global as find_vma is. */
__noinline __u64 look_up(__u64 inode)
{
	struct sample_look l = {};
	struct scratch *s = scratch();

	if (!s)
		return 0;
	l.key = key_of(inode, &s->now);
	bpf_loop(LOOKS, sample_loop, &l, 0);
	if (l.serial < 0)
		s->n.refused++;
	if (l.serial <= 0)
		return 0;
	if (task_work && l.state == FILE_PENDING)
		wish(s, l.key, inode, l.serial, s->area.start, l.fresh);
	else if (!is_of_mapping(&s->now))
		remember_recent(recent_of(s, (void *)inode), (void *)inode, &s->now, l.serial);
	return must_be_read(&s->now) && l.state != FILE_KNOWN ? where(FRAME_UNREAD) : l.serial;
}

/* serial_of returns the serial number of the file that s->area maps, whose validity is in
 * s->now. */
static __always_inline __u64 serial_of(struct scratch *s, struct inode *inode)
{
	struct recent *r = recent_of(s, inode);

	if (is_recent(r, inode, &s->now))
		return r->serial;
	return look_up((__u64)inode);
}

enum look { NOTHING, DATA, MEMORY, SEEN, WRITTEN, MOVED, UNREAD };

/* look finds the VMA that holds ip, and reads what it says of itself and its file.
 * The tree is read after the number of its changes: a VMA that was taken out of it
 * before that is not in it any more. */
static __always_inline enum look look(struct walk *w, __u64 ip, struct area *a, struct inode **inode)
{
	struct mm_struct *mm = (void *)w->mm;
	__u32 since = changes(mm);
	struct vm_area_struct *vma;
	struct file *file;
	enum look seen = SEEN;
	bool settled, memory = false;

	w->s->n.walks++;
	vma = (void *)find_vma(tree(mm), ip);
	if (!vma)
		return changes(mm) == since ? NOTHING : MOVED;
	if (!read_area(vma, w->mm, ip, a))
		return MOVED;
	file = a->file;
	if (file && a->code) {
		*inode = (void *)GET_POINTER(file, f_inode);
		read_validity(*inode, &w->s->now);
		memory = is_memory(*inode);
		/* What was old enough before is so now, and need only not be written to. */
		if (is_recent(recent_of(w->s, *inode), *inode, &w->s->now))
			settled = writers(*inode) <= 0;
		else
			settled = settle_mapping(executed(w->task), w->mm, (__u64)*inode, (__u64)vma, &w->s->now);
		seen = !settled ? WRITTEN : w->s->now.pinned == NO_MAPPING ? UNREAD : SEEN;
	}
	if (!at_rest(vma, mm, since))
		return MOVED;
	if (!a->code) /* a stack that was walked through code without frame pointers */
		return DATA;
	if (memory) /* runtimes map a memfd twice, to write code and to run it */
		return MEMORY;
	return seen;
}

/* miss counts what was not seen, and returns what the frame is. */
static __always_inline __u64 miss(struct scratch *s, enum look seen)
{
	switch (seen) {
	case NOTHING:
		return where(FRAME_NOT_MAPPED);
	case DATA:
		return where(FRAME_NOT_CODE);
	case MEMORY:
		return where(FRAME_GENERATED);
	case WRITTEN:
		s->n.written++;
		return where(FRAME_WRITTEN);
	case UNREAD:
		return where(FRAME_UNREAD);
	default:
		s->n.unstable++;
		return where(FRAME_UNSTABLE);
	}
}

/* locate finds what is mapped at an address, into w. */
static __always_inline void locate(struct walk *w, __u64 ip)
{
	struct inode *inode = NULL;
	enum look seen = MOVED;
	struct mm_struct *mm = (void *)w->mm;
	struct area *a = &w->s->area;
	__u64 serial;

	w->start = ip;
	w->end = ip + 1;
	w->base = 0;
	for (int tries = 0; tries < 2 && seen == MOVED; tries++)
		seen = look(w, ip, a, &inode);
	if (seen != SEEN) {
		w->where = miss(w->s, seen);
		return;
	}
	if (a->file) {
		serial = serial_of(w->s, inode);
		if (!serial || serial >> 32) {
			w->where = serial ? serial : where(FRAME_NO_ENTRY);
			return;
		}
		w->where = serial & 0xffffffff;
		w->base = a->start - a->offset;
	} else if (a->start == GET_POINTER(mm, context.vdso)) {
		w->where = where(a->start >> 32 ? FRAME_VDSO : FRAME_VDSO_32);
		w->base = a->start;
	} else {
		w->where = where(FRAME_GENERATED);
	}
	w->start = a->start;
	w->end = a->end;
}

/* put writes a frame. */
static __always_inline void put(struct walk *w, __u64 where, __u64 at)
{
	struct frame *f = &w->s->out.frames[w->frames & (MAX_FRAMES - 1)];

	f->where = where;
	f->at = at;
	w->frames++;
	w->a = mix(mix(w->a, where), at);
	w->b = (w->b + at) * 0xd6e8feb86659fd93 + where;
	w->b ^= w->b >> 32;
}

/* call_site turns a return address into one in the call before it. The innermost
 * address of each context is none. */
static __always_inline __u64 call_site(struct scratch *s, __u32 i)
{
	return i < MAX_DEPTH ? s->ips[i] - !!i : 0;
}

static long user_frame(__u32 i, struct walk *w)
{
	__u64 ip = call_site(w->s, i);

	if (ip < w->start || ip >= w->end)
		locate(w, ip);
	put(w, w->where, ip - w->base);
	return 0;
}

static long kernel_frame(__u32 i, struct walk *w)
{
	put(w, where(FRAME_KERNEL), call_site(w->s, i));
	return 0;
}

/* walk_kernel takes the kernel's part of the stack. */
static __always_inline void walk_kernel(struct bpf_perf_event_data *ctx, struct walk *w)
{
	long n = bpf_get_stack(ctx, w->s->ips, sizeof(w->s->ips), 0);

	if (n > 0)
		bpf_loop(n / sizeof(__u64), kernel_frame, w, 0);
}

/* keep_time drops the recent answers when the time of the table has moved on. */
static __always_inline void keep_time(struct scratch *s)
{
	if (s->time == table_time)
		return;
	s->time = table_time;
	for (int i = 0; i < RECENT; i++)
		s->recent[i].key = 0;
}

/* walk_user takes the user's part of the stack, if the task has one. */
static __always_inline void walk_user(struct bpf_perf_event_data *ctx, struct walk *w)
{
	struct mm_struct *mm = current_mm();
	long n;

	w->ended = END_NO_USER_STACK;
	if (!mm)
		return;
	w->ended = END_FRAME_POINTERS;
	n = bpf_get_stack(ctx, w->s->ips, sizeof(w->s->ips), BPF_F_USER_STACK);
	if (n <= 0)
		return;
	keep_time(w->s);
	w->mm = (__u64)mm;
	w->tgid = bpf_get_current_pid_tgid() >> 32;
	w->s->n.frames += n / sizeof(__u64);
	bpf_loop(n / sizeof(__u64), user_frame, w, 0);
}

#endif
