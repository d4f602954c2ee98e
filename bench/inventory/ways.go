package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/internal/bpf"
	"hallmark/inventory"
)

// The ways, in the order of the table.
const (
	load      = "iterator: loading the program"
	first     = "iterator: mappings, the first time"
	again     = "iterator: mappings, again"
	whole     = "iterator: all of it, with identities"
	queries   = "queries (`PROCMAP_QUERY`)"
	text      = "text, by `procmap`"
	walkOnce  = "walk over the text, each file read once"
	walkEach  = "walk over the text, files read for each process"
	synthesis = "perf's synthesis (`--synth=all` less `--synth=no`)"
	withIDs   = "the same with build IDs (`--buildid-mmap`)"
	perfTrue  = "the process `perf record -a -- true`"
	psProcess = "the process `hallmark ps --json`"
)

var ways = []string{load, first, again, whole, queries, text, walkOnce, walkEach, synthesis, withIDs, perfTrue, psProcess}

// scene is what runs, and what looks at it.
type scene struct {
	hallmark string // the program
	data     string // file for perf to write
}

// iterate loads the BPF program, and runs it twice. It reads no identities, so the whole
// inventory is taken as well.
func (s *scene) iterate(t taken) error {
	var list *bpf.List
	var err error
	t[load] = measure(func() { list, err = bpf.NewList() })
	if err != nil {
		return err
	}
	defer list.Close()
	for _, way := range []string{first, again} {
		t[way] = measure(func() { _, err = list.Take() })
		if err != nil {
			return err
		}
	}
	t[whole] = measure(func() { _, err = inventory.Take(inventory.Options{Source: inventory.Iterator}) })
	return err
}

// ask asks every process in /proc, in both ways.
func (s *scene) ask(t taken) error {
	for way, source := range map[string]inventory.Source{queries: inventory.Query, text: inventory.Text} {
		var err error
		t[way] = measure(func() { _, err = inventory.Take(inventory.Options{Source: source}) })
		if err != nil {
			return err
		}
	}
	return nil
}

// commands runs perf with and without its synthesis, and hallmark. Symbols of the kernel
// and what perf does when it ends are left out of its synthesis.
func (s *scene) commands(t taken) error {
	perf := func(args ...string) (cost, error) {
		return process(append(append([]string{"perf", "record", "-q", "-a", "-o", s.data}, args...), "--", "true")...)
	}
	none, err := perf("-B", "-N", "--synth=no")
	if err != nil {
		return err
	}
	all, err := perf("-B", "-N", "--synth=all")
	if err != nil {
		return err
	}
	ids, err := perf("-B", "-N", "--synth=all", "--buildid-mmap")
	if err != nil {
		return err
	}
	t[synthesis], t[withIDs] = all.minus(none), ids.minus(none)
	if t[perfTrue], err = perf(); err != nil {
		return err
	}
	t[psProcess], err = process(s.hallmark, "ps", "--json", "--libs")
	return err
}

// process runs a command, and returns what it took with what it started.
func process(args ...string) (cost, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout = io.Discard
	start := time.Now()
	if err := cmd.Run(); err != nil {
		return cost{}, fmt.Errorf("%v: %w", args, err)
	}
	used := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return cost{time.Duration(used.Utime.Nano() + used.Stime.Nano()), time.Since(start)}, nil
}

// measure returns what f takes in this process.
func measure(f func()) cost {
	before, start := cpuTime(), time.Now()
	f()
	return cost{cpuTime() - before, time.Since(start)}
}

// cpuTime returns the CPU time of this process.
func cpuTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		panic(err) // the clock exists everywhere
	}
	return time.Duration(ts.Nano())
}

// sleeper is a program that becomes many processes, which sleep until its input ends.
const sleeper = `
import importlib, os, signal, sys
for name in "ssl sqlite3 ctypes decimal lzma bz2 curses readline hashlib json socket select zlib array math cmath datetime struct pickle random unicodedata mmap multiprocessing asyncio xml.parsers.expat".split():
    try:
        importlib.import_module(name)
    except ImportError:
        pass
children = []
for i in range(int(sys.argv[1])):
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    children.append(pid)
print("ready", flush=True)
sys.stdin.read()
for pid in children:
    os.kill(pid, signal.SIGKILL)
for pid in children:
    os.waitpid(pid, 0)
`

// startSleepers starts processes, and returns what ends them.
func startSleepers(n int) (stop func(), err error) {
	cmd := exec.Command("python3", "-c", sleeper, fmt.Sprint(n))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		in.Close()
		_ = cmd.Wait()
	}
	if _, err := io.ReadFull(out, make([]byte, len("ready"))); err != nil {
		stop()
		return nil, fmt.Errorf("starting %d processes: %w", n, err)
	}
	return stop, nil
}
