// Signals that come in whatever the program does, handled on its stack and on another,
// and within each other.
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include "corpus.h"

static volatile unsigned sink;

__attribute__((noinline)) static unsigned burn(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		sink = sink * 1664525u + i;
	return sink;
}

__attribute__((noinline)) static unsigned work(unsigned depth, unsigned n)
{
	char text[64];
	memset(text, (int)n, sizeof text);
	text[63] = 0;
	return depth ? work(depth - 1, n) + (unsigned)strlen(text) : burn(n % 100) + (unsigned)strnlen(text, n);
}

static void on_stack(int sig)
{
	(void)sig;
	for (unsigned i = 0; i < 100; i++)
		sink += work(3, 99);
}

static void elsewhere(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)info, (void)context;
	for (unsigned i = 0; i < 100; i++)
		sink += work(2, 99);
	raise(SIGUSR1);
}

static void nested(int sig)
{
	(void)sig;
	burn(30000);
}

int main(int argc, char **argv)
{
	corpus_start(argc, argv);
	stack_t alternative = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
	sigaltstack(&alternative, NULL);
	struct sigaction a = {.sa_handler = on_stack, .sa_flags = SA_RESTART};
	sigaction(SIGPROF, &a, NULL);
	a = (struct sigaction){.sa_sigaction = elsewhere, .sa_flags = SA_ONSTACK | SA_SIGINFO | SA_RESTART};
	sigaction(SIGALRM, &a, NULL);
	a = (struct sigaction){.sa_handler = nested};
	sigaction(SIGUSR1, &a, NULL);
	struct itimerval t = {{0, 1100}, {0, 1100}}, u = {{0, 1700}, {0, 1700}};
	setitimer(ITIMER_PROF, &t, NULL);
	setitimer(ITIMER_REAL, &u, NULL);
	for (unsigned n = 0; corpus_more(); n++)
		for (unsigned i = 0; i < 100; i++)
			sink += work(n % 11, i);
	return 0;
}
