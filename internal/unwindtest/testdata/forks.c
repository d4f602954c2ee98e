// Processes that live three milliseconds, forked, and started by vfork and exec and by
// posix_spawn.
#define _GNU_SOURCE
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "corpus.h"

static volatile unsigned sink;
extern char **environ;

__attribute__((noinline)) static unsigned work(unsigned depth, unsigned n)
{
	if (depth)
		return work(depth - 1, n + 1) + sink;
	for (unsigned i = 0; i < n; i++)
		sink = sink * 1664525u + i;
	return sink;
}

static void three_ms(void)
{
	for (long end = corpus_now() + 3; corpus_now() < end;)
		work(6, 5000);
}

int main(int argc, char **argv)
{
	if (argc > 2) {
		three_ms();
		return 0;
	}
	corpus_start(argc, argv);
	char *child[] = {argv[0], "0", "child", NULL};
	for (unsigned n = 0; corpus_more(); n++) {
		pid_t pid = -1;
		if (n % 3 == 0 && (pid = fork()) == 0) {
			three_ms();
			_exit(0);
		}
		if (n % 3 == 1 && (pid = vfork()) == 0) {
			execv(argv[0], child);
			_exit(1);
		}
		if (n % 3 == 2)
			posix_spawn(&pid, argv[0], NULL, NULL, child, environ);
		waitpid(pid, NULL, 0);
	}
	return 0;
}
