// Spends its time in the function burn: for the number of milliseconds in its
// first argument, or without one until it is killed.
#include <stdlib.h>
#include <time.h>

volatile unsigned long sink;

#ifdef OTHER
#define burn burn_other
#define STEP (i ^ 1)
#else
#define STEP i
#endif

__attribute__((noinline)) void burn(unsigned long rounds) {
	for (unsigned long i = 0; i < rounds; i++)
		sink = sink * 6364136223846793005UL + STEP;
}

int main(int argc, char **argv) {
	clock_t end = argc > 1 ? clock() + atol(argv[1]) * (CLOCKS_PER_SEC / 1000) : 0;
	do
		burn(1 << 18);
	while (!end || clock() < end);
	return argc > 2 ? atoi(argv[2]) : 0;
}
