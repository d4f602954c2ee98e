// Functions whose frames compilers lay out in all the ways that they know.
#define alloca __builtin_alloca
#include <stdarg.h>

void use(void *);
int many(int, int, int, int, int, int);

int leaf(int a) { return a + 1; }

int tail(int a) { return leaf(a + 2); }

int allocates(int n) {
	char *p = alloca(n);
	use(p);
	return p[0];
}

typedef int wide __attribute__((vector_size(32)));

int realigns(int n) {
	wide v __attribute__((aligned(64)));
	use(&v);
	return v[0] + n;
}

int realignsAndAllocates(int n) {
	wide v __attribute__((aligned(64)));
	use(&v);
	char *p = alloca(n);
	use(p);
	return v[0] + p[0];
}

int saves(int a, int b, int c, int d, int e, int f) {
	int x = many(a, b, c, d, e, f);
	int y = many(f, e, d, c, b, a);
	if (x > y)
		return many(x, y, a, b, c, d) + many(e, f, x, y, a, b) + a * b * c;
	return many(x, y, a, b, c, d) - many(e, f, x, y, a, b) - d * e * f;
}

int variadic(int n, ...) {
	va_list l;
	va_start(l, n);
	int sum = 0;
	while (n--)
		sum += leaf(va_arg(l, int));
	va_end(l);
	return sum;
}

int large(void) {
	char b[1 << 20];
	use(b);
	return b[5];
}

void never(void) __attribute__((noreturn));

int ends(int a) {
	if (a > 5)
		never();
	use(&a);
	return a;
}
