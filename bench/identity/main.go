// Command identity measures what it costs to know the file of every frame: stacks
// of addresses, stacks with build IDs by the kernel's own means, and ours, taken at
// the same time from the same load. The costs are those that the kernel accounts
// to the programs (BPF run statistics).
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"hallmark/internal/bpf"
)

var (
	hz      = flag.Int("F", 997, "samples a second and CPU")
	seconds = flag.Int("d", 20, "seconds of the measurement")
	cpus    = flag.Int("cpus", 2, "CPUs to sample")
	load    = flag.String("load", "while :; do go build -a -o /dev/null cmd/gofmt; done", "shell command that keeps the machine busy")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "identity:", err)
		os.Exit(1)
	}
}

func run() error {
	costs, err := bpf.CountCosts()
	if err != nil {
		return err
	}
	defer costs.Close()
	c, err := bpf.NewComparison()
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := bpf.NewSampler(bpf.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	stop, err := start(*load)
	if err != nil {
		return err
	}
	defer stop()
	frames, err := sample(c, s)
	if err != nil {
		return err
	}
	if err := printCosts(c, s); err != nil {
		return err
	}
	return printShares(c, s, frames)
}

// start keeps the machine busy until stop is called.
func start(load string) (stop func(), err error) {
	cmd := exec.Command("sh", "-c", load)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}, nil
}

// sample lets all of them sample, and counts the user frames of the sampler.
func sample(c *bpf.Comparison, s *bpf.Sampler) (*frames, error) {
	attaches := []func(fd int) error{
		func(fd int) error { return c.Attach(bpf.Addresses, fd) },
		func(fd int) error { return c.Attach(bpf.Stackmap, fd) },
		func(fd int) error { return c.Attach(bpf.Offsets, fd) },
		s.Attach,
	}
	for i, attach := range attaches {
		for cpu := range *cpus {
			// A little apart, so that none always runs in the wake of another one.
			fd, err := open(cpu, *hz+2*i)
			if err != nil {
				return nil, err
			}
			defer unix.Close(fd)
			if err := errors.Join(attach(fd), unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0)); err != nil {
				return nil, err
			}
		}
	}
	f := newFrames()
	for end := time.Now().Add(time.Duration(*seconds) * time.Second); time.Now().Before(end); {
		time.Sleep(time.Second / 4)
		if err := f.take(s); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func open(cpu, hz int) (int, error) {
	attr := unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_SOFTWARE,
		Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample: uint64(hz),
		Bits:   unix.PerfBitDisabled | unix.PerfBitFreq | unix.PerfBitExcludeIdle,
	}
	return unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
}
