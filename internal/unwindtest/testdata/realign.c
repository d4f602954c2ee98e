// Frames whose stack pointer is aligned to 32 or 64 bytes: their caller's is found
// through a register that is saved beside them, or through memory.
#include <alloca.h>
#include <stdint.h>
#include <string.h>
#include "corpus.h"

#define NOINLINE __attribute__((noinline, noclone))

typedef float wide __attribute__((vector_size(32)));

static volatile float sink;

NOINLINE void touch(wide *w)
{
	for (int i = 0; i < 8; i++)
		(*w)[i] = (*w)[i] * 1.0001f + (float)i;
}

NOINLINE float aligned(int n)
{
	wide w[4] __attribute__((aligned(64)));
	memset(w, 0, sizeof w);
	for (int i = 0; i < n % 16 + 1; i++)
		touch(&w[i % 4]);
	return w[n % 4][n % 8];
}

NOINLINE float aligned_alloca(int n, int a, int b, int c, int d, int e, int on_stack, int too)
{
	wide w __attribute__((aligned(128)));
	unsigned char *p = alloca((size_t)(n % 100) + 32);
	memset(p, n + on_stack + too, 32);
	memset(&w, 0, sizeof w);
	touch(&w);
	w[a % 8] += aligned(n + b + c + d + e) + p[n % 32];
	touch(&w);
	return w[0] + (float)(((uintptr_t)&w) & 127);
}

NOINLINE float deep(int depth, int n)
{
	wide w;
	memset(&w, n, sizeof w);
	touch(&w);
	if (depth > 0)
		w[depth % 8] += deep(depth - 1, n);
	else
		w[0] += aligned_alloca(n, 1, 2, 3, 4, 5, 6, 7);
	touch(&w);
	return w[n % 8];
}

int main(int argc, char **argv)
{
	corpus_start(argc, argv);
	for (int n = 0; corpus_more(); n++)
		for (int i = 0; i < 50; i++)
			sink += deep(n % 12, n & 0xffff);
	return 0;
}
