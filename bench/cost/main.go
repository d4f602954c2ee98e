// Command cost measures what recording the whole machine costs, in its three parts: the start,
// each second, and the end. Recordings of two lengths separate the first two, recordings
// with and without names the third. All recorders have their turn in every round. The times
// are CPU times of user and kernel that the kernel accounts to the recorder and its children;
// counts (times that it gave the CPU up, page faults, memory) stand beside them, because they
// depend less on what else the machine does.
package main

import (
	"flag"
	"fmt"
	"hallmark/bench/internal/trial"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

var (
	hallmark = flag.String("hallmark", "hallmark", "the hallmark to measure")
	perf     = flag.String("perf", "perf", "the perf to measure")
	otel     = flag.String("otel", "", "the OpenTelemetry profiler (ebpf-profiler), if it is to be measured too")
	rates    = flag.String("F", "99,999", "samples a second and CPU, one table for each")
	short    = flag.Duration("short", 2*time.Second, "the shorter recordings")
	long     = flag.Duration("long", 12*time.Second, "the longer recordings")
	rounds   = trial.Rounds("n", 3, "rounds, in which every recorder has its turn")
	only     = flag.String("only", "", "leave out the recorders whose names do not have this in them")
	load     = flag.String("load", "go build -a -o /dev/null cmd/gofmt", "shell command of which two are run over and over in the tables with a load")
	idle     = flag.Bool("idle", true, "make tables without a load")
	busy     = flag.Bool("busy", true, "make tables with a load")
	other    = flag.String("other", "", "another hallmark, for a comparison")
)

func main() { trial.Main("cost", run) }

func run(dir string) error {
	if err := os.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache")); err != nil {
		return err
	}
	for _, loaded := range []bool{false, true} {
		if loaded && !*busy || !loaded && !*idle {
			continue
		}
		for rate := range strings.SplitSeq(*rates, ",") {
			if err := tableOf(dir, rate, loaded); err != nil {
				return err
			}
		}
	}
	return nil
}

// tableOf measures all recorders at one rate, and prints a table.
func tableOf(dir, rate string, loaded bool) error {
	recorders, err := contenders(filepath.Join(dir, "out"), rate)
	if err != nil {
		return err
	}
	what := "idle"
	if loaded {
		what = "load: " + *load
		stop, err := startLoad(filepath.Join(dir, "load"))
		if err != nil {
			return err
		}
		defer stop()
	}
	for _, r := range recorders { // caches
		if _, err := use(r.named, *short); err != nil {
			return err
		}
	}
	for range *rounds {
		for _, r := range recorders {
			if err := r.turn(); err != nil {
				return err
			}
		}
	}
	fmt.Printf("%s, %s Hz, %s and %s, %d rounds: medians (least … most)\n\n", what, rate, *short, *long, *rounds)
	printTable(recorders)
	return nil
}

// commands returns the commands that a recording of this length takes.
type commands func(d time.Duration) [][]string

// A recorder is measured by what it costs without names, and with them.
type recorder struct {
	name         string
	plain, named commands
	costs        []cost
}

// contenders returns the recorders. They write to a file.
func contenders(file, rate string) ([]*recorder, error) {
	own := func(program string, flags ...string) commands {
		return func(d time.Duration) [][]string {
			args := []string{program, "record", "-a", "-F", rate, "-d", d.String(), "-o", file}
			return [][]string{append(args, flags...)}
		}
	}
	perfs := func(report bool) commands {
		return func(d time.Duration) [][]string {
			all := [][]string{{*perf, "record", "-q", "-a", "-e", "cpu-clock", "-g", "--buildid-mmap", "-F", rate, "-o", file, "--", "sleep", fmt.Sprint(d.Seconds())}}
			if report {
				all = append(all, []string{*perf, "report", "-i", file, "--stdio", "-g", "none"})
			}
			return all
		}
	}
	var all []*recorder
	for _, backend := range []string{"bpf", "perf"} {
		name := "record -a --backend " + backend
		all = append(all, &recorder{name: name, plain: own(*hallmark, "--backend", backend, "--no-symbols"), named: own(*hallmark, "--backend", backend)})
		if *other != "" {
			all = append(all, &recorder{name: name + " (other)", plain: own(*other, "--backend", backend, "--no-symbols"), named: own(*other, "--backend", backend)})
		}
	}
	all = append(all, &recorder{name: "perf record -a -g --buildid-mmap, with names: and perf report", plain: perfs(false), named: perfs(true)})
	if *otel != "" {
		address, err := newReceiver()
		if err != nil {
			return nil, err
		}
		profiler := func(d time.Duration) [][]string {
			return [][]string{{"sh", "-c", fmt.Sprintf("timeout -s INT %g %s -collection-agent %s -disable-tls -no-kernel-version-check -samples-per-second %s; exit 0", d.Seconds(), *otel, address, rate)}}
		}
		all = append(all, &recorder{name: "OpenTelemetry profiler", plain: profiler, named: profiler})
	}
	return slices.DeleteFunc(all, func(r *recorder) bool { return !strings.Contains(r.name, *only) }), nil
}

// cost is what recordings cost in one round.
type cost struct {
	short, long, named spent // without names; with them, of the longer one
}

// spent is what commands used.
type spent struct {
	cpu    time.Duration
	waits  int64 // times that they gave the CPU up by themselves
	faults int64
	peak   int64 // KiB, of the largest
}

// turn measures a recorder once.
func (r *recorder) turn() (err error) {
	var c cost
	if c.short, err = use(r.plain, *short); err != nil {
		return err
	}
	if c.long, err = use(r.plain, *long); err != nil {
		return err
	}
	if c.named, err = use(r.named, *long); err != nil {
		return err
	}
	r.costs = append(r.costs, c)
	return nil
}

// attempts is how often a recording is tried: perf 6.1 aborts when a process with a build ID
// of more than 20 bytes is among those recorded.
const attempts = 5

// use runs commands and adds up what they used.
func use(of commands, d time.Duration) (sum spent, err error) {
	for range attempts {
		if sum, err = try(of(d)); err == nil {
			return sum, nil
		}
		fmt.Fprintln(os.Stderr, "cost: once more:", err)
	}
	return sum, err
}

func try(all [][]string) (sum spent, err error) {
	for _, args := range all {
		cmd := exec.Command(args[0], args[1:]...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return spent{}, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out[max(0, len(out)-300):])
		}
		rusage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		sum.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		sum.waits += rusage.Nvcsw
		sum.faults += rusage.Minflt
		sum.peak = max(sum.peak, rusage.Maxrss)
	}
	return sum, nil
}

// startLoad runs two loads over and over, with caches of their own, until stop is called.
func startLoad(dir string) (stop func(), err error) {
	var groups []int
	stop = func() {
		for _, pgid := range groups {
			_ = syscall.Kill(-pgid, syscall.SIGKILL)
			_, _ = syscall.Wait4(pgid, nil, 0, nil)
		}
	}
	for i := range 2 {
		cmd := exec.Command("sh", "-c", "while :; do "+*load+" >/dev/null 2>&1; done")
		cmd.Env = append(os.Environ(), fmt.Sprintf("GOCACHE=%s%d", dir, i))
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			stop()
			return nil, err
		}
		groups = append(groups, cmd.Process.Pid)
	}
	return stop, nil
}

// Parts of what a recording costs.
func (c cost) perSecond(of func(spent) float64) float64 {
	return (of(c.long) - of(c.short)) / (*long - *short).Seconds()
}

func (c cost) start(of func(spent) float64) float64 {
	return of(c.short) - c.perSecond(of)*short.Seconds()
}

func (s spent) ms() float64      { return float64(s.cpu) / 1e6 }
func (s spent) wakeups() float64 { return float64(s.waits) }

func printTable(recorders []*recorder) {
	fmt.Println("| recorder | start, CPU ms | a second, CPU ms | end (names), CPU ms | all with names, CPU ms | wakeups a second | page faults of the shorter | peak MiB, without and with names |")
	fmt.Println("|---|--:|--:|--:|--:|--:|--:|--:|")
	for _, r := range recorders {
		of := func(f func(cost) float64) []float64 {
			var all []float64
			for _, c := range r.costs {
				all = append(all, f(c))
			}
			slices.Sort(all)
			return all
		}
		fmt.Printf("| %s | %s | %s | %s | %s | %s | %.0f | %.0f, %.0f |\n", r.name,
			spread("%.0f", of(func(c cost) float64 { return c.start(spent.ms) })),
			spread("%.1f", of(func(c cost) float64 { return c.perSecond(spent.ms) })),
			spread("%.0f", of(func(c cost) float64 { return c.named.ms() - c.long.ms() })),
			spread("%.0f", of(func(c cost) float64 { return c.named.ms() })),
			spread("%.0f", of(func(c cost) float64 { return c.perSecond(spent.wakeups) })),
			middle(of(func(c cost) float64 { return float64(c.short.faults) })),
			middle(of(func(c cost) float64 { return float64(c.long.peak) }))/1024,
			middle(of(func(c cost) float64 { return float64(c.named.peak) }))/1024)
	}
	fmt.Println()
}

func middle(sorted []float64) float64 { return sorted[len(sorted)/2] }

// spread writes the value in the middle, and those at the ends.
func spread(format string, sorted []float64) string {
	return fmt.Sprintf(format+" ("+format+" … "+format+")", middle(sorted), sorted[0], sorted[len(sorted)-1])
}
