// Stubs of the procedure linkage table, and with LD_BIND_NOT=1 the resolver behind them
// at every call.
#include <ctype.h>
#include <math.h>
#include <string.h>
#include <unistd.h>
#include "corpus.h"

static volatile int sink;

__attribute__((noinline)) static int calls(int n)
{
	return abs(n) + toupper(n & 127) + (int)labs(n) + ffs(n) + (int)floor(n * 0.5) + isalpha(n & 127) + (int)fabs((double)n);
}

__attribute__((noinline)) static int deeper(int depth, int n)
{
	return depth ? deeper(depth - 1, n) + abs(n) : calls(n);
}

int main(int argc, char **argv)
{
	corpus_start(argc, argv);
	for (int n = 0; corpus_more(); n++)
		for (int i = 0; i < 100; i++)
			sink += deeper(i % 7, n);
	return 0;
}
