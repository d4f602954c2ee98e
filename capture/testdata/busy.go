// Command busy spends its time in functions that a profile must show: for the
// duration in its first argument.
package main

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

func main() {
	d, err := time.ParseDuration(os.Args[1])
	if err != nil {
		panic(err)
	}
	runtime.LockOSThread()
	fmt.Println(outer(time.Now().Add(d)))
}

//go:noinline
func outer(end time.Time) (n uint64) {
	for time.Now().Before(end) {
		n += spin(1 << 20)
	}
	return n
}

//go:noinline
func spin(rounds int) (n uint64) {
	for i := range rounds {
		n = step(n, i)
	}
	return n
}

// step is inlined into spin.
func step(n uint64, i int) uint64 { return n*6364136223846793005 + uint64(i) }
