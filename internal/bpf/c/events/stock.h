/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What user space asks of the program of stock.h, and what that writes. */
#ifndef HALLMARK_EVENTS_STOCK_H
#define HALLMARK_EVENTS_STOCK_H

#include "stack.h"

/* What is to be taken stock of; user space sets it. */
struct stock_order {
	__u32 only; /* this process, 0: all */
	__u32 list; /* say what is there, or only fill the table of files */
	__u64 from; /* an address in the process, to continue at */
	__u64 exec; /* the process must not have executed another program since */
};

/* The records that taking stock writes. Each says its kind and its size in bytes. */
enum stock_kind {
	STOCK_PROCESS = 1,
	STOCK_AREA = 2, /* of the process before */
	STOCK_AGAIN = 3,
};

struct stock_process {
	__u32 kind;
	__u32 size;
	__u32 tgid;
	__u32 tid; /* of the thread through which it was looked at */
	__u64 started;
	__u64 exec;
	char name[16];
};

/* An executable mapping of a file. Behind it is the path, as in file_event, up to size. */
struct stock_area {
	__u32 kind;
	__u32 size;
	__u64 start, end;
	__u64 offset; /* of start in the file */
	__u64 key;    /* of its entry in the table; 0: the file may be changing */
	__u64 serial; /* 0: it has no entry */
	struct validity valid;
	__u8 state;
	struct identity id;
	__u8 pad[5];
};

/* A process that must be looked at again. */
struct stock_again {
	__u32 kind;
	__u32 size;
	__u32 tgid;
	__u32 busy; /* nothing could be seen now, or more than fitted */
	__u64 from;
	__u64 exec;
};

/* Of the taking of stock. */
struct stock_counters {
	__u64 processes;
	__u64 areas;
	__u64 read;    /* identities that were read, or found not to be there */
	__u64 left;    /* files that were left to be read when a sample is in them */
	__u64 refused; /* files that the table took no entry for */
	__u64 again;   /* processes that had to be looked at again */
};

#endif
