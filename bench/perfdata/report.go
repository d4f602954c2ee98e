package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// reportLimit is how long a report may take: perf with inlined functions starts
// addr2line for each address, and a recording may have many gigabytes.
const reportLimit = 20 * time.Minute

// reporter is a way from a perf.data file to names of functions.
type reporter struct {
	name string
	args []string // the file is added
	cold bool     // without indexes that were prepared before
}

// measureReports compares what it takes to see the functions of a recording. hallmark
// is built from this checkout (the working directory is its bench), and has a cache of its own.
func measureReports(file string, rounds int) error {
	work, err := os.MkdirTemp("", "bench-perfdata")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	hallmark, err := buildHallmark(work)
	if err != nil {
		return err
	}
	reporters := []reporter{
		{"`hallmark report`, indexes prepared", []string{hallmark, "report"}, false},
		{"`hallmark report`, no indexes yet", []string{hallmark, "report"}, true},
		{"`perf report --stdio --no-inline`", []string{"perf", "report", "--stdio", "--no-inline", "-i"}, false},
		{"`perf report --stdio --no-inline --no-children -g none`", []string{"perf", "report", "--stdio", "--no-inline", "--no-children", "-g", "none", "-i"}, false},
		{"`perf script --no-inline`", []string{"perf", "script", "--no-inline", "-i"}, false},
	}
	warm := filepath.Join(work, "warm")
	if _, err := reporters[0].run(file, warm); err != nil { // prepares
		return err
	}
	costs := make([][]cost, len(reporters))
	for round := range rounds {
		for i := range reporters {
			who := (i + round) % len(reporters)
			cache := warm
			if reporters[who].cold {
				cache = filepath.Join(work, fmt.Sprint("cold", round))
			}
			c, err := reporters[who].run(file, cache)
			if err != nil {
				return fmt.Errorf("%s: %w", reporters[who].name, err)
			}
			costs[who] = append(costs[who], c)
		}
	}
	return printReports(file, reporters, costs)
}

func buildHallmark(work string) (name string, err error) {
	name = filepath.Join(work, "hallmark")
	if out, err := exec.Command("go", "-C", "..", "build", "-o", name, "./cmd/hallmark").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building hallmark: %w\n%s", err, out)
	}
	return name, nil
}

// run takes what a reporter costs, with what it starts.
func (r reporter) run(file, cache string) (cost, error) {
	ctx, cancel := context.WithTimeout(context.Background(), reportLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.args[0], append(r.args[1:len(r.args):len(r.args)], file)...)
	// Nobody is asked for symbols over the network.
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cache, "DEBUGINFOD_URLS=")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	start := time.Now()
	if err := cmd.Run(); err != nil {
		return cost{}, fmt.Errorf("%w\n%s", errors.Join(err, ctx.Err()), strings.TrimSpace(stderr.String()))
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return cost{cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), wall: time.Since(start), memory: usage.Maxrss << 10}, nil
}

func printReports(file string, reporters []reporter, costs [][]cost) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	fmt.Printf("%d MB; medians of %d rounds\n\n", info.Size()>>20, len(costs[0]))
	fmt.Println("| | CPU s | × hallmark | × no indexes | wall s | MB of memory |")
	fmt.Println("|---|---:|---:|---:|---:|---:|")
	for i, r := range reporters {
		var times, walls, warm, cold, memory []float64
		for round, c := range costs[i] {
			times = append(times, c.cpu.Seconds())
			walls = append(walls, c.wall.Seconds())
			warm = append(warm, c.cpu.Seconds()/costs[0][round].cpu.Seconds())
			cold = append(cold, c.cpu.Seconds()/costs[1][round].cpu.Seconds())
			memory = append(memory, float64(c.memory)/(1<<20))
		}
		fmt.Printf("| %s | %.2f | %.1f | %.1f | %.2f | %.0f |\n", r.name, median(times), median(warm), median(cold), median(walls), median(memory))
	}
	return nil
}
