// Command record measures what recording costs: the CPU time of hallmark record
// beside that of perf record, in turn, on the same load. The times are those
// that the kernel accounts to the recorder itself.
package main

import (
	"flag"
	"fmt"
	"hallmark/bench/internal/trial"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

var (
	hallmark = flag.String("hallmark", "hallmark", "the hallmark to measure")
	perf     = flag.String("perf", "perf", "the perf to measure")
	rates    = flag.String("F", "99,999", "samples a second and CPU, one table for each")
	seconds  = flag.Int("d", 10, "seconds of each recording")
	rounds   = trial.Rounds("n", 5, "rounds, in which every recorder has its turn")
	only     = flag.String("only", "", "leave out the recorders whose names do not have this in them; perf with --buildid-mmap stays")
	load     = flag.String("load", "while :; do gzip -c /proc/self/exe >/dev/null; done", "shell command that keeps the machine busy, empty for none")
)

// a recorder records the whole machine into a file, by one command or several.
type recorder struct {
	name     string
	commands [][]string
	uses     []use
}

// use is what one recording took.
type use struct {
	cpu   time.Duration
	peak  int64 // KiB, of the largest command
	waits int64 // times that it gave the CPU up, each of which is a wakeup
}

func main() { trial.Main("record", run) }

func run(dir string) error {
	stop, err := startLoad()
	if err != nil {
		return err
	}
	defer stop()
	for rate := range strings.SplitSeq(*rates, ",") {
		recorders, base := contenders(rate, filepath.Join(dir, "out"))
		for range *rounds {
			if err := round(recorders); err != nil {
				return err
			}
		}
		fmt.Printf("%s Hz, %d s, %d rounds\n\n", rate, *seconds, *rounds)
		table(recorders, base)
	}
	return nil
}

// attempts is how often a round is tried: perf 6.1 aborts when a process with a build
// ID of more than 20 bytes is among those recorded.
const attempts = 5

// round gives each recorder its turn, and counts if none failed.
func round(recorders []*recorder) (err error) {
	for range attempts {
		uses := make([]use, len(recorders))
		for i, r := range recorders {
			if uses[i], err = r.record(); err != nil {
				err = fmt.Errorf("%s: %w", r.name, err)
				break
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "record: once more:", err)
			continue
		}
		for i, r := range recorders {
			r.uses = append(r.uses, uses[i])
		}
		return nil
	}
	return err
}

// contenders returns the recorders, and that which the others are compared with.
func contenders(rate, file string) (recorders []*recorder, base *recorder) {
	d := strconv.Itoa(*seconds)
	own := func(flags ...string) []string {
		return append([]string{*hallmark, "record", "-a", "-F", rate, "-d", d + "s", "-o", file}, flags...)
	}
	perfs := func(flags ...string) []string {
		args := append([]string{*perf, "record", "-q", "-a", "-g", "-e", "cpu-clock", "-F", rate, "-o", file}, flags...)
		return append(args, "--", "sleep", d)
	}
	report := []string{*perf, "report", "-i", file, "--stdio", "-g", "none"}
	base = &recorder{name: "perf record -a -g --buildid-mmap", commands: [][]string{perfs("--buildid-mmap")}}
	recorders = []*recorder{
		{name: "hallmark record -a --backend bpf --no-symbols", commands: [][]string{own("--backend", "bpf", "--no-symbols")}},
		{name: "hallmark record -a --backend bpf", commands: [][]string{own("--backend", "bpf")}},
		{name: "hallmark record -a --backend perf --call-graph fp --no-symbols", commands: [][]string{own("--backend", "perf", "--call-graph", "fp", "--no-symbols")}},
		{name: "hallmark record -a --backend perf --call-graph fp", commands: [][]string{own("--backend", "perf", "--call-graph", "fp")}},
		base,
		{name: "the same, then perf report", commands: [][]string{perfs("--buildid-mmap"), report}},
		{name: "perf record -a -g", commands: [][]string{perfs()}},
	}
	recorders = slices.DeleteFunc(recorders, func(r *recorder) bool { return r != base && !strings.Contains(r.name, *only) })
	return recorders, base
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
		if *load == "" {
			break
		}
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

// record runs the commands and adds up what they used.
func (r *recorder) record() (sum use, err error) {
	for _, args := range r.commands {
		cmd := exec.Command(args[0], args[1:]...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return use{}, fmt.Errorf("%w: %s", err, out[max(0, len(out)-300):])
		}
		rusage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		sum.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		sum.peak = max(sum.peak, rusage.Maxrss)
		sum.waits += rusage.Nvcsw
	}
	return sum, nil
}

// table prints medians, and the median of the ratios within each round.
func table(recorders []*recorder, base *recorder) {
	fmt.Printf("| recorder | CPU ms | CPU share | ratio to %s (min … max) | peak MiB | wakeups |\n|---|---:|---:|---:|---:|---:|\n", base.name)
	for _, r := range recorders {
		var ratios []float64
		for i, u := range r.uses {
			ratios = append(ratios, float64(u.cpu)/float64(base.uses[i].cpu))
		}
		cpu := median(r.uses, func(u use) time.Duration { return u.cpu })
		fmt.Printf("| %s | %.0f | %.2f %% | %.2f (%.2f … %.2f) | %d | %d |\n", r.name, cpu.Seconds()*1000,
			100*cpu.Seconds()/float64(*seconds),
			median(ratios, func(f float64) float64 { return f }), slices.Min(ratios), slices.Max(ratios),
			median(r.uses, func(u use) int64 { return u.peak })/1024,
			median(r.uses, func(u use) int64 { return u.waits }))
	}
	fmt.Println()
}

// median returns the one in the middle of what of returns for the values.
func median[V any, T int64 | float64 | time.Duration](values []V, of func(V) T) T {
	var sorted []T
	for _, v := range values {
		sorted = append(sorted, of(v))
	}
	slices.Sort(sorted)
	return sorted[len(sorted)/2]
}
