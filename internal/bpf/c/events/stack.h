/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the programs and user space say to each other. The Go types are made from
 * these. */
#ifndef HALLMARK_EVENTS_STACK_H
#define HALLMARK_EVENTS_STACK_H

#include <linux/types.h>

#define MAX_DEPTH 127  /* frames of the kernel, and as many of the user's */
#define MAX_FRAMES 1024 /* a power of two */
#define MAX_ID 96      /* bytes; longer identities are for user space to read */
#define MAX_PATH 512   /* a power of two */

/* What a frame is, in frame.where from bit 32 on. */
enum frame_kind {
	FRAME_FILE = 0,       /* the lower half is a serial number; at a file offset */
	FRAME_KERNEL = 1,     /* at an absolute address */
	FRAME_NOT_MAPPED = 2, /* at an absolute address */
	FRAME_GENERATED = 3,  /* executable memory without a file; at an absolute address */
	FRAME_VDSO = 4,       /* at an offset in the vdso */
	FRAME_VDSO_32 = 5,    /* at an offset in the vdso of 32-bit programs */
	FRAME_NO_ENTRY = 6,   /* the table of files took no new entry; at an absolute address */
	FRAME_UNSTABLE = 7,   /* the mappings changed while they were read; at an absolute address */
	FRAME_WRITTEN = 8,    /* in a file that is being written, or just was; at an absolute address */
	FRAME_NOT_CODE = 9,   /* memory that is not executable; at an absolute address */
	FRAME_UNREAD = 10,    /* in a file whose times show nothing, and that nobody reads for this sample; at an absolute address */
};

/* How a frame was found, in frame.where from bit 40 on; unwind.Method has the same
 * numbers. */
enum unwind_method {
	METHOD_REGS = 1,   /* the innermost frame: where the processor stood */
	METHOD_CFI = 2,    /* by a rule of a table */
	METHOD_FP = 3,     /* by the frame pointer */
	METHOD_SIGNAL = 4, /* what a signal interrupted */
};

/* How a stack ended; unwind.End has the same numbers. */
enum stack_end {
	END_NOT_TOLD = 0,
	END_COMPLETE = 1,
	END_NO_USER_STACK = 2,
	END_NO_TABLE = 3,
	END_NO_RULE = 4,
	END_UNSUPPORTED = 5,
	END_REGISTER_LOST = 6,
	END_UNREADABLE = 7,
	END_NOT_MAPPED = 8,
	END_NOT_CODE = 9,
	END_BAD_FRAME = 10,
	END_TOO_DEEP = 11,
	END_NOT_IDENTIFIED = 12,
	END_COMPAT = 13,
	END_FRAME_POINTERS = 14,
};

struct frame {
	__u64 where;
	__u64 at;
};

/* What shows whether an inode still has the content that it had: the times do, on file
 * systems where they can be believed (fs.h), once they are older than the clock's step
 * and nobody can write. */
struct validity {
	__u64 ino;
	__u64 size;
	__s64 mtime_sec;
	__s64 ctime_sec;
	__u32 mtime_nsec;
	__u32 ctime_nsec;
	__u32 dev; /* as the kernel has it: 12 bits major, 20 bits minor */
	__u32 generation;
	__u64 medium; /* of what the file system is on */
	/* Not 0 when the times do not show it. An odd number names a process and its exec: the
	 * times are not old enough, but the file is the program of this process, and so cannot
	 * be written. An even one names a mapping: the times can never be believed; with
	 * YOUNG_MAPPING, they cannot yet, because the file has just changed. NO_MAPPING is for
	 * that of which nothing shows which it is. */
	__u64 pinned;
};

#define NO_MAPPING 2
#define YOUNG_MAPPING 8

enum file_state {
	FILE_PENDING = 0, /* nobody has read the identity in the kernel yet */
	FILE_KNOWN = 1,
	FILE_NONE = 2, /* there is none that can be read in the kernel */
	/* Beside one of these: user space does not know of the serial number. It is sent
	 * when a sample is in the file. */
	FILE_QUIET = 4,
};

/* buildid.Kind has the same numbers. */
enum id_kind {
	ID_GNU = 1,
	ID_GO = 2,
};

struct identity {
	__u8 kind;
	__u8 size;
	__u8 bytes[MAX_ID];
};

/* An entry of the table of files. Its validity and its serial number are sealed, and so
 * is an identity that is known. */
struct file_entry {
	struct validity valid;
	__u64 serial;
	__u64 seal;
	__u64 id_seal;
	struct identity id;
	__u8 state;
	__u8 tries;
	__u32 used; /* when a sample was last in the file, in the time of the table; 0: the inode is gone */
	__u32 asked; /* when the first frame got the serial number that waits for an identity: see filetable_is_late */
};

struct stack_id {
	__u64 a;
	__u64 b;
};

struct count_key {
	struct stack_id stack;
	__u64 cgroup;  /* of version 2 */
	__u64 started; /* ns, CLOCK_BOOTTIME: with tgid it names a process for good */
	__u64 seen;    /* ns, CLOCK_MONOTONIC; 0 where times are not wanted */
	__u32 tgid;
	__u32 tid;
	char thread[16];
	char process[16];
};

enum event_kind {
	EVENT_FILE = 1,  /* a serial number was given */
	EVENT_ID = 2,    /* its identity was read, or is not there */
	EVENT_STACK = 3, /* the frames of a stack that is counted by its number */
	EVENT_WAKE = 4,  /* half of the counts or three quarters of the table are taken */
	EVENT_SPACE = 5, /* the executable memory of a process */
	EVENT_COPY = 6,  /* a sample that is to be finished, with its stack's memory */
};

struct file_event {
	__u32 kind;
	__u32 tgid;
	__u64 serial;
	__u64 key;        /* of its entry in the table */
	__u64 start, end; /* of a VMA of the file in process tgid */
	__u64 offset;     /* of start in the file */
	struct validity valid;
	char path[MAX_PATH]; /* its components, the last first, each with a NUL */
};

struct id_event {
	__u32 kind;
	__u8 state;
	struct identity id;
	__u8 pad;
	__u64 serial;
};

struct stack_event {
	__u32 kind;
	__u16 count;
	__u8 end; /* enum stack_end, of the user's part */
	__u8 pad;
	struct stack_id stack;
	struct frame frames[MAX_FRAMES];
};

/* What lies behind the reserved serial numbers of frames: the vdso, to be unwound. */
#define VDSO_SERIAL 0xffff0001

/* Where in the pool the table of a file is: package unwind has the format. */
struct unwind_table {
	__u64 base; /* of the file's first granule */
	__u32 directory, rows, rules; /* positions in the pool, in bytes */
	__u32 granules;
	__u32 flags; /* the table's, and those below */
	__u32 used;  /* when a sample last met it, in the time of the table of files */
};

enum unwind_flags {
	UNWIND_GAPS_KEEP_FP = 1,  /* code without rules keeps frame pointers */
	UNWIND_UNAVAILABLE = 256, /* there will be no table */
};

#define DWARF_REGISTERS 32
#define MAX_COPY 32768 /* bytes, a power of two */

struct copy_event {
	__u32 kind;
	__u32 size; /* of the memory of the stack, which is behind this */
	struct count_key key;
	__u64 space; /* 0: not known */
	__u64 entry; /* where the stack of the process began */
	__u64 start; /* of the memory */
	__u64 ip;
	__u64 registers[DWARF_REGISTERS];
	__u32 known; /* a bit for each */
	__u8 exact;
	__u8 counted;
	__u16 missing; /* a bit for each page of the memory, from that of start on: it is not there */
};

#define MAX_AREAS_OF_SPACE 512 /* a power of two */

/* Executable memory; a frame in it is at its address - base. */
struct space_area {
	__u64 start, end;
	__u64 where; /* as in struct frame */
	__u64 base;
};

struct space_event {
	__u32 kind;
	__u32 tgid;
	__u64 started;
	__u64 space;
	__u32 count;
	__u32 cut; /* there are more */
	struct space_area areas[MAX_AREAS_OF_SPACE];
};

/* Of the sampler, for each CPU. */
struct sample_counters {
	__u64 samples;
	__u64 frames;      /* of user code */
	__u64 walks;       /* searches for a VMA */
	__u64 unstable;    /* searches that met a change */
	__u64 torn;        /* entries that were being written */
	__u64 stale;       /* entries that were not valid any more */
	__u64 written;     /* searches that met a file being written, or just written */
	__u64 table_full;  /* frames in files that there was no room for in the table */
	__u64 refused;     /* frames in files that the table took no entry for, though there was room */
	__u64 lost_counts; /* samples that there was no room to count */
	__u64 lost_events;
	__u64 unwound;     /* stacks that were walked by tables */
	__u64 copies;      /* samples that were sent to be finished */
	__u64 lost_copies; /* those that found no room */
	__u64 spaces;      /* that were sent */
};

/* Of the readings of identities in the tasks themselves. */
struct work_counters {
	__u64 asked;
	__u64 busy;    /* no element was free, or the kernel refused */
	__u64 runs;
	__u64 known;
	__u64 none;
	__u64 left;    /* for user space: what was to be read was not mapped or not trusted */
	__u64 changed; /* the mappings or the file changed meanwhile */
	__u64 lost_events;
};

/* Of the hook where files are mapped. */
struct hook_counters {
	__u64 mapped;  /* mappings of code */
	__u64 read;    /* identities that were read, or found not to be there */
	__u64 owed;    /* readings that were put off to the next mapping */
	__u64 left;    /* those that must be done elsewhere */
	__u64 busy;    /* files that no memory was free for */
	__u64 refused; /* files that the table took no entry for */
	__u64 written; /* files that were being written, or just were */
};

#endif
