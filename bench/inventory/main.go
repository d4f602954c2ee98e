// Command inventory measures what it costs to know what every running process has
// mapped, with the identity of each file: by the BPF iterator, by queries, and by
// the text in /proc. Costs are CPU times of this process, which are the kernel's work
// for the most part.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/internal/bpf"
	"hallmark/procmap"
)

var rounds = flag.Int("rounds", 15, "rounds, in each of which every way is taken once")

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "inventory:", err)
		os.Exit(1)
	}
}

// ways are what is measured, in the order of the table.
var ways = []string{
	"iterator: loading the program",
	"iterator: the first time, all files read",
	"iterator: again, all files known",
	"queries (`PROCMAP_QUERY`)",
	"text",
}

func run() error {
	costs, err := bpf.CountCosts()
	if err != nil {
		return err
	}
	defer costs.Close()
	times := map[string][]time.Duration{}
	var processes, mappings int
	var inKernel []time.Duration
	for range *rounds {
		spent, err := iterate(times)
		if err != nil {
			return err
		}
		inKernel = append(inKernel, spent)
		for i, method := range []procmap.Method{procmap.Query, procmap.Text} {
			took := measure(func() { processes, mappings, err = ask(method) })
			if err != nil {
				return err
			}
			times[ways[3+i]] = append(times[ways[3+i]], took)
		}
	}
	fmt.Printf("%d processes, %d executable mappings of files.\n\n", processes, mappings)
	print(mappings, times)
	fmt.Printf("\nThe first time, the BPF program itself ran for %.2f ms.\n", median(inKernel).Seconds()*1e3)
	return nil
}

// iterate loads the program, and runs it twice. It returns for how long it ran the
// first time, as the kernel tells.
func iterate(times map[string][]time.Duration) (inKernel time.Duration, err error) {
	var stock *bpf.Stock
	took := measure(func() { stock, err = bpf.NewStock() })
	if err != nil {
		return 0, err
	}
	defer stock.Close()
	times[ways[0]] = append(times[ways[0]], took)
	for i, way := range ways[1:3] {
		took := measure(func() { _, _, err = stock.List() })
		if err != nil {
			return 0, err
		}
		times[way] = append(times[way], took)
		if i > 0 {
			break
		}
		cost, err := stock.Cost()
		if err != nil {
			return 0, err
		}
		inKernel = cost.Time
	}
	return inKernel, nil
}

// ask asks every process in /proc, one after the other. Those that end meanwhile, and
// those without memory, have nothing.
func ask(method procmap.Method) (processes, mappings int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, 0, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if n := identify(pid, method); n > 0 {
			processes++
			mappings += n
		}
	}
	return processes, mappings, nil
}

// identify returns the number of executable mappings of files that a process has.
func identify(pid int, method procmap.Method) int {
	p, err := procmap.OpenOptions(pid, procmap.Options{Method: method})
	if err != nil {
		return 0
	}
	defer p.Close()
	vmas, err := p.Executable()
	if err != nil {
		return 0
	}
	for _, v := range vmas {
		if _, err := p.Identity(v); err != nil {
			return 0
		}
	}
	return len(vmas)
}

func print(mappings int, times map[string][]time.Duration) {
	fmt.Println("| way | CPU ms | µs a mapping |")
	fmt.Println("|---|---:|---:|")
	for _, way := range ways {
		t := median(times[way])
		fmt.Printf("| %s | %.2f | %.1f |\n", way, t.Seconds()*1e3, t.Seconds()*1e6/float64(mappings))
	}
}

func measure(f func()) time.Duration {
	before := cpuTime()
	f()
	return cpuTime() - before
}

// cpuTime returns the CPU time of this process.
func cpuTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		panic(err) // the clock exists everywhere
	}
	return time.Duration(ts.Nano())
}

func median(times []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[len(sorted)/2]
}
