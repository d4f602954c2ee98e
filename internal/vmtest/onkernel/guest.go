package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/internal/vmtest"
)

// boot moves to the disk, starts the worker, is the parent of all orphans while it works, and
// turns the machine off.
func boot() error {
	if !onDisk() {
		return moveToDisk()
	}
	if err := errors.Join(mount(), loadModules(), os.Mkdir("/tmp", 0o777), os.Chmod("/tmp", 0o777|fs.ModeSticky)); err != nil {
		fmt.Println("onkernel:", err) // what needs it will say so
	}
	worker := &exec.Cmd{Path: "/proc/self/exe", Args: []string{"worker"}, Env: environment, Stdout: os.Stdout, Stderr: os.Stderr}
	if err := worker.Start(); err != nil {
		return err
	}
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if pid == worker.Process.Pid || err != nil && !errors.Is(err, unix.EINTR) {
			return unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
		}
	}
}

var environment = []string{"PATH=/bin", "HOME=/root", "TMPDIR=/tmp"}

// mount makes the file systems of a running system, as far as the kernel has them.
func mount() error {
	var failed []error
	for _, m := range [][2]string{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/dev/shm"}, {"tracefs", "/sys/kernel/tracing"},
		{"debugfs", "/sys/kernel/debug"}, {"securityfs", "/sys/kernel/security"}, {"bpf", "/sys/fs/bpf"}, {"cgroup2", "/sys/fs/cgroup"},
	} {
		err := os.MkdirAll(m[1], 0o755)
		if err == nil {
			err = unix.Mount(m[0], m[1], m[0], 0, "")
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("mounting %s: %w", m[1], err))
		}
	}
	return errors.Join(failed...)
}

func loadModules() error {
	files, err := filepath.Glob(filepath.Join(vmtest.ModulesDir, "*"))
	for _, name := range files {
		f, opening := os.Open(name)
		if opening != nil {
			return opening
		}
		if loading := unix.FinitModule(int(f.Fd()), "", 0); loading != nil {
			err = errors.Join(err, fmt.Errorf("loading %s: %w", name, loading))
		}
		f.Close()
	}
	return err
}

// work does the jobs and says what becomes of them.
func work() error {
	list, err := os.ReadFile(vmtest.JobsFile)
	if err != nil {
		return err
	}
	var jobs []vmtest.Job
	if err := json.Unmarshal(list, &jobs); err != nil {
		return err
	}
	port, err := os.OpenFile(vmtest.Port(), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if out, err := exec.Command("/bin/busybox", "--install", "-s", "/bin").CombinedOutput(); err != nil {
		return fmt.Errorf("busybox: %w\n%s", err, out)
	}
	for i, j := range jobs {
		do(j, &reporter{json.NewEncoder(port), i})
	}
	return errors.Join(drain(port), port.Close())
}

// A reporter sends events of a job. Nobody would learn of an event that cannot be sent.
type reporter struct {
	port *json.Encoder
	job  int
}

func (r *reporter) send(e vmtest.Event) {
	e.Job = r.job
	_ = r.port.Encode(e)
}

// Write takes output of the job.
func (r *reporter) Write(p []byte) (int, error) {
	r.send(vmtest.Event{Output: p})
	return len(p), nil
}

func do(j vmtest.Job, r *reporter) {
	began := time.Now()
	cmd := exec.Command(j.Args[0], j.Args[1:]...)
	cmd.Dir, cmd.Env = j.Dir, append(environment, j.Env...)
	cmd.Stdout, cmd.Stderr = r, r
	err := cmd.Run()
	if ended := new(exec.ExitError); err != nil && !errors.As(err, &ended) {
		fmt.Fprintln(r, "onkernel:", err)
	}
	if err := keep(j, began, r); err != nil {
		fmt.Fprintln(r, "onkernel:", err)
	}
	r.send(vmtest.Event{Ended: true, Status: status(cmd)})
}

func status(cmd *exec.Cmd) int {
	if cmd.ProcessState == nil {
		return 127 // not even started, in the words of shells
	}
	return cmd.ProcessState.ExitCode()
}

// keep hands out what a job was to leave, if it is newer than its begin.
func keep(j vmtest.Job, began time.Time, r *reporter) error {
	for _, pattern := range j.Keep {
		names, err := filepath.Glob(filepath.Join(j.Dir, pattern))
		if err != nil {
			return err
		}
		for _, name := range names {
			info, err := os.Stat(name)
			if err != nil {
				return err
			}
			if info.ModTime().Before(began.Truncate(time.Second)) {
				continue
			}
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			r.send(vmtest.Event{File: name[len(j.Dir)+1:], Data: data})
		}
	}
	return nil
}

// drain waits until all is sent that was written to a terminal: tcdrain(3).
func drain(f *os.File) error {
	return unix.IoctlSetInt(int(f.Fd()), unix.TCSBRK, 1)
}
