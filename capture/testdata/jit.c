// Copies a loop into memory of its own, names it in /tmp/perf-PID.map as the
// runtimes do that generate code, and runs it for the number of milliseconds in
// its first argument. With a second one the memory is a memfd that is mapped twice,
// to be written and to be run, as .NET has it.
#define _GNU_SOURCE
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

char *twice(void) {
	int file = memfd_create("doublemapper", 0);
	ftruncate(file, 4096);
	memcpy(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), (void *)loop, 256);
	return mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, file, 0);
}

char *once(void) {
	char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(code, (void *)loop, 256);
	return code;
}

int main(int argc, char **argv) {
	char *code = argc > 2 ? twice() : once();
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
