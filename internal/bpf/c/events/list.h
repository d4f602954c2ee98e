/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the program of list.bpf.c writes. Each record says its kind and its size in
 * bytes, a multiple of 8. */
#ifndef HALLMARK_EVENTS_LIST_H
#define HALLMARK_EVENTS_LIST_H

#include "stack.h"

enum listed_kind {
	LISTED_PROCESS = 1,
	LISTED_FILE = 2,
	LISTED_AREA = 3,  /* of the process before */
	LISTED_CODE = 4,  /* a process, with its mappings */
	LISTED_AGAIN = 5, /* a process that must be looked at again */
};

struct listed_process {
	__u32 kind;
	__u32 size;
	__u32 tgid;
	__u32 tid; /* of the thread whose memory it is */
	__u64 started;
	char name[16]; /* of the first thread */
};

/* A file. Behind it is the path, as in file_event. */
struct listed_file {
	__u32 kind;
	__u32 size;
	__u32 path; /* bytes */
	__u32 pad;
	__u64 number; /* of the file, in one look */
	__u64 inode;  /* its address: files of one validity are apart by that */
	struct validity valid;
};

/* An executable mapping of a file. */
struct listed_area {
	__u32 kind;
	__u32 size;
	__u64 start, end;
	__u64 offset; /* of start in the file */
	__u64 number; /* of the file */
};

/* What is to be looked at. */
struct list_order {
	__u32 only; /* the process; 0: all */
	__u32 pad;
	__u64 from; /* address; 0 when it has executed another program since */
	__u64 exec; /* what self_exec_id was */
};

/* A process, and its executable mappings of files from an address on, as they all were at
 * one moment. They follow. */
struct listed_code {
	__u32 kind;
	__u32 size;
	__u32 tgid;
	__u32 tid; /* of the thread whose memory it is */
	__u64 started;
	__u64 exec; /* counts exec */
	__u64 from; /* address */
	char name[16]; /* of the first thread */
};

/* A mapping of the process before. */
struct listed_place {
	__u64 start, end;
	__u64 offset; /* of start in the file */
	__u64 number; /* of the file */
};

/* A process that is to be looked at again, from an address on. */
struct listed_again {
	__u32 kind;
	__u32 size;
	__u32 tgid;
	__u32 busy; /* its mappings were changed meanwhile; else there are only more of them */
	__u64 exec;
	__u64 from;
};

#endif
