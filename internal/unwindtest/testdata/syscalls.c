// A program that is mostly in the kernel: what its registers are there is what they were
// when it called.
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "corpus.h"

static volatile long sink;

__attribute__((noinline)) static long calls(unsigned depth, int fd)
{
	char b[4096];
	struct stat st;
	if (depth)
		return calls(depth - 1, fd) + b[depth];
	long n = read(fd, b, sizeof b);
	return n + stat("/usr/bin", &st) + (long)write(fd, b, 10) + getppid();
}

int main(int argc, char **argv)
{
	corpus_start(argc, argv);
	int fd = open("/dev/zero", O_RDWR);
	for (unsigned n = 0; corpus_more(); n++)
		sink += calls(n % 8, fd);
	return 0;
}
