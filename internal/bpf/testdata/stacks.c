// Makes a stack of the kind that its argument names, prints how libgcc unwinds it, and
// keeps it for ever: a line with the number of the thread, and one with the addresses that
// say where each frame is, the innermost one first.
#define _GNU_SOURCE
#if defined(SIGNED) && defined(__aarch64__)
#pragma GCC target("branch-protection=standard") // return addresses are signed
#endif
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <unwind.h>

#define NOINLINE __attribute__((noinline, noclone))

static volatile uint64_t sink = 1;
static volatile int two = 2;
static void (*volatile bottom)(void);

/* Nothing called what signal handlers return to: its first instruction is executed next. */
static int is_restorer(uintptr_t ip) {
#ifdef __x86_64__
	return !memcmp((void *)ip, "\x48\xc7\xc0\x0f\0\0\0", 7); // mov $15, %rax
#else
	return !memcmp((void *)ip, "\x68\x11\x80\xd2", 4); // mov x8, #139
#endif
}

static _Unwind_Reason_Code print(struct _Unwind_Context *c, void *unused) {
	int exact = 0;
	uintptr_t ip = _Unwind_GetIPInfo(c, &exact);

	(void)unused;
	if (ip)
		printf(" %lx", (unsigned long)(ip - !(exact || is_restorer(ip))));
	return _URC_NO_REASON;
}

// leaf is the innermost function of every stack.
static NOINLINE void leaf(void) {
	printf("%ld\n", syscall(SYS_gettid));
	_Unwind_Backtrace(print, NULL);
	printf("\n");
	fflush(stdout);
	for (;;)
		sink = sink * 6364136223846793005u + 1;
}

static NOINLINE int compare(const void *a, const void *b) {
	if (--two < -20)
		bottom();
	return *(const int *)a - *(const int *)b + two * 0;
}

static NOINLINE void sort(void) {
	int numbers[64];

	for (int i = 0; i < 64; i++)
		numbers[i] = i * 37 % 64;
	qsort(numbers, 64, sizeof(numbers[0]), compare);
	sink += numbers[two & 7];
}

static NOINLINE int recurse(int n, int a, int b);
static int (*volatile again)(int n, int a, int b) = recurse; // no loop can be made of it

static NOINLINE int recurse(int n, int a, int b) {
	if (!n) {
		bottom();
		return a;
	}
	return again(n - 1, b + n, a) * 3 + a + b;
}

static NOINLINE void dynamic(int n) {
	char *room = alloca(n * 100 + two);

	memset(room, n, n * 100);
	if (n > 0)
		dynamic(n - 1);
	else
		bottom();
	sink += room[two];
}

static NOINLINE void aligned(int n) {
	_Alignas(128) volatile char room[256];
	char *more = alloca(n * 10 + two);

	room[two] = n;
	more[0] = n;
	if (n > 0)
		aligned(n - 1);
	else
		bottom();
	sink += room[two] + more[0];
}

/* Most of its frame is never touched, so that pages of the stack are not there. */
__attribute__((optimize("no-stack-clash-protection"))) static NOINLINE void *sparse(void *unused) {
	volatile char room[24000];

	room[two] = 1;
	bottom();
	sink += room[two];
	return unused;
}

static void handler(int sig) {
	(void)sig;
	leaf();
}

static NOINLINE void raised(void) {
	kill(getpid(), SIGUSR1);
	sink++;
}

static NOINLINE void faulting(void) {
	*(volatile int *)(uintptr_t)(sink & 0) = 1;
	sink++;
}

static void handle(int sig, int flags) {
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags};

	sigaction(sig, &action, NULL);
}

static void alternate(void) {
	stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};

	sigaltstack(&stack, NULL);
}

static void *thread(void *unused) {
	(void)unused;
	recurse(5, 1, 2);
	sink++;
	return NULL;
}

static NOINLINE void nested(void) {
	bottom = leaf;
	sort();
	sink++;
}

// ready says that there is no stack that is kept.
static void ready(void) {
	printf("%ld\n\n", syscall(SYS_gettid));
	fflush(stdout);
}

static NOINLINE int order(const void *a, const void *b) {
	return *(const int *)a - *(const int *)b;
}

// busy is always somewhere else: in the C library, in system calls, in the vdso.
static NOINLINE void busy(void) {
	static int numbers[512];
	char text[64];
	struct timespec now;

	ready();
	for (;;) {
		for (int i = 0; i < 512; i++)
			numbers[i] = rand();
		qsort(numbers, 512, sizeof(numbers[0]), order);
		snprintf(text, sizeof(text), "%d %s %f", numbers[7], "text", numbers[9] / 3.0);
		clock_gettime(CLOCK_MONOTONIC, &now);
		sink += strlen(text) + strtol(text, NULL, 10) + now.tv_nsec + getppid();
		free(malloc(numbers[3] & 0xffff));
	}
}

// forking has children for which much memory is copied.
static NOINLINE void forking(void) {
	const size_t size = 32 << 20;
	char *memory = malloc(size);
	pid_t child;

	memset(memory, 1, size);
	ready();
	while ((child = fork()) > 0)
		waitpid(child, NULL, 0);
	_exit(child < 0);
}

int main(int argc, char **argv) {
	const char *kind = argc > 1 ? argv[1] : "";
	pthread_t t;

	bottom = leaf;
	if (!strcmp(kind, "busy")) {
		busy();
	} else if (!strcmp(kind, "forking")) {
		forking();
	} else if (!strcmp(kind, "recursion")) {
		recurse(60, 1, 2);
	} else if (!strcmp(kind, "deep")) {
		recurse(1200, 1, 2);
	} else if (!strcmp(kind, "qsort")) {
		sort();
	} else if (!strcmp(kind, "alloca")) {
		dynamic(10);
	} else if (!strcmp(kind, "aligned")) {
		aligned(5);
	} else if (!strcmp(kind, "sparse")) {
		pthread_create(&t, NULL, sparse, NULL); /* on a stack that is new */
		pthread_join(t, NULL);
	} else if (!strcmp(kind, "signal")) {
		handle(SIGUSR1, 0);
		bottom = raised;
		sort();
	} else if (!strcmp(kind, "fault")) {
		handle(SIGSEGV, SA_ONSTACK);
		alternate();
		bottom = faulting;
		recurse(3, 1, 2);
	} else if (!strcmp(kind, "thread")) {
		pthread_create(&t, NULL, thread, NULL);
		pthread_join(t, NULL);
	} else {
		bottom = nested;
		dynamic(3);
	}
	return sink & 1;
}
