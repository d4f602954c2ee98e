// Every kind of frame that plain C has: many and few saved registers, arguments on the
// stack, structures by value, memory from alloca, arrays of variable length, calls by
// pointer, variadic functions, recursion, early returns before anything is pushed.
#include <alloca.h>
#include <stdarg.h>
#include <string.h>
#include "corpus.h"

#define NOINLINE __attribute__((noinline, noclone))

static volatile unsigned sink;

NOINLINE unsigned leaf(unsigned x)
{
	for (int i = 0; i < 20; i++)
		x = x * 1664525u + 1013904223u;
	return x;
}

NOINLINE unsigned many(unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g, unsigned h, unsigned i)
{
	unsigned x = leaf(a + b), y = leaf(c + d), z = leaf(e + f), w = leaf(g), v = leaf(h);
	return leaf(x ^ y ^ z ^ w ^ v ^ a ^ b ^ c ^ d ^ e ^ f ^ g ^ h ^ i);
}

struct big { unsigned v[40]; };

NOINLINE struct big by_value(struct big b, unsigned n)
{
	b.v[n % 40] += leaf(n);
	return b;
}

NOINLINE unsigned with_alloca(unsigned n)
{
	unsigned *p = alloca(4 * (n % 60 + 1));
	for (unsigned i = 0; i < n % 60 + 1; i++)
		p[i] = leaf(i);
	return p[n % 60] + many(n, 1, 2, 3, 4, 5, 6, 7, p[0]);
}

NOINLINE unsigned with_vla(unsigned n)
{
	unsigned sum = 0;
	for (unsigned k = 1; k < 4; k++) {
		unsigned a[n % 30 + k];
		memset(a, (int)n, sizeof a);
		a[0] = with_alloca(n + k);
		sum += a[n % (n % 30 + k)];
	}
	return sum;
}

NOINLINE unsigned variadic(int n, ...)
{
	va_list l;
	unsigned sum = 0;
	va_start(l, n);
	for (int i = 0; i < n; i++)
		sum += leaf(va_arg(l, unsigned));
	va_end(l);
	return sum;
}

NOINLINE unsigned early(unsigned n)
{
	if (__builtin_expect(n & 1, 1))
		return n * 3;
	struct big b;
	memset(&b, 0, sizeof b);
	return by_value(b, n).v[n % 40] + variadic(7, n, n, n, n, n, n, n);
}

NOINLINE unsigned doubles(unsigned n, double x, float y)
{
	double s = 0;
	for (unsigned i = 0; i < n % 8; i++)
		s += x * y + leaf(i);
	return (unsigned)s + early(n);
}

typedef unsigned (*step)(unsigned);

NOINLINE unsigned floats(unsigned n) { return doubles(n, n * 0.5, 2.0f); }

static const step steps[] = {leaf, with_alloca, with_vla, early, floats};

NOINLINE unsigned recurse(unsigned depth, unsigned n)
{
	if (depth == 0)
		return steps[n % 5](n);
	unsigned x = recurse(depth - 1, n + 1);
	return x ^ steps[(n + x) % 5](x);
}

NOINLINE unsigned mutual_b(unsigned depth, unsigned n);

NOINLINE unsigned mutual_a(unsigned depth, unsigned n)
{
	unsigned char pad[256];
	memset(pad, (int)n, sizeof pad);
	return depth ? mutual_b(depth - 1, n) + pad[n % 256] : recurse(5, n);
}

NOINLINE unsigned mutual_b(unsigned depth, unsigned n)
{
	return depth ? mutual_a(depth - 1, n + 1) * 3 : recurse(3, n);
}

int main(int argc, char **argv)
{
	corpus_start(argc, argv);
	for (unsigned n = 0; corpus_more(); n++)
		for (unsigned i = 0; i < 20; i++)
			sink += mutual_a(n % 23, n + i);
	return 0;
}
