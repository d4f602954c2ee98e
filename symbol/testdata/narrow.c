/* Needs no headers, so that it compiles for any machine. */
static inline int mix(int x) { return x * 31 ^ (x >> 7); }

static inline int twist(int x)
{
	int y = mix(x);
	return y + mix(y + 1);
}

int table[64];

__attribute__((noinline)) int fill(int n)
{
	int total = 0;
	for (int i = 0; i < n; i++) {
		table[i & 63] = twist(i);
		total += table[(i * 7) & 63];
	}
	return total;
}

int entry(int n)
{
	if (n < 0)
		return mix(n);
	return fill(n) + twist(n);
}
