// Command record measures what recording costs: the CPU time of hallmark record
// beside that of perf record, in turn, on the same load. The times are those
// that the kernel accounts to the recorder itself.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

var (
	hallmark = flag.String("hallmark", "hallmark", "the hallmark to measure")
	perf     = flag.String("perf", "perf", "the perf to measure")
	hz       = flag.Int("F", 99, "samples a second and CPU")
	seconds  = flag.Int("d", 10, "seconds of each recording")
	pairs    = flag.Int("n", 5, "pairs of recordings")
	load     = flag.String("load", "while :; do gzip -c /proc/self/exe >/dev/null; done", "shell command that keeps the machine busy")
)

// a recorder is a command that records the whole machine into a file.
type recorder struct {
	name string
	args func(file string) []string
	cpu  []time.Duration
	peak []int64 // KiB
}

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func run() error {
	d := strconv.Itoa(*seconds)
	freq := strconv.Itoa(*hz)
	recorders := []*recorder{
		{name: "hallmark record -a, symbolized", args: func(file string) []string {
			return []string{*hallmark, "record", "-a", "-F", freq, "-d", d + "s", "-o", file}
		}},
		{name: "hallmark record -a --no-symbols", args: func(file string) []string {
			return []string{*hallmark, "record", "-a", "-F", freq, "-d", d + "s", "--no-symbols", "-o", file}
		}},
		{name: "hallmark record -a --no-symbols --backend bpf", args: func(file string) []string {
			return []string{*hallmark, "record", "-a", "-F", freq, "-d", d + "s", "--no-symbols", "--backend", "bpf", "-o", file}
		}},
		{name: "perf record -a -g", args: func(file string) []string {
			return []string{*perf, "record", "-q", "-a", "-g", "-e", "cpu-clock", "-F", freq, "-o", file, "--", "sleep", d}
		}},
		{name: "perf record -a -g --buildid-mmap", args: func(file string) []string {
			return []string{*perf, "record", "-q", "-a", "-g", "--buildid-mmap", "-e", "cpu-clock", "-F", freq, "-o", file, "--", "sleep", d}
		}},
	}
	dir, err := os.MkdirTemp("", "bench-record")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	stop, err := startLoad()
	if err != nil {
		return err
	}
	defer stop()
	for range *pairs {
		for _, r := range recorders {
			if err := r.record(filepath.Join(dir, "out")); err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
		}
	}
	table(recorders)
	return nil
}

// startLoad keeps every CPU busy until stop is called.
func startLoad() (stop func(), err error) {
	var groups []int
	stop = func() {
		for _, pgid := range groups {
			_ = syscall.Kill(-pgid, syscall.SIGKILL)
		}
	}
	for range 2 {
		cmd := exec.Command("sh", "-c", *load)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			stop()
			return nil, err
		}
		groups = append(groups, cmd.Process.Pid)
	}
	return stop, nil
}

func (r *recorder) record(file string) error {
	args := r.args(file)
	cmd := exec.Command(args[0], args[1:]...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out[max(0, len(out)-300):])
	}
	use := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	r.cpu = append(r.cpu, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	r.peak = append(r.peak, use.Maxrss)
	return nil
}

// table prints medians, and the median of the ratios to the last recorder but
// one pair by pair.
func table(recorders []*recorder) {
	base := recorders[len(recorders)-2]
	fmt.Printf("%d recordings each of %d s at %d Hz, in turn\n\n", *pairs, *seconds, *hz)
	fmt.Printf("| recorder | CPU ms | CPU share | ratio to %s (min … max) | peak MiB |\n|---|---:|---:|---:|---:|\n", base.name)
	for _, r := range recorders {
		ratios := make([]float64, len(r.cpu))
		for i := range r.cpu {
			ratios[i] = float64(r.cpu[i]) / float64(base.cpu[i])
		}
		cpu := median(r.cpu)
		fmt.Printf("| %s | %.0f | %.2f %% | %.2f (%.2f … %.2f) | %d |\n", r.name, cpu.Seconds()*1000,
			100*cpu.Seconds()/float64(*seconds), median(ratios), slices.Min(ratios), slices.Max(ratios), median(r.peak)/1024)
	}
}

func median[T int64 | float64 | time.Duration](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
