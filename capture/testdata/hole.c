// Spins in a frame that says that its caller is in a hole between mappings: below a
// mapping of this program's own file. The arguments are the offset in the file that
// is mapped, how far below the start of the mapping the caller is (or above it, if
// negative), and for how many milliseconds to spin. For x86-64 only.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static unsigned long below_mapping(long offset, long distance) {
	char *room = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *middle = room + (1 << 19);
	munmap(room, 1 << 20);
	if (mmap(middle, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, open("/proc/self/exe", O_RDONLY), offset) != middle)
		abort();
	return (unsigned long)middle - distance;
}

__attribute__((noinline)) void burn(unsigned long *frame, unsigned long rounds) {
	__asm__ volatile("sub $128, %%rsp\n" // of the red zone
			 "push %%rbp\n"
			 "mov %1, %%rbp\n"
			 "1: dec %0\n"
			 "jnz 1b\n"
			 "pop %%rbp\n"
			 "add $128, %%rsp\n"
			 : "+r"(rounds)
			 : "r"(frame)
			 : "cc", "memory");
}

int main(int argc, char **argv) {
	unsigned long frame[2] = {0, below_mapping(strtol(argv[1], NULL, 0), strtol(argv[2], NULL, 0))};
	clock_t end = clock() + atol(argv[3]) * (CLOCKS_PER_SEC / 1000);
	do
		burn(frame, 1 << 18);
	while (clock() < end);
	return 0;
}
