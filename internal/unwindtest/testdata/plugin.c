// A library that is loaded and unloaded over and over.
#include <string.h>

__attribute__((noinline)) static unsigned inner(unsigned n, int (*f)(int))
{
	char b[128];
	memset(b, (int)n, sizeof b);
	for (unsigned i = 0; i < 3000; i++)
		n = n * 1664525u + (unsigned)b[i % 128];
	return n + (unsigned)f((int)n);
}

unsigned plugin(unsigned n, int (*f)(int)) { return inner(n, f) + 1; }
