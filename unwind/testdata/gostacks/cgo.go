//go:build cgo

package main

/*
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

extern int back(int);

static int compare(const void *a, const void *b) { return back(*(const int *)a) - *(const int *)b; }

// forth calls Go from within the C library.
static int forth(int n) {
	int numbers[16];
	volatile int sum = 0;
	for (int i = 0; i < 2000; i++)
		sum += i;
	for (int i = 0; i < 16; i++)
		numbers[i] = (i * 7 + n) % 16;
	qsort(numbers, 16, sizeof *numbers, compare);
	return numbers[0];
}

static void *thread(void *n) {
	for (;;)
		forth(*(int *)n);
}

static void start(void) {
	static int n = 3;
	pthread_t t;
	pthread_create(&t, NULL, thread, &n);
}
*/
import "C"

func init() { C.start() }

//export back
func back(n C.int) C.int {
	return C.int(deep(3, func() int {
		sum := int(n)
		for i := range 5000 {
			sum += i &^ 0xffff
		}
		return sum
	}) - 3)
}

func called() (sum int) {
	for range 5 {
		sum += int(C.forth(1))
	}
	return sum
}
