// Prints its own stack with backtrace_symbols(3), and before it the lines that it
// knows itself: "want FUNCTION LINE", innermost first.
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>

static int lines[8];
static const char *functions[8];
static int depth;

#define HERE (functions[depth] = __func__, lines[depth++] = __LINE__)

__attribute__((noinline)) static void dump(void) {
	void *stack[32];
	HERE; int n = backtrace(stack, 32);
	char **symbols = backtrace_symbols(stack, n);
	for (int i = depth - 1; i >= 0; i--)
		printf("want %s %d\n", functions[i], lines[i]);
	for (int i = 0; i < n; i++)
		puts(symbols[i]);
	free(symbols);
}

static inline __attribute__((always_inline)) void inlined(void) {
	HERE; dump();
	__asm__ volatile("");
}

// The call is the last instruction: what it returns to is another function.
__attribute__((noinline, noreturn)) static void last(void) {
	HERE; inlined(), exit(0);
}

__attribute__((noinline)) static void caller(void) {
	HERE; last();
}

int main(void) {
	HERE; caller();
	return 1;
}
