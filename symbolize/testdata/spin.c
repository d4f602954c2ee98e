static inline __attribute__((always_inline)) long step(volatile long *n) {
	return ++*n;
}

__attribute__((noinline)) long spin(volatile long *n) {
	while (*n < 150000000)
		step(n);
	return *n;
}

int main(void) {
	volatile long n = 0;
	return spin(&n) == 3;
}
