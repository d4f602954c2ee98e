extern volatile int sink;

__attribute__((noinline)) static int twin(int n) {
	for (int i = 0; i < n; i++)
		sink += n * sink;
	return n;
}

int module_exit(int n) {
	return twin(n) + 1;
}
