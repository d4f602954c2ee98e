#include "detail.h"

struct shelf {
	static int count[4];
	int first;
};
int shelf::count[4] = {1};
static volatile char buffer[100];
static volatile char wide[200];
namespace shop {
long depth = 4;
}
int grid[3][5];
shelf *chosen;
shelf &reference = *chosen;
int shelf::*member = &shelf::first;

static inline __attribute__((always_inline)) int inner(int p) {
	int q[4] = {p, 1, 2, 3};
	for (volatile int i = 0; i < 3; i++)
		q[i]++;
	return q[p & 3] + header(p);
}

__attribute__((noinline)) int work(int n, double d) {
	char sized[n > 2 ? 32 : 8];
	sized[0] = n;
	int local = n;
	int *to = &local;
	return inner(*to) + (int)d + sized[0] + buffer[n] + wide[n] + shelf::count[n & 1];
}

int main(int argc, char **argv) {
	static int counter;
	counter += argc;
	return work(argc, 2.0) + counter + shop::depth + grid[1][argc];
}
