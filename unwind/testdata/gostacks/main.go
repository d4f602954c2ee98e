// Program gostacks runs what Go's runtime knows of stacks.
package main

import (
	"fmt"
	"runtime"
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

func main() {
	runtime.GC()
	fmt.Println(large(3), called())
}
