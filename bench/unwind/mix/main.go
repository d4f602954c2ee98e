// Mix measures what share of user stacks each recorder brings to their end: to the entry of
// the program or thread. Everything on the machine is recorded while load.sh runs, from
// the first moment on, by each recorder in turn.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

var (
	hallmark = flag.String("hallmark", "hallmark", "the hallmark to measure")
	rate     = flag.Int("F", 199, "samples a second and CPU")
	seconds  = flag.Int("d", 10, "seconds of each recording")
	rounds   = flag.Int("n", 1, "rounds, in which every recorder has its turn")
	only     = flag.String("only", "", "leave out the recorders whose names do not have this in them")
	worst    = flag.Int("worst", 0, "show so many of the files whose frames are most often the last of incomplete stacks")
	load     = flag.String("load", "", "shell command instead of load.sh")
	otel     = flag.String("otel", "", "the OpenTelemetry profiler (ebpf-profiler), if it is to be measured too")
	keep     = flag.String("keep", "", "directory for recordings, which are kept")
)

// short is the life of the processes that are counted apart.
const short = 10 * time.Millisecond

// otelStart is how long the OpenTelemetry profiler takes to begin, on a busy machine.
const otelStart = 20 * time.Second

// A recorder records everything into a file, and reads it.
type recorder struct {
	name    string
	command func(file string) []string
	read    func(file string) ([]stack, error)
	begin   func(file string) error // what is to be done before the command, if anything
	early   time.Duration           // how long the command is started before the load, for those that take long to begin
	result
}

// result is what came of all rounds.
type result struct {
	rounds       int
	all, brief   share
	told         share // by what the recorder itself says
	cpu          time.Duration
	peak         int64
	frames, size int64
	bpf          bpfTime
	ends         map[string]int
	disputes     map[string]int // outermost frames about whose being an entry we and the recorder differ
	ended        int            // samples of processes that ended
}

// share counts stacks, and those that reach an entry.
type share struct{ n, complete int }

func (s *share) add(complete bool) {
	s.n++
	if complete {
		s.complete++
	}
}

func (s share) String() string {
	if s.n == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f (of %d)", 100*float64(s.complete)/float64(s.n), s.n)
}

func main() {
	log.SetFlags(0)
	flag.Parse()
	if err := run(); err != nil {
		log.Fatal("mix: ", err)
	}
}

func run() error {
	dir := *keep
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "bench-mix"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	places = append(places, dir)
	recorders, err := contenders()
	if err != nil {
		return err
	}
	for range *rounds {
		for _, r := range recorders {
			r.attempt(dir)
		}
	}
	report(recorders)
	return nil
}

func contenders() ([]*recorder, error) {
	f, d := strconv.Itoa(*rate), strconv.Itoa(*seconds)
	own := func(flags ...string) func(string) []string {
		return func(file string) []string {
			return append([]string{*hallmark, "record", "-a", "-F", f, "-d", d + "s", "-o", file}, flags...)
		}
	}
	perf := func(flags ...string) func(string) []string {
		return func(file string) []string {
			args := append([]string{"perf", "record", "-q", "-a", "-N", "-m", "8M", "-e", "cpu-clock", "-F", f, "-o", file}, flags...)
			return append(args, "--", "sleep", d)
		}
	}
	all := []*recorder{
		{name: "hallmark --backend bpf", command: own("--backend", "bpf"), read: readPprof},
		{name: "hallmark --backend bpf --call-graph fp", command: own("--backend", "bpf", "--call-graph", "fp"), read: readPprof},
		{name: "perf record -g", command: perf("-g"), read: readPerf},
		{name: "perf record --call-graph dwarf", command: perf("--call-graph", "dwarf"), read: readPerf},
		{name: "perf record --call-graph dwarf,65528", command: perf("--call-graph", "dwarf,65528"), read: readPerf},
	}
	if *otel != "" {
		r, err := newReceiver()
		if err != nil {
			return nil, err
		}
		all = append(all, &recorder{name: "OpenTelemetry profiler", early: otelStart, read: readOTLP, begin: r.to, command: func(string) []string {
			return []string{"sh", "-c", fmt.Sprintf("timeout -s INT %d %s -collection-agent %s -disable-tls -no-kernel-version-check -samples-per-second %s -reporter-interval 1s -send-error-frames; exit 0", *seconds+int(otelStart.Seconds()), *otel, r.address, f)}
		}})
	}
	var list []*recorder
	for _, r := range all {
		if strings.Contains(r.name, *only) {
			r.ends, r.disputes = map[string]int{}, map[string]int{}
			list = append(list, r)
		}
	}
	return list, nil
}

// attempts is how often a recording is tried: perf 6.1 fails now and then on a busy machine.
const attempts = 3

func (r *recorder) attempt(dir string) {
	for range attempts {
		err := r.round(dir)
		if err == nil {
			r.rounds++
			return
		}
		log.Printf("mix: %s: %v", r.name, err)
	}
}

// round records once, under the load, while another perf notes when processes begin and end.
func (r *recorder) round(dir string) error {
	file := filepath.Join(dir, strings.ReplaceAll(r.name, " ", "_"))
	lives := filepath.Join(dir, "lives")
	args := r.command(file)
	cmd := exec.Command(args[0], args[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	watched := watchBPF()
	if r.early > 0 {
		if err := cmd.Start(); err != nil {
			return err
		}
		time.Sleep(r.early)
	}
	if r.begin != nil {
		if err := r.begin(file); err != nil {
			return err
		}
	}
	tasks := exec.Command("perf", "record", "-q", "-a", "-N", "-e", "dummy:u", "-o", lives, "--", "sleep", strconv.Itoa(*seconds+1))
	if err := tasks.Start(); err != nil {
		return err
	}
	root, stop, err := startLoad(dir)
	if err != nil {
		return err
	}
	defer stop()
	if r.early == 0 {
		if err := cmd.Start(); err != nil {
			return err
		}
	}
	err = cmd.Wait()
	bpf := watched()
	stop()
	if wait := tasks.Wait(); err == nil {
		err = wait
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, stderr.Bytes())
	}
	r.used(cmd.ProcessState, file)
	r.bpf.total += bpf.total
	r.bpf.runs += bpf.runs
	return r.judge(file, lives, root)
}

// used adds what a recorder took.
func (r *result) used(p *os.ProcessState, file string) {
	r.cpu += p.UserTime() + p.SystemTime()
	r.peak = max(r.peak, p.SysUsage().(*syscall.Rusage).Maxrss)
	if st, err := os.Stat(file); err == nil {
		r.size += st.Size()
	}
}

// judge counts the stacks of a recording that are of the load: the process root and those that
// descend from it.
func (r *recorder) judge(file, tasks string, root int) error {
	h, err := readHistory(tasks)
	if err != nil {
		return err
	}
	stacks, err := r.read(file)
	if err != nil {
		return err
	}
	for _, s := range stacks {
		if h.descends(s.pid, root) {
			r.count(s, h.lives)
		}
	}
	return nil
}

func (r *result) count(s stack, lives map[int]time.Duration) {
	complete := s.complete()
	for range s.count {
		r.all.add(complete)
		if life, ended := lives[s.pid]; ended {
			r.ended++
			if life < short {
				r.brief.add(complete)
			}
		}
		if s.end != "" {
			r.told.add(s.end == "complete")
		}
	}
	r.frames += int64(s.count * s.depth)
	if s.end != "" && complete != (s.end == "complete") {
		r.disputes[fmt.Sprintf("%s of %s, said to be %s", s.symbol, s.last(), s.end)] += s.count
	}
	if !complete {
		r.ends[s.last()+" "+s.end] += s.count
	}
}

// startLoad keeps the machine busy until stop is called.
func startLoad(dir string) (pid int, stop func(), err error) {
	text := *load
	if text == "" {
		text = fmt.Sprintf("exec sh unwind/mix/load.sh %d %s", *seconds+2, dir)
	}
	cmd := exec.Command("sh", "-c", text)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	stopped := false
	return cmd.Process.Pid, func() {
		if !stopped {
			stopped = true
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			_ = cmd.Wait()
		}
	}, nil
}
