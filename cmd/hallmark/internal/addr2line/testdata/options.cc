#include <cstdlib>

int shared[4] = {1, 2, 3, 4};

namespace shop {

static inline __attribute__((always_inline)) int inner(int n) {
	return n * 3 + std::rand();
}

__attribute__((noinline)) int work(int n) {
	for (int i = 0; i < n; i++)
		shared[i & 3] += inner(i);
	return inner(n) + shared[n & 3];
}

} // namespace shop

__attribute__((noinline)) int deep(int n) __asm__(DEEP);

int deep(int n) {
	return shop::work(n) + 1;
}

int main(int argc, char **) {
	return deep(argc);
}
