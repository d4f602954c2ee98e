/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the programs of census.bpf.c write. Addresses of the kernel are numbers here: they
 * distinguish two things, and are shown to nobody. */
#ifndef HALLMARK_EVENTS_CENSUS_H
#define HALLMARK_EVENTS_CENSUS_H

#include <linux/types.h>

struct census_descriptor {
	__u64 file;
	__u64 inode;
};

struct census_mapping {
	__u64 mm;
	__u64 start;
	__u64 file;  /* 0: anonymous */
	__u64 inode;
	__u64 code; /* executable */
};

#endif
