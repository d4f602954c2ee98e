// Waits for a signal, deep in calls that were not inlined and one that was.
#include <unistd.h>

static inline __attribute__((always_inline)) void inlined(void) {
	write(1, "ready\n", 6), pause(); // on one line: it may not have got to the second
	__asm__ volatile("");
}

// The call is the last instruction: what it returns to is another function.
__attribute__((noinline, noreturn)) static void last(void) {
	inlined();
	_exit(0);
}

__attribute__((noinline)) static void caller(void) {
	last();
}

int main(void) {
	caller();
	return 1;
}
