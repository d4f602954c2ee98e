// Starts a thread when a byte comes in, which runs in the function burn for as many
// milliseconds of its own as the first argument says when another byte comes.
// After a third one it starts a process that does the same.
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long budget;
volatile unsigned long sink;

__attribute__((noinline)) void burn(unsigned long rounds) {
	for (unsigned long i = 0; i < rounds; i++)
		sink = sink * 6364136223846793005UL + i;
}

static long used(void) {
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void wait_for_byte(void) {
	char c;
	if (read(0, &c, 1) != 1)
		exit(1);
}

static void *work(void *unused) {
	wait_for_byte();
	while (used() < budget)
		burn(1 << 16);
	return 0;
}

int main(int argc, char **argv) {
	pthread_t thread;
	budget = atol(argv[1]);
	wait_for_byte();
	pthread_create(&thread, 0, work, 0);
	pthread_join(thread, 0);
	if (!fork()) {
		work(0);
		_exit(0);
	}
	wait(0);
	return 0;
}
