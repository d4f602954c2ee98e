#include <pthread.h>

// The second access always comes after the first, and nothing that the sanitizer counts as
// an order is between them. It misses a race now and then, but not eight.
int shared, written;

static void *run(void *p) {
	shared++;
	__atomic_fetch_add(&written, 1, __ATOMIC_RELAXED);
	return 0;
}

int main(void) {
	for (int i = 1; i <= 8; i++) {
		pthread_t t;
		pthread_create(&t, 0, run, 0);
		while (__atomic_load_n(&written, __ATOMIC_RELAXED) < i)
			;
		shared++;
		pthread_join(t, 0);
	}
	return 0;
}
