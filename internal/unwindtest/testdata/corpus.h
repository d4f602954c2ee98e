// How long a program of the corpus works: its first argument, in milliseconds.
#include <stdlib.h>
#include <time.h>

static long corpus_deadline;

static inline long corpus_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static inline void corpus_start(int argc, char **argv)
{
	corpus_deadline = corpus_now() + (argc > 1 ? atol(argv[1]) : 1000);
}

static inline int corpus_more(void) { return corpus_now() < corpus_deadline; }
