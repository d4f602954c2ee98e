/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the programs of exec.bpf.c send beside files and identities, and what they read of
 * the kernel. */
#ifndef HALLMARK_EVENTS_EXEC_H
#define HALLMARK_EVENTS_EXEC_H

#include <linux/types.h>

#define MAX_EXEC_PATH 4096 /* bytes, powers of two */
#define MAX_EXEC_ARGS 4096
#define MAX_INTERP 256     /* BINPRM_BUF_SIZE of include/uapi/linux/binfmts.h */
#define MAX_NAME 256       /* NAME_MAX of include/uapi/linux/limits.h, with a NUL */

/* Beside enum event_kind of stack.h. */
enum exec_event_kind {
	EVENT_EXEC = 32,  /* a process executed a program */
	EVENT_EXIT = 33,  /* the last thread of a process ends */
	EVENT_ENDED = 34, /* nothing of the process will run any more */
};

enum exec_flags {
	EXEC_DELETED = 1,     /* the file of the program has no name any more */
	EXEC_PATH_CUT = 2,    /* the path has more components */
	EXEC_ARGS_CUT = 4,    /* there are more arguments */
	EXEC_ARGS_UNREAD = 8, /* they were not in memory */
	EXEC_SCRIPT = 16,     /* what was executed is no program, and names its interpreter */
};

/* Behind it are, in this order, the components of the path of the program (the last one
 * first, each with a NUL), what the process asked for, the interpreter that a script
 * named, and the arguments, each with a NUL. */
struct exec_event {
	__u32 kind;
	__u32 flags;
	__u64 time;        /* ns, CLOCK_MONOTONIC */
	__u64 started;     /* of the process, ns, CLOCK_BOOTTIME */
	__u64 exec;        /* how many programs it has executed */
	__u64 cgroup;      /* of version 2 */
	__u64 cpu;         /* ns, that the process has run before */
	__u64 program;     /* as in struct frame */
	__u64 interpreter; /* the same; that of the program when it has none */
	__u32 tgid, ppid;
	__u32 tid; /* of the thread that executed it: it is the process's first from here on */
	__u32 uid, gid, euid, egid;
	__u32 path_size, file_size, interp_size, args_size; /* bytes */
	char comm[16];
	__u32 pad;
};

struct exit_event {
	__u32 kind;
	__s32 status; /* as wait(2) has it */
	__u64 time;
	__u64 started;
	__u64 cgroup;
	__u64 cpu; /* ns, as far as it is known when the process ends */
	__u32 tgid, ppid;
	__u32 uid, gid;
	char comm[16];
};

struct ended_event {
	__u32 kind;
	__u32 tgid;
	__u64 started;
	__u64 cpu; /* ns, of all threads */
};

/* What found no room. */
struct exec_counters {
	__u64 lost_execs;
	__u64 lost_exits;
	__u64 lost_ends;
};

#endif
