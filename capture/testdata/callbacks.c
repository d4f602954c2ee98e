/* Calls itself back through the C library, for as long as it is told in ms. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile unsigned spin;

__attribute__((noinline)) int compare(const void *a, const void *b)
{
	unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;

	for (int i = 0; i < 50; i++)
		spin++;
	return x < y ? -1 : x > y;
}

__attribute__((noinline)) void sort_numbers(unsigned *numbers, int n)
{
	for (int i = 0; i < n; i++)
		numbers[i] = rand();
	qsort(numbers, n, sizeof(*numbers), compare);
	spin++;
}

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int main(int argc, char **argv)
{
	static unsigned numbers[2000];
	long end = atol(argv[1]);

	while (now() < end)
		sort_numbers(numbers, 2000);
	return argc - 2;
}
