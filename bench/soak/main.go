// Command soak records a machine that starts and ends processes all the time, for
// minutes, and watches the recorder: its memory, its descriptors and threads. In the
// end the samples of the profile and those reported as lost are compared with what the
// kernel's own clock event says there was to sample.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"hallmark/bench/internal/trial"
	"hallmark/profile"
)

var (
	hallmark = flag.String("hallmark", "hallmark", "the hallmark to watch")
	backend  = flag.String("backend", "bpf", "how it records")
	hz       = flag.Int("F", 999, "samples a second and CPU")
	duration = flag.Duration("d", 10*time.Minute, "how long")
	every    = flag.Duration("every", 10*time.Second, "between two looks at the recorder")
)

// churn are shell commands that run over and over: programs that live a millisecond,
// builds, and libraries that are loaded and unloaded.
var churn = []string{
	"while :; do /bin/true; sh -c :; done",
	"while :; do go build -a -o /dev/null cmd/gofmt; done",
	"while :; do python3 -c 'import ssl, sqlite3, ctypes, xml.etree.ElementTree'; done",
}

func main() { trial.Main("soak", run) }

func run(dir string) error {
	stop, err := start(churn)
	if err != nil {
		return err
	}
	defer stop()
	out := filepath.Join(dir, "out.pb.gz")
	cmd := exec.Command(*hallmark, "record", "-a", "-F", strconv.Itoa(*hz), "-d", duration.String(), "--backend", *backend, "--no-symbols", "-o", out)
	var told strings.Builder
	cmd.Stderr = &told
	if err := cmd.Start(); err != nil {
		return err
	}
	time.Sleep(time.Second) // until it records
	clock, err := startClock()
	if err != nil {
		return err
	}
	defer clock.close()
	watch(cmd)
	busy, err := clock.busy()
	if err != nil {
		return err
	}
	fmt.Println(told.String())
	return compare(out, busy)
}

// start runs shell commands until stop is called.
func start(commands []string) (stop func(), err error) {
	var groups []int
	stop = func() {
		for _, pgid := range groups {
			_ = syscall.Kill(-pgid, syscall.SIGKILL)
		}
	}
	for _, c := range commands {
		cmd := exec.Command("sh", "-c", c)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			stop()
			return nil, err
		}
		groups = append(groups, cmd.Process.Pid)
	}
	return stop, nil
}

// watch prints what the recorder has until it ends.
func watch(cmd *exec.Cmd) {
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	fmt.Println("| s | resident KiB | of these not of files KiB | descriptors | BPF maps KiB | threads |\n|--:|--:|--:|--:|--:|--:|")
	tick := time.NewTicker(*every)
	defer tick.Stop()
	for began := time.Now(); ; {
		select {
		case err := <-done:
			if err != nil {
				fmt.Println("the recorder failed:", err)
			}
			return
		case <-tick.C:
			fmt.Printf("| %.0f | %s |\n", time.Since(began).Seconds(), look(cmd.Process.Pid))
		}
	}
}

// look returns what a process has now, as cells of a table.
func look(pid int) string {
	dir := fmt.Sprintf("/proc/%d/", pid)
	status := fields(dir + "status")
	entries, _ := os.ReadDir(dir + "fdinfo")
	maps := 0
	for _, e := range entries {
		locked, _ := strconv.Atoi(fields(dir + "fdinfo/" + e.Name())["memlock"])
		maps += locked
	}
	return fmt.Sprintf("%s | %s | %d | %d | %s", status["VmRSS"], status["RssAnon"], len(entries), maps>>10, status["Threads"])
}

// fields reads a file of lines "name: value unit" of /proc.
func fields(name string) map[string]string {
	f, err := os.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	values := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, rest, ok := strings.Cut(lines.Text(), ":"); ok && len(strings.Fields(rest)) > 0 {
			values[name] = strings.Fields(rest)[0]
		}
	}
	return values
}

// clock counts how long the CPUs run, and how much of it they are idle.
type clock struct {
	events []int
	idle   time.Duration
}

func startClock() (*clock, error) {
	c := &clock{idle: idle()}
	attr := unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_SOFTWARE,
		Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
	}
	for cpu := 0; ; cpu++ {
		fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV)) && cpu > 0 {
			return c, nil
		}
		if err != nil {
			return nil, fmt.Errorf("opening the clock event: %w", err)
		}
		c.events = append(c.events, fd)
	}
}

// busy returns how many CPUs were busy since the start.
func (c *clock) busy() (float64, error) {
	var sum time.Duration
	for _, fd := range c.events {
		var count int64
		if _, err := unix.Read(fd, unsafe.Slice((*byte)(unsafe.Pointer(&count)), 8)); err != nil {
			return 0, fmt.Errorf("reading the clock event: %w", err)
		}
		sum += time.Duration(count)
	}
	return (1 - float64(idle()-c.idle)/float64(sum)) * float64(len(c.events)), nil
}

func (c *clock) close() {
	for _, fd := range c.events {
		unix.Close(fd)
	}
}

// idle returns how long all CPUs were idle or waited for a disk: /proc/stat, in ticks
// of USER_HZ.
func idle() time.Duration {
	b, _ := os.ReadFile("/proc/stat")
	cpu := strings.Fields(string(b))
	if len(cpu) < 6 {
		return 0
	}
	idle, _ := strconv.Atoi(cpu[4])
	wait, _ := strconv.Atoi(cpu[5])
	return time.Duration(idle+wait) * time.Second / 100
}

// compare prints the samples of a profile beside those that were to be taken.
func compare(file string, busy float64) error {
	p, err := profile.ReadFile(file, profile.ReadOptions{})
	if err != nil {
		return err
	}
	var samples int64
	for _, s := range p.Sample {
		samples += s.Value[0]
	}
	due := time.Duration(p.DurationNanos).Seconds() * busy * float64(*hz)
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	fmt.Printf("%d samples in %v; %.0f were due on %.3f busy CPUs: %.2f %%; profile of %d KiB; %q\n",
		samples, time.Duration(p.DurationNanos).Round(time.Millisecond), due, busy, 100*float64(samples)/due, info.Size()>>10, p.Comments)
	return nil
}
