// Copies a loop into memory of its own, names it in /tmp/perf-PID.map as the
// runtimes do that generate code, and runs it for the number of milliseconds in
// its first argument.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

__attribute__((noinline)) unsigned long loop(unsigned long n) {
	unsigned long sum = 1;
	while (n--)
		sum = sum * 31 + n;
	return sum;
}

int main(int argc, char **argv) {
	char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(code, (void *)loop, 256);
	__builtin___clear_cache(code, code + 256);
	char name[64];
	snprintf(name, sizeof name, "/tmp/perf-%d.map", getpid());
	FILE *map = fopen(name, "w");
	fprintf(map, "%lx 100 generated_loop\n", (long)code);
	fclose(map);
	clock_t end = clock() + atol(argv[1]) * (CLOCKS_PER_SEC / 1000);
	volatile unsigned long sink;
	while (clock() < end)
		sink = ((unsigned long (*)(unsigned long))code)(1 << 18);
	return 0;
}
