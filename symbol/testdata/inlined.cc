#include "inlined.h"
#include <cstdio>
#include <cstdlib>

namespace {
struct Shape {
	virtual ~Shape() {}
	virtual double area() const = 0;
};
struct Square : Shape {
	double side;
	explicit Square(double s) : side(s) {}
	double area() const override { return side * side; }
};

__attribute__((noinline)) uint64_t sum(const std::vector<uint64_t> &v)
{
	uint64_t total = 0;
	for (auto x : v)
		total += twist(x);
	return total;
}

[[noreturn]] __attribute__((cold)) void fail(const char *what)
{
	std::fprintf(stderr, "%s\n", what);
	std::abort();
}

static int parse(const std::string &s)
{
	if (s.empty())
		fail("empty");
	struct Local {
		static int digit(char c) { return c >= '0' && c <= '9' ? c - '0' : throw c; }
	};
	int n = 0;
	for (char c : s)
		n = 10 * n + Local::digit(c);
	return n;
}
} // namespace

extern "C" uint64_t exported(uint64_t n)
{
	std::vector<uint64_t> v;
	for (uint64_t i = 0; i < n; i++)
		v.push_back(Box<uint64_t>(i).apply([&](uint64_t x) { return mix(x) % (n + 1); }));
	std::sort(v.begin(), v.end(), [](uint64_t a, uint64_t b) { return mix(a) < mix(b); });
	return sum(v) + other(v);
}

int main(int argc, char **argv)
{
	std::map<std::string, int> counts;
	try {
		for (int i = 1; i < argc; i++)
			counts[argv[i]] += parse(argv[i]);
	} catch (char c) {
		fail("no digit");
	}
	Square s(argc);
	const Shape *shape = &s;
	uint64_t total = uint64_t(shape->area());
	for (auto &[name, n] : counts)
		total += exported(n);
	std::printf("%llu\n", (unsigned long long)total);
}
