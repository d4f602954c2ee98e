#include <time.h>

static inline __attribute__((always_inline)) long step(volatile long *n) {
	return *n += 1 + *n % 7;
}

__attribute__((noinline)) long spin(volatile long *n) {
	while (*n < 1000000)
		step(n);
	return *n;
}

int main(void) {
	volatile long n;
	do
		n = 0;
	while (spin(&n) != 3 && clock() < CLOCKS_PER_SEC / 2);
	return 0;
}
