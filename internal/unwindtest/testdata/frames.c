#include "corpus.h"

void by_rbx(void), by_memory(void), two_ways(void);
void in_c(void);

static volatile unsigned sink;

void in_c(void)
{
	for (unsigned i = 0; i < 50; i++)
		sink = sink * 1664525u + i;
}

__attribute__((noinline)) static void all(unsigned depth)
{
	if (depth)
		all(depth - 1);
	for (int i = 0; i < 5; i++) {
		by_rbx();
		by_memory();
	}
	two_ways();
	sink++;
}

int main(int argc, char **argv)
{
	corpus_start(argc, argv);
	while (corpus_more())
		all(sink % 5);
	return 0;
}
