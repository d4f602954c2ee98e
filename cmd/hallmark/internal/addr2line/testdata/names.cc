#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace shop {

struct item {
	std::string name;
	double price = 0;
	bool operator<(const item &other) const { return price < other.price; }
};

template <typename T, int N> struct shelf {
	std::vector<T> things;
	std::map<std::string, std::vector<T>> by_name;

	template <typename... Args> __attribute__((noinline)) void put(Args &&...args) {
		things.push_back(T{std::forward<Args>(args)...});
		by_name[things.back().name].push_back(things.back());
		std::sort(things.begin(), things.end());
	}
	double total() const {
		double sum = 0;
		std::for_each(things.begin(), things.end(), [&](const T &t) { sum += t.price * N; });
		return sum;
	}
};

namespace {
__attribute__((noinline)) std::unique_ptr<shelf<item, 2>> make(int n) {
	auto s = std::make_unique<shelf<item, 2>>();
	for (int i = 0; i < n; i++)
		s->put("thing " + std::to_string(i), i / 3.0);
	if (n > 1000)
		throw std::string("too many");
	return s;
}
} // namespace

} // namespace shop

extern "C" __attribute__((noinline)) int plain(int n) {
	if (n < 0)
		throw n;
	return shop::make(n)->things.size();
}

int main(int argc, char **argv) {
	try {
		std::printf("%f %d\n", shop::make(argc)->total(), plain(argc));
	} catch (const std::string &s) {
		return s.size();
	}
}
