// Calls that are jumps, and functions that end with a call and have nothing behind it.
#include <stdlib.h>
#include "corpus.h"

#define NOINLINE __attribute__((noinline, noclone))

static volatile unsigned sink;

NOINLINE unsigned burn(unsigned n)
{
	unsigned x = n;
	for (unsigned i = 0; i < 200; i++)
		x = x * 1664525u + i;
	return x;
}

NOINLINE unsigned even(unsigned depth, unsigned n);

NOINLINE unsigned odd(unsigned depth, unsigned n)
{
	if (depth == 0)
		return burn(n);
	sink += burn(n);
	return even(depth - 1, n + 1);
}

NOINLINE unsigned even(unsigned depth, unsigned n)
{
	if (depth == 0)
		return burn(n + 1);
	return odd(depth - 1, n * 3);
}

// The call is this function's last instruction: the return address is the next one's.
NOINLINE __attribute__((noreturn)) void never(unsigned n)
{
	for (unsigned i = 0; i < 2000; i++)
		sink += even(i % 10, n);
	_Exit(0);
}

NOINLINE void before_never(unsigned n)
{
	sink += 1;
	never(n);
}

int main(int argc, char **argv)
{
	corpus_start(argc, argv);
	for (unsigned n = 0; corpus_more(); n++)
		for (unsigned i = 0; i < 100; i++)
			sink += odd(n % 20, i);
	before_never(sink);
}
