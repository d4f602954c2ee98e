// Program gostacks runs what Go's runtime knows of stacks until its standard input ends.
package main

import (
	"fmt"
	"io"
	"os"
	"sort"
	"time"
)

//go:noinline
func large(depth int) (sum int) {
	var frame [1 << 12]int
	for i := range frame {
		frame[i] = depth + i
	}
	if depth > 0 {
		sum = large(depth - 1)
	}
	return sum + frame[depth]
}

//go:noinline
func deep(n int, f func() int) int {
	if n == 0 {
		return f()
	}
	return deep(n-1, f) + 1
}

var sink []byte

// work is what one goroutine does: it sorts, asks for the time, grows its stack, takes
// memory that is to be collected, and calls C where there is any.
func work() {
	numbers := make([]int, 500)
	for i := 0; ; i++ {
		for j := range numbers {
			numbers[j] = j * 7919 % 501
		}
		sort.Ints(numbers)
		deep(10, func() int { return int(time.Now().UnixNano()) })
		done := make(chan int)
		go func() { done <- large(3) }()
		<-done
		deep(5, called)
		sink = make([]byte, 1<<16)
	}
}

func main() {
	for range 3 {
		go work()
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
}
