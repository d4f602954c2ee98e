// Spends its time in the handler of a signal, for the number of milliseconds in its first argument.
#include <signal.h>
#include <stdlib.h>
#include <time.h>

volatile unsigned long sink;
static clock_t end;

__attribute__((noinline)) static void handle(int n) {
	while (clock() < end)
		for (int i = 0; i < 1 << 14; i++)
			sink = sink * 6364136223846793005UL + n;
}

int main(int argc, char **argv) {
	end = clock() + atol(argv[1]) * (CLOCKS_PER_SEC / 1000);
	signal(SIGUSR1, handle);
	raise(SIGUSR1);
	return 0;
}
