// Maps files and calls the code in them, as the words of its arguments say: see
// run. The code of every file is a function that counts its argument down to 0.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what)                                                            \
	do {                                                                   \
		if (!(what)) {                                                 \
			perror(#what);                                         \
			_exit(1);                                              \
		}                                                              \
	} while (0)

#include "change.h"

// What a script has mapped; the first letter of a name is its index.
struct area {
	char *start;
	size_t size;
};

struct script {
	char **words;
	struct area areas[128];
};

static char *next(struct script *s) {
	CHECK(*s->words);
	return *s->words++;
}

static long number(struct script *s) { return strtol(next(s), 0, 0); }

static struct area *area(struct script *s) { return &s->areas[(int)*next(s)]; }

static void map(struct script *s, void *where, int flags) {
	struct area *a = area(s);
	int fd = open(next(s), O_RDONLY);
	CHECK(fd >= 0);
	off_t offset = number(s);
	a->size = number(s);
	a->start = mmap(where, a->size, PROT_READ | PROT_EXEC, flags, fd, offset);
	CHECK(a->start != MAP_FAILED);
	close(fd);
}

// call calls what is at an offset of an area for some microseconds of CPU time.
static void call(struct script *s) {
	struct area *a = area(s);
	void (*burn)(long) = (void (*)(long))(a->start + number(s));
	long us = number(s);
	struct timespec now;
	CHECK(!clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now));
	long end = now.tv_sec * 1000000000 + now.tv_nsec + us * 1000;
	do {
		burn(us < 5000 ? 1 << 14 : 1 << 18);
		CHECK(!clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now));
	} while (now.tv_sec * 1000000000 + now.tv_nsec < end);
}

// overwrite puts the content of one file into another one that stays the same inode.
static void overwrite(struct script *s) {
	static char buf[64 << 20];
	int to = open_to(next(s), O_WRONLY), from = open(next(s), O_RDONLY);
	CHECK(from >= 0);
	ssize_t n = read(from, buf, sizeof(buf));
	CHECK(n > 0 && write(to, buf, n) == n);
	CHECK(!close(to) && !close(from));
}

// stamp sets the times of a file to what they always are.
static void stamp(struct script *s) {
	struct timespec times[2] = {{1000000000, 0}, {1000000000, 0}};
	CHECK(!utimensat(AT_FDCWD, next(s), times, 0));
}

// move_text puts a copy of an area's text, from an offset on, into anonymous memory
// at the same place, as programs do that want their text in huge pages.
static void move_text(struct script *s) {
	struct area *a = area(s);
	size_t from = number(s), size = number(s);
	char *copy = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(copy != MAP_FAILED);
	memcpy(copy, a->start + from, size);
	CHECK(!mprotect(copy, size, PROT_READ | PROT_EXEC));
	CHECK(mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, a->start + from) != MAP_FAILED);
}

// poke writes to a page of an area, as debuggers do, what is there already.
static void poke(struct script *s) {
	struct area *a = area(s);
	volatile char *page = a->start + number(s);
	CHECK(!mprotect((void *)page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC));
	*page = *page;
	CHECK(!mprotect((void *)page, 4096, PROT_READ | PROT_EXEC));
}

static void run(struct script *s);

static void *run_thread(void *script) {
	run(script);
	return 0;
}

// threads runs the rest in that many threads.
static void threads(struct script *s) {
	pthread_t ids[16];
	struct script copies[16];
	long n = number(s);
	CHECK(n <= 16);
	for (int i = 0; i < n; i++) {
		copies[i] = *s;
		CHECK(!pthread_create(&ids[i], 0, run_thread, &copies[i]));
	}
	for (int i = 0; i < n; i++)
		pthread_join(ids[i], 0);
}

// repeat runs the rest that many times.
static void repeat(struct script *s) {
	for (long n = number(s); n > 0; n--) {
		struct script copy = *s;
		run(&copy);
	}
}

static void report_pid(void) {
	char line[32];
	int n = snprintf(line, sizeof(line), "%d\n", getpid());
	CHECK(write(1, line, n) == n);
}

// children runs the rest in that many processes, one after the other.
static void children(struct script *s) {
	for (long n = number(s); n > 0; n--) {
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			report_pid();
			run(s);
			_exit(0);
		}
		waitpid(pid, 0, 0);
	}
}

static void *exec_thread(void *words) {
	execv(*(char **)words, words);
	perror("execv");
	_exit(1);
}

// spawn runs a program to its end, and tells its number, the next word and the program.
static void spawn(struct script *s) {
	char *program = next(s), *word = next(s), line[1024];
	pid_t pid = vfork();
	CHECK(pid >= 0);
	if (!pid) {
		execl(program, program, (char *)0);
		_exit(1);
	}
	int n = snprintf(line, sizeof(line), "%d %s %s\n", pid, word, program), status;
	CHECK(write(1, line, n) == n);
	CHECK(waitpid(pid, &status, 0) == pid && !status);
}

// run_program runs a program to its end, and tells its number, the next word, and the status
// with which it ended.
static void run_program(struct script *s) {
	char *word = next(s), *program = next(s), line[1024];
	int status;
	pid_t pid = vfork();
	CHECK(pid >= 0);
	if (!pid) {
		execl(program, program, (char *)0);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status));
	int n = snprintf(line, sizeof(line), "%d %s %d\n", pid, word, WEXITSTATUS(status));
	CHECK(write(1, line, n) == n);
}

// in_child runs some of the next words in a child.
static void in_child(struct script *s) {
	struct script copy = *s;
	char *words[64] = {0};
	size_t n = number(s);
	CHECK(n < sizeof(words) / sizeof(*words));
	for (size_t i = 0; i < n; i++)
		words[i] = next(s);
	int status;
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		copy.words = words;
		run(&copy);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && !status);
}

// tell says what is mapped now: it tells the process's number, the next word, the bytes at
// an offset of an area, and where they are.
static void tell(struct script *s) {
	char *word = next(s), line[1024];
	struct area *a = area(s);
	char *at = a->start + number(s);
	unsigned long long bytes;
	memcpy(&bytes, at, sizeof(bytes));
	int n = snprintf(line, sizeof(line), "%d %s %llx %lx\n", getpid(), word, bytes, (long)at);
	CHECK(write(1, line, n) == n);
}

// dl loads a library, calls its function burn for some microseconds, and unloads it.
static void dl(struct script *s) {
	void *library = dlopen(next(s), RTLD_NOW);
	CHECK(library);
	struct area a = {dlsym(library, "burn"), 0};
	CHECK(a.start);
	s->areas['!'] = a;
	char *words[] = {"!", "0", next(s), 0}, **rest = s->words;
	s->words = words;
	call(s);
	s->words = rest;
	CHECK(!dlclose(library));
}

static void wait_for_word(void) {
	char c;
	CHECK(write(1, "ready\n", 6) == 6);
	CHECK(read(0, &c, 1) == 1);
}

static int is(const char *word, const char *name) { return !strcmp(word, name); }

static void step(struct script *s) {
	char *word = next(s);
	if (is(word, "map"))
		map(s, 0, MAP_PRIVATE);
	else if (is(word, "map-shared"))
		map(s, 0, MAP_SHARED);
	else if (is(word, "map-here"))
		map(s, (void *)0x200000000000, MAP_PRIVATE | MAP_FIXED);
	else if (is(word, "call"))
		call(s);
	else if (is(word, "overwrite"))
		overwrite(s);
	else if (is(word, "change")) {
		char *way = next(s), *path = next(s);
		change_file(way, path, next(s));
	} else if (is(word, "mount")) {
		char *dir = next(s), *image = next(s);
		mount_other(dir, image, next(s));
	} else if (is(word, "run"))
		run_program(s);
	else if (is(word, "in-child"))
		in_child(s);
	else if (is(word, "tell"))
		tell(s);
	else if (is(word, "stamp"))
		stamp(s);
	else if (is(word, "unlink"))
		CHECK(!unlink(next(s)));
	else if (is(word, "move-text"))
		move_text(s);
	else if (is(word, "spawn"))
		spawn(s);
	else if (is(word, "poke"))
		poke(s);
	else if (is(word, "dl"))
		dl(s);
	else if (is(word, "sleep")) // ms: so that who wants to can look at the process
		usleep(number(s) * 1000);
	else if (is(word, "wait"))
		wait_for_word();
	else if (is(word, "unmap")) {
		struct area *a = area(s);
		CHECK(!munmap(a->start, a->size));
	} else if (is(word, "page-out")) {
		struct area *a = area(s);
		CHECK(!madvise(a->start, a->size, MADV_PAGEOUT));
	} else {
		fprintf(stderr, "unknown word %s\n", word);
		_exit(1);
	}
}

static void run(struct script *s) {
	while (*s->words) {
		char *word = *s->words;
		pthread_t thread;
		if (is(word, "threads") || is(word, "repeat") || is(word, "children")) {
			s->words++;
			(is(word, "threads") ? threads : is(word, "repeat") ? repeat : children)(s);
			return;
		}
		if (is(word, "exec-in-thread")) {
			CHECK(!pthread_create(&thread, 0, exec_thread, s->words + 1));
			pthread_join(thread, 0);
		}
		if (is(word, "exec"))
			exec_thread(s->words + 1);
		step(s);
	}
}

int main(int, char **argv) {
	struct script s = {.words = argv + 1};
	report_pid();
	run(&s);
	return 0;
}
