// Starts a program over and over, several at a time, and waits for each: as fast as the
// machine can.
//
//	starter LIST COUNT AT-A-TIME PROGRAM...
//
// The programs take turns. LIST gets a line for each process: its number, and which program
// it was. Standard output gets the seconds that all of it took, and the CPU seconds of the
// programs and of this one.

#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

static double seconds(struct timeval t) { return t.tv_sec + t.tv_usec / 1e6; }

static double cpu(void)
{
	struct rusage self, children;

	getrusage(RUSAGE_SELF, &self);
	getrusage(RUSAGE_CHILDREN, &children);
	return seconds(self.ru_utime) + seconds(self.ru_stime) + seconds(children.ru_utime) + seconds(children.ru_stime);
}

int main(int argc, char **argv)
{
	int count = atoi(argv[2]), most = atoi(argv[3]), programs = argc - 4, running = 0;
	pid_t *pids = calloc(count, sizeof(*pids));
	struct timespec from, to;
	double before = cpu();
	FILE *list;

	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int i = 0; i < count; i++) {
		char *program = argv[4 + i % programs], *args[] = {program, NULL};

		if (running == most && waitpid(-1, NULL, 0) > 0)
			running--;
		if (posix_spawn(&pids[i], program, NULL, NULL, args, environ)) {
			perror(program);
			return 1;
		}
		running++;
	}
	while (waitpid(-1, NULL, 0) > 0)
		;
	clock_gettime(CLOCK_MONOTONIC, &to);
	printf("%f %f\n", to.tv_sec - from.tv_sec + (to.tv_nsec - from.tv_nsec) / 1e9, cpu() - before);
	list = fopen(argv[1], "w");
	if (!list) {
		perror(argv[1]);
		return 1;
	}
	for (int i = 0; i < count; i++)
		fprintf(list, "%d %d\n", pids[i], i % programs);
	return fclose(list) ? 1 : 0;
}
