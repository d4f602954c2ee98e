// Threads of the library, and tasks of clone(2) on stacks of one's own.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include "corpus.h"

static volatile unsigned sink;
static __thread unsigned local;

__attribute__((noinline)) static unsigned work(unsigned depth, unsigned n)
{
	char b[100];
	memset(b, (int)n, sizeof b);
	local += (unsigned)b[n % 100];
	if (depth)
		return work(depth - 1, n + 1) + local;
	for (int i = 0; i < 500; i++)
		local = local * 1664525u + 1;
	return local;
}

static void *thread(void *arg)
{
	for (unsigned n = 0; n < 20000 && corpus_more(); n++)
		sink += work((unsigned)(size_t)arg % 13, n);
	return NULL;
}

static int task(void *arg)
{
	(void)arg;
	for (unsigned n = 0; n < 20000; n++)
		sink += work(n % 5, n);
	return 0;
}

int main(int argc, char **argv)
{
	corpus_start(argc, argv);
	while (corpus_more()) {
		pthread_t t[4];
		for (size_t i = 0; i < 4; i++)
			pthread_create(&t[i], NULL, thread, (void *)(i * 3));
		for (int i = 0; i < 4; i++)
			pthread_join(t[i], NULL);
		char *stack = malloc(1 << 16);
		int pid = clone(task, stack + (1 << 16), CLONE_VM | SIGCHLD, NULL);
		waitpid(pid, NULL, 0);
		free(stack);
	}
	return 0;
}
