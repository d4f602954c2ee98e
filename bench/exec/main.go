// Command exec starts programs that live for about a millisecond as fast as the machine
// can, alone and while something reports what is executed: hallmark, perf, bpftrace, execsnoop.
// It prints what each costs the programs, what it takes itself and in BPF programs, and how many
// it saw; of hallmark also whether each identity is right.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"hallmark/bench/internal/trial"
	"hallmark/buildid"
)

var (
	hallmark = flag.String("hallmark", "hallmark", "the hallmark to measure")
	before   = flag.String("before", "", "another hallmark, to be measured in turn with it")
	count    = flag.Int("n", 4000, "processes in a round")
	atOnce   = flag.Int("c", 4, "processes at a time")
	rounds   = trial.Rounds("rounds", 5, "rounds")
	only     = flag.String("only", "", "measure only contenders with this in their name")
	without  = flag.String("without", "", "measure no contenders with this in their name")
)

func main() { trial.Main("exec", run) }

// watcher is something that reports what is executed, into a file.
type watcher struct {
	name string
	args []string // after which comes nothing; "" stands for the file of its own output
	seen func(l *load, out string) (string, error)
}

// private gives a tool the kernel's trace files, and nobody else.
func private(command string) []string {
	return []string{"unshare", "-m", "sh", "-c", "mount -t tracefs none /sys/kernel/tracing 2>/dev/null; exec " + command}
}

func watchers(dir string) []watcher {
	data := filepath.Join(dir, "perf.data")
	all := []watcher{{"alone", nil, nil}}
	if *before != "" {
		all = append(all,
			watcher{"hallmark exec, before", []string{*before, "exec", "--json"}, check},
			watcher{"hallmark exec --exit, before", []string{*before, "exec", "--exit", "--json"}, check})
	}
	return append(all, []watcher{
		{"hallmark exec", []string{*hallmark, "exec", "--json"}, check},
		{"hallmark exec --exit", []string{*hallmark, "exec", "--exit", "--json"}, check},
		{"hallmark exec --backend perf", []string{*hallmark, "exec", "--backend", "perf", "--json"}, check},
		{"perf record -B -e sched:sched_process_exec", private("perf record -q -B -a -e sched:sched_process_exec -o " + data), func(l *load, _ string) (string, error) {
			text, err := output(private("perf script -i " + data))
			return lines(l, text), err
		}},
		{"perf trace -e sched:*exec", private("perf trace -a -e 'sched:sched_process_exec'"), countLines},
		{"execsnoop of libbpf-tools", private("execsnoop"), countLines},
		{"bpftrace, exec", private(`bpftrace -e 'tracepoint:sched:sched_process_exec { printf("%d %s\n", pid, str(args->filename)); }'`), countLines},
		{"bpftrace, exec and exit", private(`bpftrace -e 'tracepoint:sched:sched_process_exec { printf("%d %s\n", pid, str(args->filename)); } tracepoint:sched:sched_process_exit { printf("end of %d\n", pid); }'`), countLines},
	}...)
}

// output runs a command for what it prints.
func output(args []string) ([]byte, error) {
	text, err := exec.Command(args[0], args[1:]...).Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("%v: %w\n%s", args, err, failed.Stderr)
	}
	return text, err
}

// result is what a round took.
type result struct {
	wall, cpu float64 // seconds: of the load, and its CPU time
	own       cost
	seen      string
}

// cost is the CPU time of a watcher, seconds.
type cost struct{ process, programs float64 }

// load are the programs that are started.
type load struct {
	dir, starter string
	programs     []string
	ids          []string
	started      map[int][]string // identities of what processes of a number executed, in their order
}

func run(dir string) error {
	l, err := build(dir)
	if err != nil {
		return err
	}
	statistics, err := countRuns()
	if err != nil {
		return err
	}
	defer statistics.Close()
	all := slices.DeleteFunc(watchers(dir), func(w watcher) bool {
		isLeftOut := *without != "" && strings.Contains(w.name, *without)
		return w.args != nil && (isLeftOut || !strings.Contains(w.name, *only))
	})
	results := make([][]result, len(all))
	for range *rounds {
		for i, w := range all {
			r, err := l.measure(w)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			results[i] = append(results[i], r)
		}
	}
	print(all, results)
	return nil
}

func build(dir string) (*load, error) {
	l := &load{dir: dir, starter: filepath.Join(dir, "starter")}
	for _, args := range [][]string{
		{"-O2", "-o", l.starter, "exec/load/starter.c"},
		{"-O2", "-Wl,--build-id", "-o", filepath.Join(dir, "life"), "exec/load/life.c"},
		{"-O2", "-Wl,--build-id", "-static", "-o", filepath.Join(dir, "static-life"), "exec/load/life.c"},
	} {
		if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("gcc: %w\n%s", err, out)
		}
	}
	for _, name := range []string{"life", "static-life"} {
		program := filepath.Join(dir, name)
		info, err := buildid.ReadFile(program)
		if err != nil {
			return nil, err
		}
		l.programs, l.ids = append(l.programs, program), append(l.ids, info.ID.String())
	}
	return l, nil
}

// measure runs the load once while w watches.
func (l *load) measure(w watcher) (result, error) {
	var r result
	out := filepath.Join(l.dir, "out")
	stop := func() error { return nil }
	if w.args != nil {
		var err error
		if stop, err = start(w.args, out, &r.own); err != nil {
			return r, err
		}
	}
	args := append([]string{filepath.Join(l.dir, "list"), strconv.Itoa(*count), strconv.Itoa(*atOnce)}, l.programs...)
	text, err := exec.Command(l.starter, args...).Output()
	if err = errors.Join(err, stop()); err != nil {
		return r, err
	}
	if _, err := fmt.Sscan(string(text), &r.wall, &r.cpu); err != nil {
		return r, err
	}
	if err := l.readList(args[0]); err != nil || w.seen == nil {
		return r, err
	}
	r.seen, err = w.seen(l, out)
	return r, err
}

// start starts a watcher. The returned function ends it and takes its CPU time since now.
func start(args []string, out string, own *cost) (func() error, error) {
	f, err := os.Create(out)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(args[0], args[1:]...)
	var complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = f, &complaints
	if strings.Contains(strings.Join(args, " "), "perf trace") {
		cmd.Stderr = f // where it writes what it traces
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	time.Sleep(3 * time.Second) // until it watches
	before := costOf(cmd.Process.Pid)
	return func() error {
		time.Sleep(500 * time.Millisecond) // what is still on its way
		after := costOf(cmd.Process.Pid)
		*own = cost{after.process - before.process, after.programs - before.programs}
		cmd.Process.Signal(os.Interrupt)
		err := cmd.Wait()
		var status *exec.ExitError
		if errors.As(err, &status) && status.Sys().(syscall.WaitStatus).Signal() == syscall.SIGINT {
			err = nil
		}
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, complaints.String())
		}
		return errors.Join(err, f.Close())
	}, nil
}

// costOf returns what a process has run by now, in user space and the kernel, and what its BPF
// programs have. Nobody else pays for these.
func costOf(pid int) cost {
	var c cost
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, name := range threads {
		c.process += number(name, 0) / 1e9 // ns on a CPU: Documentation/scheduler/sched-stats.rst
	}
	descriptors, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	for _, name := range descriptors {
		c.programs += field(name, "run_time_ns:") / 1e9
	}
	return c
}

// number returns one of the numbers in a file, 0 when it is gone.
func number(name string, i int) float64 {
	b, err := os.ReadFile(name)
	fields := strings.Fields(string(b))
	if err != nil || i >= len(fields) {
		return 0
	}
	n, _ := strconv.ParseFloat(fields[i], 64)
	return n
}

// field returns the number that follows a word in a file, 0 when it is not there.
func field(name, word string) float64 {
	b, _ := os.ReadFile(name)
	_, rest, ok := strings.Cut(string(b), word)
	if !ok {
		return 0
	}
	n, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	return n
}

// countRuns has the kernel count what BPF programs run, until what is returned is closed.
func countRuns() (io.Closer, error) {
	kind := uint32(unix.BPF_STATS_RUN_TIME)
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_ENABLE_STATS, uintptr(unsafe.Pointer(&kind)), unsafe.Sizeof(kind))
	if errno != 0 {
		return nil, fmt.Errorf("counting the runs of BPF programs: %w", errno)
	}
	return os.NewFile(fd, "statistics"), nil
}

func (l *load) readList(name string) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	l.started = map[int][]string{}
	for line := range strings.Lines(string(b)) {
		var pid, program int
		if _, err := fmt.Sscan(line, &pid, &program); err != nil {
			return err
		}
		l.started[pid] = append(l.started[pid], l.ids[program])
	}
	return nil
}

// event is what is asked of hallmark.
type event struct {
	Event   string
	PID     int
	Program struct {
		ID   string `json:"build_id"`
		Path string `json:"binary"`
	}
}

// check returns how many processes were reported, and how many with the right identity.
func check(l *load, out string) (string, error) {
	f, err := os.Open(out)
	if err != nil {
		return "", err
	}
	defer f.Close()
	right, without, wrong, told := 0, 0, 0, map[int]int{}
	for in := json.NewDecoder(bufio.NewReader(f)); in.More(); {
		var e event
		if err := in.Decode(&e); err != nil {
			return "", err
		}
		want, n := l.started[e.PID], told[e.PID]
		if e.Event != "exec" || n >= len(want) || filepath.Dir(e.Program.Path) != l.dir || strings.HasSuffix(e.Program.Path, "starter") {
			continue
		}
		told[e.PID]++
		switch e.Program.ID {
		case want[n]:
			right++
		case "":
			without++
		default:
			wrong++
		}
	}
	return fmt.Sprintf("%d, %d without identity, %d wrong", right, without, wrong), nil
}

func countLines(l *load, out string) (string, error) {
	b, err := os.ReadFile(out)
	return lines(l, b), err
}

// lines counts those that name one of the programs.
func lines(l *load, text []byte) string {
	n := 0
	for line := range bytes.Lines(text) {
		for _, program := range l.programs {
			if bytes.Contains(line, []byte(program)) {
				n++
				break
			}
		}
	}
	return strconv.Itoa(n)
}

func print(all []watcher, results [][]result) {
	fmt.Printf("| %d processes, %d at a time | CPU µs a process | × alone | watcher's CPU µs a process | its BPF programs' | both, of the CPU time alone | seen |\n|---|--:|--:|--:|--:|--:|--:|\n", *count, *atOnce)
	perProcess := 1e6 / float64(*count)
	for i, w := range all {
		var cpus, ratios, processes, programs, shares []float64
		for n, r := range results[i] {
			alone := results[0][n].cpu
			cpus, ratios = append(cpus, r.cpu*perProcess), append(ratios, r.cpu/alone)
			processes, programs = append(processes, r.own.process*perProcess), append(programs, r.own.programs*perProcess)
			shares = append(shares, 100*(r.own.process+r.own.programs)/alone)
		}
		fmt.Printf("| %s | %.0f | %.3f | %.1f | %.1f | %.2f %% | %s |\n", w.name, median(cpus), median(ratios), median(processes), median(programs), median(shares), results[i][len(results[i])-1].seen)
	}
}

func median[T cmp.Ordered](values []T) T {
	slices.Sort(values)
	return values[len(values)/2]
}
