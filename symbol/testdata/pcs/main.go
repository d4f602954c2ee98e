// Command pcs prints what the Go runtime knows of random addresses of the
// program's own code: for each a line with the file offset, then a line for each
// frame, innermost first, of function, file and line, then an empty line. The
// arguments are the seed and the number of addresses. It compiles with old
// versions of Go.
package main

import (
	"bufio"
	"fmt"
	"math/rand"
	"os"
	"runtime"
	"strconv"
	"strings"
)

func main() {
	seed, _ := strconv.ParseInt(os.Args[1], 10, 64)
	count, _ := strconv.Atoi(os.Args[2])
	random := rand.New(rand.NewSource(seed))
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for _, text := range textMappings() {
		for i := 0; i < count; i++ {
			pc := text.start + uintptr(random.Int63n(int64(text.end-text.start)))
			if f := runtime.FuncForPC(pc); f != nil && !startsFunction(pc+1) {
				fmt.Fprintln(out, text.offset+pc-text.start)
				printFrames(out, pc)
			}
		}
	}
}

// startsFunction reports whether a function starts at pc. The runtime takes an
// address for the one after a call, except there.
func startsFunction(pc uintptr) bool {
	f := runtime.FuncForPC(pc)
	return f == nil || f.Entry() == pc
}

func printFrames(out *bufio.Writer, pc uintptr) {
	// Frames expands the inlined calls of all addresses but the last.
	const nowhere = 1
	frames := runtime.CallersFrames([]uintptr{pc + 1, nowhere})
	for {
		f, more := frames.Next()
		if f.PC != 0 {
			fmt.Fprintf(out, "%s\t%s\t%d\n", f.Function, f.File, f.Line)
		}
		if !more {
			break
		}
	}
	fmt.Fprintln(out)
}

type mapping struct{ start, end, offset uintptr }

// textMappings returns where the program's own code is mapped.
func textMappings() (texts []mapping) {
	exe, _ := os.Readlink("/proc/self/exe")
	maps, _ := os.ReadFile("/proc/self/maps")
	for _, line := range strings.Split(string(maps), "\n") {
		var m mapping
		var perms string
		n, _ := fmt.Sscanf(line, "%x-%x %s %x", &m.start, &m.end, &perms, &m.offset)
		if n == 4 && perms == "r-xp" && strings.HasSuffix(line, " "+exe) {
			texts = append(texts, m)
		}
	}
	return texts
}
