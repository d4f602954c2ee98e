#include <pthread.h>

int shared;

static void *run(void *p) {
	shared++;
	return 0;
}

int main(void) {
	pthread_t t;
	pthread_create(&t, 0, run, 0);
	shared++;
	pthread_join(t, 0);
	return 0;
}
