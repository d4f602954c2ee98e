// Go that calls C that calls Go.
package main

/*
#include <stdlib.h>
#include <string.h>

extern int goLess(void *, void *);
extern unsigned goBack(unsigned, unsigned);

static int less(const void *a, const void *b) { return goLess((void *)a, (void *)b); }

static volatile unsigned sink;

static void sortInts(int *p, size_t n) { qsort(p, n, sizeof *p, less); }

static unsigned inC(unsigned depth, unsigned n)
{
	char b[100];
	memset(b, (int)n, sizeof b);
	for (unsigned i = 0; i < 2000; i++)
		sink = sink * 1664525u + (unsigned)b[i % 100];
	return depth ? goBack(depth, n) + (unsigned)b[n % 100] : sink;
}
*/
import "C"

import (
	"os"
	"sort"
	"strconv"
	"sync"
	"time"
	"unsafe"
)

//export goLess
func goLess(a, b unsafe.Pointer) C.int { return *(*C.int)(a) - *(*C.int)(b) }

//export goBack
func goBack(depth, n C.uint) C.uint {
	words := make([]int, 100)
	for i := range words {
		words[i] = i * 7919 * int(n) % 1009
	}
	sort.Ints(words)
	return C.inC(depth-1, n+C.uint(words[50]))
}

func main() {
	ms := 1000
	if len(os.Args) > 1 {
		ms, _ = strconv.Atoi(os.Args[1])
	}
	end := time.Now().Add(time.Duration(ms) * time.Millisecond)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for n := 0; time.Now().Before(end); n++ {
				C.inC(C.uint(n%5), C.uint(n))
				var v [60]C.int
				for i := range v {
					v[i] = C.int(i * 7919 % (n + 101))
				}
				C.sortInts(&v[0], 60)
			}
		})
	}
	all.Wait()
}
