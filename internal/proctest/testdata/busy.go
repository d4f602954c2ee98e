// Command busy spends its time in functions that a profile must show: the CPU
// time in its first argument, or when that is "forever" until it is killed.
package main

import (
	"math"
	"os"
	"runtime"
	"syscall"
	"time"
)

func main() {
	d := time.Duration(math.MaxInt64 / 2)
	if os.Args[1] != "forever" {
		var err error
		if d, err = time.ParseDuration(os.Args[1]); err != nil {
			panic(err)
		}
	}
	runtime.LockOSThread()
	outer(d)
}

// used is the CPU time of this process: on a machine with other things to do, a
// clock on the wall says nothing about the work.
func used() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

//go:noinline
func outer(d time.Duration) (n uint64) {
	for end := used() + d; used() < end; {
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
