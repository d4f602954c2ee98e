#include <stdio.h>
#include <stdlib.h>

int shared[4] = {1, 2, 3, 4};
static int private = 7;
static char zeroed[32];

static inline __attribute__((always_inline)) int inner(int n) {
	return n * 3 + rand();
}

static inline __attribute__((always_inline)) int middle(int n) {
	return inner(n) + inner(n + 1);
}

__attribute__((noinline)) int work(int n) {
	if (n > 1000)
		abort();
	for (int i = 0; i < n; i++)
		zeroed[i & 31] += middle(i);
	return middle(n) + private;
}

__attribute__((noinline)) static void report(int n) {
	if (n < 0)
		abort();
	printf("%d %d\n", n, zeroed[n & 31]);
}

int main(int argc, char **argv) {
	report(work(argc) + shared[argc & 3]);
	return argv[0] == NULL;
}
