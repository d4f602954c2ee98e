// Package vmtest runs programs on other kernels than the machine's own: in virtual
// machines that boot a kernel with nothing but these programs, on a disk of ext4. Its
// tests run the tests of other packages so, on each of Debian's kernels that
// getkernels.sh fetches.
//
// QEMU emulates the processor, because machines that are virtual themselves mostly
// cannot do better; so everything takes several times as long.
package vmtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// A Job is a program that runs in the guest, as root.
type Job struct {
	Dir  string   // where it runs
	Args []string // the program and its arguments
	Env  []string // besides PATH, HOME and TMPDIR
	Keep []string // patterns of files in Dir that are handed out if it writes them
}

// A Result is what became of a Job.
type Result struct {
	Output []byte            // both standard output and standard error
	Status int               // of the exit; -1 after a signal
	Files  map[string][]byte // what was to be kept, by path in the job's directory
	Ended  bool              // whether it came to its end at all
}

// An Event is one line of what the guest says.
type Event struct {
	Job    int
	Output []byte `json:",omitempty"` // a piece of it
	File   string `json:",omitempty"` // one that is handed out
	Data   []byte `json:",omitempty"` // what is in it
	Ended  bool   `json:",omitempty"`
	Status int    `json:",omitempty"`
}

// The places of the guest's own files.
const (
	JobsFile   = "/jobs.json"
	ModulesDir = "/modules"
)

// A Machine is a virtual machine. It does its jobs one after the other, and is gone.
type Machine struct {
	Kernel  string    // the file to boot
	Modules []string  // files of modules, to be loaded in this order
	Files   string    // an initramfs that has the guest as /init
	Copy    io.Writer // gets the output of the jobs as it comes, unless nil
}

// ModulesFor returns the modules that lie beside a kernel.
func ModulesFor(kernel string) []string {
	dir, name := filepath.Split(kernel)
	overlay := filepath.Join(dir, strings.Replace(name, "vmlinuz", "overlay", 1)+".ko")
	if _, err := os.Stat(overlay); err != nil {
		return nil
	}
	return []string{overlay}
}

// Run boots, does the jobs and returns what became of them. Without error all of
// them came to their end; otherwise the error shows the kernel's last words.
func (m *Machine) Run(ctx context.Context, jobs []Job) ([]Result, error) {
	arch, err := archOf(m.Kernel)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "vmtest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	initrd, disk, console := filepath.Join(dir, "initrd"), filepath.Join(dir, "disk"), filepath.Join(dir, "console")
	if err := errors.Join(m.pack(initrd, jobs), makeDisk(disk)); err != nil {
		return nil, err
	}
	name, args := arch.command(m.Kernel, initrd, disk, console)
	cmd := exec.CommandContext(ctx, name, args...)
	results := make([]Result, len(jobs))
	err = errors.Join(m.listen(cmd, results), ctx.Err())
	for i := range results {
		if !results[i].Ended {
			err = errors.Join(err, fmt.Errorf("%s ends before job %d does", filepath.Base(m.Kernel), i))
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("%w; the kernel's last words:\n%s", err, lastWords(console))
	}
	return results, err
}

// listen runs the command and takes its events.
func (m *Machine) listen(cmd *exec.Cmd, results []Result) error {
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	// The machine goes with whoever started it: with this thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewReader(stdout)
	for err == nil {
		var line []byte
		if line, err = lines.ReadBytes('\n'); err == nil {
			m.take(line, results)
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd.Path, err, &stderr)
	}
	return nil
}

// take takes one line. Text that is no event is noise on the line, and what is lost by
// it is seen by the end of the job that does not come.
func (m *Machine) take(line []byte, results []Result) {
	var e Event
	if json.Unmarshal(line, &e) != nil || e.Job < 0 || e.Job >= len(results) {
		return
	}
	r := &results[e.Job]
	r.Output = append(r.Output, e.Output...)
	if e.File != "" {
		if r.Files == nil {
			r.Files = map[string][]byte{}
		}
		r.Files[e.File] = e.Data
	}
	if e.Ended {
		r.Ended, r.Status = true, e.Status
	}
	if m.Copy != nil {
		// A reader that cannot read along still gets the results.
		_, _ = m.Copy.Write(e.Output)
	}
}

// lastWords returns the end of what the kernel printed.
func lastWords(file string) []byte {
	b, err := os.ReadFile(file)
	if err != nil {
		return []byte(err.Error())
	}
	const enough = 4000
	return b[max(0, len(b)-enough):]
}
