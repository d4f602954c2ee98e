// Exceptions in flight: samples inside the C++ runtime's unwinder, in destructors that
// it calls, in catch blocks and behind rethrows.
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>
#include "corpus.h"

static volatile unsigned sink;

struct Guard {
	std::string name;
	explicit Guard(unsigned n) : name(30 + n % 10, 'g') {}
	~Guard()
	{
		for (char c : name)
			sink += static_cast<unsigned char>(c);
	}
};

struct Odd : std::runtime_error {
	unsigned n;
	explicit Odd(unsigned n) : std::runtime_error("odd"), n(n) {}
};

__attribute__((noinline)) unsigned thrower(unsigned depth, unsigned n)
{
	Guard g(n);
	if (depth == 0) {
		if (n % 3 == 0)
			throw Odd(n);
		if (n % 3 == 1)
			throw n;
		return n;
	}
	return thrower(depth - 1, n) + 1;
}

__attribute__((noinline)) unsigned rethrower(unsigned depth, unsigned n)
{
	try {
		return thrower(depth, n);
	} catch (const Odd &o) {
		if (o.n % 2)
			throw;
		return o.n;
	}
}

struct Base {
	virtual unsigned work(unsigned n) = 0;
	virtual ~Base() = default;
};

struct Derived : Base {
	std::map<unsigned, std::unique_ptr<std::string>> m;
	unsigned work(unsigned n) override
	{
		m[n % 64] = std::make_unique<std::string>(n % 40, 'x');
		try {
			return rethrower(n % 9, n);
		} catch (unsigned u) {
			return u;
		}
	}
};

int main(int argc, char **argv)
{
	corpus_start(argc, argv);
	std::unique_ptr<Base> b = std::make_unique<Derived>();
	for (unsigned n = 0; corpus_more(); n++)
		for (unsigned i = 0; i < 10; i++) {
			auto f = [&](unsigned k) { return b->work(k); };
			try {
				sink += f(n + i);
			} catch (const std::exception &e) {
				sink += static_cast<unsigned>(e.what()[0]);
			}
		}
}
