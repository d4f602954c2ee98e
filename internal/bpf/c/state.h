/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What programs on perf events keep while they work on a sample, and what of it they leave to
 * the next one. */
#ifndef HALLMARK_STATE_H
#define HALLMARK_STATE_H

#include "events/stack.h"
#include "vma.h"

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
	__u64 shown; /* the address that the frame is sent with */
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
	/* The space that was last sent: see unwind.h. */
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
#define WISHES 8

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

static __always_inline struct scratch *state_scratch(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&scratches, &zero);
}

/* frame_where returns what a frame of a kind has in frame.where. */
static __always_inline __u64 frame_where(enum frame_kind kind) { return (__u64)kind << 32; }

#endif
