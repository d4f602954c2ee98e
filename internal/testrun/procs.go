package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// procs starts programs and sees to it that none outlives the run, nor any that they start:
// this process adopts all orphans, and the kernel ends the programs if it is killed.
type procs struct {
	starts chan func() // to one thread, because the kernel ends what a thread started with it
	mu     sync.Mutex
	own    map[int]bool // that somebody waits for
}

func newProcs() *procs {
	p := &procs{starts: make(chan func()), own: map[int]bool{}}
	// Without it, orphans are the concern of whoever adopts them.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	go func() {
		runtime.LockOSThread()
		for start := range p.starts {
			start()
		}
	}()
	go p.reap()
	return p
}

// reap waits for adopted processes, so that who looks for one sees that it has ended.
func (p *procs) reap() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	for range ended {
		p.mu.Lock()
		for _, d := range processes() {
			if d.parent == os.Getpid() && d.state == "Z" && !p.own[d.pid] {
				_, _ = syscall.Wait4(d.pid, nil, syscall.WNOHANG, nil)
			}
		}
		p.mu.Unlock()
	}
}

// command returns a command that is killed with its process group when ctx ends.
func (p *procs) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

func (p *procs) start(cmd *exec.Cmd) error {
	done := make(chan error)
	p.starts <- func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		err := cmd.Start()
		if err == nil {
			p.own[cmd.Process.Pid] = true
		}
		done <- err
	}
	return <-done
}

func (p *procs) wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	p.mu.Lock()
	delete(p.own, cmd.Process.Pid)
	p.mu.Unlock()
	return err
}

func (p *procs) run(cmd *exec.Cmd) error {
	if err := p.start(cmd); err != nil {
		return err
	}
	return p.wait(cmd)
}

// output runs a command and returns all that it writes.
func (p *procs) output(cmd *exec.Cmd) (string, error) {
	var b strings.Builder
	cmd.Stdout, cmd.Stderr = &b, &b
	err := p.run(cmd)
	return b.String(), err
}

// group returns the processes of a group that run, after it was given a moment to end.
func (p *procs) group(pgid int) (names []string) {
	for range 50 {
		names = nil
		for _, d := range processes() {
			if d.group == pgid && d.state != "Z" {
				names = append(names, d.String())
			}
		}
		if len(names) == 0 {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return names
}

// endAll kills every descendant of this process, and returns what was still running.
func (p *procs) endAll() (names []string) {
	for range 100 {
		n := 0
		for _, d := range descendants(os.Getpid()) {
			if d.state == "Z" {
				continue
			}
			if n++; syscall.Kill(d.pid, syscall.SIGKILL) == nil {
				names = append(names, d.String())
			}
		}
		if n == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return names
}

// A process is one line of the kernel's list.
type process struct {
	pid, parent, group int
	name, state        string
}

func (p process) String() string { return fmt.Sprintf("%s (process %d)", p.name, p.pid) }

// processes reads /proc/PID/stat of all processes: proc_pid_stat(5).
func processes() (list []process) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		open, end := strings.IndexByte(string(text), '('), strings.LastIndexByte(string(text), ')')
		if open < 0 || end < open {
			continue
		}
		rest := strings.Fields(string(text[end+1:]))
		if len(rest) < 3 {
			continue
		}
		d := process{name: string(text[open+1 : end]), state: rest[0]}
		d.pid, _ = strconv.Atoi(strings.TrimSpace(string(text[:open])))
		d.parent, _ = strconv.Atoi(rest[1])
		d.group, _ = strconv.Atoi(rest[2])
		list = append(list, d)
	}
	return list
}

func descendants(pid int) (list []process) {
	children := map[int][]process{}
	for _, d := range processes() {
		children[d.parent] = append(children[d.parent], d)
	}
	for todo := []int{pid}; len(todo) > 0; todo = todo[1:] {
		for _, d := range children[todo[0]] {
			list = append(list, d)
			todo = append(todo, d.pid)
		}
	}
	return list
}
