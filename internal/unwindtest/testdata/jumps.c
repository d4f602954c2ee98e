// Coroutines on stacks of their own, and jumps out of deep frames.
#include <setjmp.h>
#include <string.h>
#include <ucontext.h>
#include "corpus.h"

static volatile unsigned sink;
static ucontext_t home, co[3];
static jmp_buf back;

__attribute__((noinline)) static void work(unsigned depth, unsigned n)
{
	char b[64];
	memset(b, (int)n, sizeof b);
	if (depth)
		work(depth - 1, n);
	for (int i = 0; i < 300; i++)
		sink = sink * 1664525u + (unsigned)b[i % 64];
}

static void coroutine(int number)
{
	for (unsigned n = 0;; n++) {
		work(n % 7, n);
		swapcontext(&co[number], &home);
	}
}

__attribute__((noinline)) static void jumper(unsigned depth)
{
	volatile char pad[40];
	pad[depth % 40] = 1;
	work(1, depth);
	if (depth == 0)
		longjmp(back, 1);
	jumper(depth - 1);
	sink += (unsigned)pad[0];
}

int main(int argc, char **argv)
{
	corpus_start(argc, argv);
	for (int i = 0; i < 3; i++) {
		getcontext(&co[i]);
		co[i].uc_stack.ss_sp = malloc(1 << 16);
		co[i].uc_stack.ss_size = 1 << 16;
		co[i].uc_link = &home;
		makecontext(&co[i], (void (*)(void))coroutine, 1, i);
	}
	for (unsigned n = 0; corpus_more(); n++) {
		for (int i = 0; i < 3; i++)
			swapcontext(&home, &co[i]);
		if (setjmp(back) == 0)
			jumper(n % 9);
	}
	return 0;
}
