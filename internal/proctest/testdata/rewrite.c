// Works in two functions that have a page of their own each, for a quarter of its time, and rewrites
// the page of one of them.
//
//	rewrite none        does nothing
//	rewrite never       rewrites nothing
//	rewrite before      rewrites before it works
//	rewrite during MS   rewrites after it has worked for so many milliseconds
//	rewrite many N      rewrites before it works, and in N more mappings of its file
//	rewrite thread      rewrites, and works in another thread than the first one, which ends
//	rewrite vdso        rewrites the last page of the vdso
//	rewrite copied MS   copies the pages to anonymous memory, and rewrites as with during
//	rewrite copies      copies the pages to anonymous memory, and rewrites nothing
//	rewrite moving      rewrites, and has the mapping of the page begin elsewhere all the time
#define _GNU_SOURCE
#include <pthread.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <time.h>

#define PAGE __attribute__((noinline, aligned(4096)))

static volatile unsigned long sink;

PAGE void patched(void) {
	for (unsigned long i = 0; i < 1000000; i++)
		sink += i;
}

PAGE void kept(void) {
	for (unsigned long i = 0; i < 1000000; i++)
		sink += i;
}

PAGE static double seconds(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

// rewrite changes the last byte of a page, which no function reaches.
static void rewrite(void *page) {
	if (mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC))
		abort();
	((char *)page)[4095] ^= 1;
	if (mprotect(page, 4096, PROT_READ | PROT_EXEC))
		abort();
}

// copy puts a copy of a page, in anonymous memory, in its place.
static void copy(void *page) {
	char *made = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (made == MAP_FAILED)
		abort();
	memcpy(made, page, 4096);
	if (mprotect(made, 4096, PROT_READ | PROT_EXEC) ||
	    mremap(made, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, page) == MAP_FAILED)
		abort();
}

// mapMany maps the first page of the program so many times and rewrites it there.
static void mapMany(int n) {
	int fd = open("/proc/self/exe", O_RDONLY);
	while (n--) {
		char *page = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE, fd, 0);
		if (page == MAP_FAILED)
			abort();
		page[4095] ^= 1;
	}
}

static int restless;

// round calls both functions, and sleeps for three times as long on average. With a period of its own it could run
// in step with those who sample it.
static void round(void) {
	static unsigned random = 1;
	double since = seconds();
	patched();
	kept();
	random = random * 1664525 + 1013904223; // Numerical Recipes in C, 7.1
	double rest = 6 * (random >> 8) / 16777216.0 * (seconds() - since);
	struct timespec t = { .tv_nsec = rest < 0.02 ? rest * 1e9 : 20000000 };
	if (!restless)
		nanosleep(&t, 0);
}

static void *work(void *unused) {
	for (;;)
		round();
}

// otherwise splits and joins the mapping that has the pages of the functions.
static void *otherwise(void *page) {
	for (;;) {
		mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
		mprotect(page, 4096, PROT_READ | PROT_EXEC);
	}
}

// workBeside works in a thread of its own while the first one does something else.
static void workBeside(int moves) {
	pthread_t other;
	restless = moves; // it waits for the mapping most of the time
	if (pthread_create(&other, 0, work, 0))
		abort();
	if (moves)
		otherwise((char *)patched - 4096);
	pthread_exit(0);
}

int main(int argc, char **argv) {
	int done = strcmp(argv[1], "never") == 0 || strcmp(argv[1], "copies") == 0;
	double since = seconds(), wait = argc > 2 ? atof(argv[2]) / 1000 : 0;
	if (strcmp(argv[1], "none") == 0)
		return 0;
	if (strcmp(argv[1], "thread") == 0 || strcmp(argv[1], "moving") == 0) {
		rewrite(patched);
		workBeside(argv[1][0] == 'm');
	}
	if (strncmp(argv[1], "cop", 3) == 0) {
		copy(patched);
		copy(kept);
	}
	if (strcmp(argv[1], "vdso") == 0) {
		char *image = (char *)getauxval(AT_SYSINFO_EHDR);
		if (mprotect(image, 8192, PROT_READ | PROT_WRITE | PROT_EXEC)) // it cannot be split
			abort();
		image[8191] ^= 1;
		done = 1;
	}
	if (strcmp(argv[1], "many") == 0) {
		mapMany(atoi(argv[2]));
		wait = 0;
	}
	for (;;) {
		if (!done && seconds() - since >= wait) {
			rewrite(patched);
			done = 1;
		}
		round();
	}
}
