volatile int sink;

static inline __attribute__((always_inline)) void inner(int n) {
	sink = n;
}

__attribute__((noinline)) static int twin(int n) {
	inner(n);
	return n + sink;
}

int module_entry(int n) {
	return twin(n) + 1;
}
