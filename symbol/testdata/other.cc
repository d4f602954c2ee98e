#include "inlined.h"

template <int N> static uint64_t power(uint64_t x)
{
	if constexpr (N == 0)
		return 1;
	else
		return twist(x) * power<N - 1>(x);
}

uint64_t other(const std::vector<uint64_t> &v)
{
	uint64_t total = 0;
	for (auto x : v)
		switch (x % 5) {
		case 0: total += power<3>(x); break;
		case 1: total ^= power<1>(mix(x)); break;
		case 2: total -= Box<uint64_t>(x).twice(); break;
		default: total += std::max<uint64_t>(x, 3);
		}
	return total;
}
