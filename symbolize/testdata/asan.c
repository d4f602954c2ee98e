#include <stdio.h>
#include <stdlib.h>

static inline __attribute__((always_inline)) int inner(volatile char *p) {
	return p[10];
}

__attribute__((noinline)) int outer(volatile char *p) {
	int r = inner(p);
	return r + 1;
}

int main(int argc, char **argv) {
	char *p = malloc(10);
	p[0] = argc;
	int r = outer(p);
	printf("%d\n", r);
	return r;
}
