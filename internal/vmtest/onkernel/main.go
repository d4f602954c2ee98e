// Command onkernel runs a program on another kernel, in a virtual machine:
//
//	onkernel KERNEL PROGRAM [ARGUMENTS]
//
// KERNEL is the file to boot, PROGRAM a static one, and what is in the directory is
// there too. So 'go test -exec' takes it. Its exit status is the program's.
//
// In the machine it is everything else: as init the first process, as worker it does
// the jobs, and as gcc or go it stands in for compilers.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"

	"hallmark/internal/vmtest"
)

func main() {
	status, err := 0, error(nil)
	switch name := filepath.Base(os.Args[0]); name {
	case "init":
		err = boot()
	case "worker":
		err = work()
	case "gcc", "go":
		status = compile(name, os.Args[1:])
	default:
		status, err = run(os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "onkernel:", err)
		status = 1
	}
	os.Exit(status)
}

// run runs a program in a machine of its own.
func run(args []string) (status int, err error) {
	if len(args) < 2 {
		return 0, errors.New("usage: onkernel KERNEL PROGRAM [ARGUMENTS]")
	}
	dir, err := os.MkdirTemp("", "onkernel")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	m := vmtest.Machine{Kernel: args[0], Modules: vmtest.ModulesFor(args[0]), Files: filepath.Join(dir, "files"), Copy: os.Stdout}
	if err := pack(m, args[1]); err != nil {
		return 0, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	results, err := m.Run(ctx, []vmtest.Job{{Dir: place, Args: append([]string{program}, args[2:]...), Env: passed()}})
	if err != nil {
		return 0, err
	}
	return results[0].Status, nil
}

// passed returns the settings of the tests that the program gets as well.
func passed() []string {
	var env []string
	for _, e := range os.Environ() {
		if strings.HasPrefix(e, "HALLMARK_") {
			env = append(env, e)
		}
	}
	return env
}

// The places of the program and of the directory in the machine.
const (
	place   = "/here"
	program = "/here.program"
)

func pack(m vmtest.Machine, file string) error {
	system, err := vmtest.SystemFor(m.Kernel)
	if err != nil {
		return err
	}
	init, err := initFor(system.Arch)
	if err != nil {
		return err
	}
	a, err := vmtest.CreateInitramfs(m.Files, system)
	if err != nil {
		return err
	}
	a.Copy("/init", init)
	a.Tools()
	a.Program(program, file)
	a.Copy(place, ".")
	return a.Close()
}

// initFor returns this program as one of an architecture: for others than the
// machine's it lies beside it as NAME-ARCHITECTURE.
func initFor(arch string) (string, error) {
	if arch == runtime.GOARCH {
		return "/proc/self/exe", nil
	}
	self, err := os.Executable()
	return self + "-" + arch, err
}
