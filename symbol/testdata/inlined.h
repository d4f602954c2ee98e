// What the compiler inlines from a header.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

template <typename T> struct Box {
	T value;
	explicit Box(T v) : value(v) {}
	T twice() const { return value + value; }
	template <typename F> auto apply(F f) const { return f(twice()); }
};

inline uint64_t mix(uint64_t x)
{
	x ^= x >> 31;
	x *= 0x9e3779b97f4a7c15u;
	return x ^ (x >> 27);
}

inline uint64_t twist(uint64_t x) { return mix(x) + mix(x ^ 7); }

uint64_t other(const std::vector<uint64_t> &v);
