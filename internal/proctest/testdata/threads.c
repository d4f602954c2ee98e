// Spends its time in the function burn on a second thread, after the first one
// has ended.
#include <pthread.h>

volatile unsigned long sink;

__attribute__((noinline)) void burn(unsigned long rounds) {
	for (unsigned long i = 0; i < rounds; i++)
		sink = sink * 6364136223846793005UL + i;
}

static void *forever(void *unused) {
	for (;;)
		burn(1 << 18);
}

int main(void) {
	pthread_t thread;
	pthread_create(&thread, 0, forever, 0);
	pthread_exit(0);
}
