/* Threads that are busy in code that is hard to unwind, and never end; with an argument
 * a thread that ends. */
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static volatile unsigned sink;

NOINLINE static unsigned burn(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		sink = sink * 1664525u + i;
	return sink;
}

/* A frame whose size is known only at run time, in each of which is another. */
NOINLINE static unsigned grow(unsigned depth)
{
	char *room = alloca(16 + depth * 40);
	memset(room, (int)depth, 16 + depth * 40);
	unsigned n = depth ? grow(depth - 1) : burn(500);
	return n + (unsigned)room[depth % 16];
}

/* A frame that is aligned more than its caller's. */
NOINLINE static unsigned align(unsigned depth, const char *text)
{
	__attribute__((aligned(128))) char room[256];
	strncpy(room, text, sizeof room - 1);
	room[255] = 0;
	unsigned n = depth ? align(depth - 1, room) : grow(3);
	return n + (unsigned)strlen(room);
}

/* Many registers that are preserved over calls. */
NOINLINE static unsigned busy(unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f)
{
	unsigned n = 0;
	for (unsigned i = 0; i < 20; i++)
		n += burn(a + i) + a * b + c * d + e * f + burn(b);
	return n + a + b + c + d + e + f;
}

/* A call in place of a return. */
NOINLINE static unsigned tail(unsigned depth, unsigned n)
{
	if (depth == 0)
		return busy(n, 2, 3, 4, 5, 6) + 1;
	return tail(depth - 1, n ^ burn(5));
}

static int compare(const void *a, const void *b)
{
	unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
	return burn(3) == 7 ? 0 : (x > y) - (x < y);
}

/* The C library calls back, through the linker's stubs. */
NOINLINE static void sort(unsigned n)
{
	unsigned values[200];
	for (unsigned i = 0; i < 200; i++)
		values[i] = (n = n * 1664525u + 12345u);
	qsort(values, 200, sizeof values[0], compare);
	sink += values[n % 200];
}

/* Does not return, and may be the last call of its caller. */
__attribute__((noreturn)) NOINLINE static void forever(unsigned kind)
{
	for (unsigned n = 0;; n++) {
		if (kind % 4 == 0)
			sink += align(n % 7, "of what a frame keeps");
		else if (kind % 4 == 1)
			sink += tail(n % 5, n % 100);
		else if (kind % 4 == 2)
			sort(n);
		else
			sink += busy(n % 50, grow(n % 9), 3, 4, 5, 6);
	}
}

static void here(int sig) { grow((unsigned)sig % 5); }
static void elsewhere(int sig) { align((unsigned)sig % 3, "on a stack of its own"), raise(SIGUSR2); }

static void *thread(void *kind)
{
	stack_t own = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
	sigaltstack(&own, NULL);
	forever((unsigned)(size_t)kind);
}

int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1) {
		sink += align(3, "once") + tail(3, 4) + grow(5);
		sort(7);
		return 0;
	}
	struct sigaction a = {.sa_handler = here, .sa_flags = SA_RESTART};
	sigaction(SIGPROF, &a, NULL);
	sigaction(SIGUSR2, &a, NULL);
	a = (struct sigaction){.sa_handler = elsewhere, .sa_flags = SA_ONSTACK | SA_RESTART};
	sigaction(SIGALRM, &a, NULL);
	struct itimerval often = {{0, 300}, {0, 300}};
	setitimer(ITIMER_PROF, &often, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	for (size_t kind = 1; kind < 4; kind++) {
		pthread_t t;
		pthread_create(&t, NULL, thread, (void *)kind);
	}
	thread(NULL);
}
