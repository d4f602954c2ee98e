// Floor is what reading one block of every file costs at least: open, pread of
// 4096 bytes and close, for each line of a list of names.
//
//	floor LIST PASSES
//
// It prints the nanoseconds of each pass by the clock and by the processor.
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static long long now(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void pass(char **names, size_t count)
{
	char block[4096];
	for (size_t i = 0; i < count; i++) {
		int fd = open(names[i], O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			err(1, "%s", names[i]);
		if (pread(fd, block, sizeof block, 0) < 0)
			err(1, "%s", names[i]);
		close(fd);
	}
}

int main(int argc, char **argv)
{
	if (argc != 3)
		errx(2, "usage: floor LIST PASSES");
	FILE *list = fopen(argv[1], "r");
	if (!list)
		err(1, "%s", argv[1]);

	char **names = NULL, *line = NULL;
	size_t count = 0, capacity = 0;
	while (getline(&line, &capacity, list) > 0) {
		line[strcspn(line, "\n")] = 0;
		names = realloc(names, (count + 1) * sizeof *names);
		if (!names)
			err(1, "realloc");
		names[count++] = strdup(line);
	}
	for (int passes = atoi(argv[2]); passes > 0; passes--) {
		long long wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
		pass(names, count);
		printf("%lld %lld\n", now(CLOCK_MONOTONIC) - wall, now(CLOCK_PROCESS_CPUTIME_ID) - cpu);
	}
	return 0;
}
