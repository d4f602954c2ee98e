// Command mapper maps a file and parts of it executable again and again, in several
// threads, for a while.
package main

import (
	"os"
	"sync"
	"syscall"
	"time"
)

func main() {
	duration, err := time.ParseDuration(os.Args[1])
	if err != nil {
		panic(err)
	}
	f, err := os.Open(os.Args[2])
	if err != nil {
		panic(err)
	}
	end := time.Now().Add(duration)
	var threads sync.WaitGroup
	for range 4 {
		threads.Go(func() { work(int(f.Fd()), end) })
	}
	threads.Wait()
}

//go:noinline
func work(fd int, end time.Time) {
	for time.Now().Before(end) {
		b, err := syscall.Mmap(fd, 0, 1<<16, syscall.PROT_READ|syscall.PROT_EXEC, syscall.MAP_PRIVATE)
		if err != nil {
			panic(err)
		}
		sum := byte(0)
		for i := 0; i < len(b); i += 64 {
			sum += b[i]
		}
		if err := syscall.Munmap(b); err != nil {
			panic(err)
		}
	}
}
