package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	"hallmark/internal/vmtest"
)

// compiledVar names the directory with what compilers made: on the host it has one for
// each architecture, in the guest it is the one of the guest's.
const compiledVar = "VMTEST_COMPILED"

// toolsVar is the PATH with the real compilers, where there are any.
const toolsVar = "VMTEST_TOOLS"

// compile stands in for a compiler, so that tests which compile programs run where
// no compiler is. With the real one at hand, on the host, it is called and what it
// made is kept, for other architectures too; in the guest, what was made by the same
// arguments is taken.
func compile(tool string, args []string) int {
	o := slices.Index(args, "-o")
	dir, name := os.Getenv(compiledVar), ""
	if o >= 0 {
		name = kept(tool, args, o)
	}
	if path := os.Getenv(toolsVar); path != "" {
		if err := os.Setenv("PATH", path); err != nil {
			return told(err)
		}
		status := callReal(tool, args, nil)
		if status == 0 && o >= 0 {
			status = told(copyFile(filepath.Join(dir, runtime.GOARCH, name), args[o+1]))
			crossCompile(tool, args, o, name)
		}
		return status
	}
	if o < 0 {
		fmt.Fprintf(os.Stderr, "there is no %s in this machine but for what was compiled before\n", tool)
		return 127
	}
	if missing := slices.IndexFunc(args, isMissing); missing >= 0 {
		fmt.Fprintf(os.Stderr, "onkernel: %s is not in this machine: name it in the sources of the suite\n", args[missing])
		return 1
	}
	return told(copyFile(args[o+1], filepath.Join(dir, name)))
}

// crossCompile makes the same for the other architectures. A program that cannot be made for
// them is missed by those who need it.
func crossCompile(tool string, args []string, o int, name string) {
	for _, arch := range vmtest.Arches() {
		if arch == runtime.GOARCH {
			continue
		}
		command := tool
		if tool == "gcc" {
			command = vmtest.CrossCompilers[arch]
		}
		if _, err := exec.LookPath(command); err != nil {
			continue
		}
		args := slices.Clone(args)
		args[o+1] = filepath.Join(os.Getenv(compiledVar), arch, name)
		callReal(command, args, append(os.Environ(), "GOARCH="+arch))
	}
}

// isMissing reports whether an argument is the name of a source file that is not there.
func isMissing(arg string) bool {
	switch filepath.Ext(arg) {
	case ".c", ".S", ".go":
		_, err := os.Stat(arg)
		return err != nil
	}
	return false
}

func told(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, "onkernel:", err)
		return 1
	}
	return 0
}

// callReal runs a command and returns its exit status.
func callReal(tool string, args, env []string) int {
	cmd := exec.Command(tool, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdin, os.Stdout, os.Stderr, env
	if err := cmd.Run(); cmd.ProcessState == nil {
		return told(err)
	}
	return cmd.ProcessState.ExitCode()
}

// kept names the file for what a compiler makes by these arguments, whatever its
// name is, and wherever the sources are.
func kept(tool string, args []string, o int) string {
	h := sha256.New()
	fmt.Fprintln(h, tool, os.Getenv("GOARCH"))
	for i, a := range args {
		source, err := os.ReadFile(a)
		switch {
		case i == o+1:
		case err == nil:
			h.Write(source)
		default:
			fmt.Fprintln(h, a)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:16])
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if closing := out.Close(); err == nil {
		err = closing
	}
	return err
}
