// Command elfutils runs the scripts by which elfutils tests its debuginfod server, with Hallmark's server in its place. It
// takes a source tree of elfutils that was built there, and prints what became of each script.
//
// The scripts start a program "debuginfod", and wait until its numbers say that it has looked at everything. This command is
// that program: it reads the flags, starts Hallmark's server and its scanner, and says when a scan is over. It has
// nothing else of elfutils' server, neither its database nor its other numbers.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

var (
	tree    = flag.String("tree", "", "a source tree of elfutils, built in place with --enable-debuginfod --enable-libdebuginfod")
	logs    = flag.String("logs", "", "directory for what the scripts print (default: none is kept)")
	timeout = flag.Duration("timeout", 5*time.Minute, "for each script")
)

func main() {
	var err error
	if filepath.Base(os.Args[0]) == "debuginfod" {
		err = serve(os.Args[1:])
	} else {
		flag.Parse()
		err = run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "elfutils:", err)
		os.Exit(1)
	}
}

// run runs the scripts that are named, or all.
func run() error {
	names := flag.Args()
	if *tree == "" {
		return errors.New("-tree is missing")
	}
	root, err := filepath.Abs(*tree)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		if names, err = filepath.Glob(filepath.Join(root, "tests", "run-debuginfod-*.sh")); err != nil || len(names) == 0 {
			return fmt.Errorf("%s: no scripts are there: %w", root, err)
		}
	}
	dir, err := os.MkdirTemp("", "hallmark-elfutils")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := shadow(root, dir); err != nil {
		return err
	}
	count := map[string]int{}
	for _, name := range names {
		word, why := script(root, dir, filepath.Base(name))
		count[word]++
		fmt.Printf("%-6s %-45s %s\n", word, filepath.Base(name), why)
	}
	fmt.Printf("%d passed, %d failed, %d skipped themselves\n", count["passed"], count["failed"], count["skip"])
	return nil
}

// shadow makes a tree of links to another one, in which debuginfod is this program.
func shadow(root, dir string) error {
	if err := links(root, dir, "debuginfod", "tests"); err != nil {
		return err
	}
	inside := filepath.Join(dir, "debuginfod")
	for _, sub := range []string{"debuginfod", "tests"} { // scripts go up from there
		to := filepath.Join(dir, sub)
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
		if err := links(filepath.Join(root, sub), to, "debuginfod"); err != nil {
			return err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	b, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(inside, "debuginfod"), b, 0o755)
}

func links(from, to string, but ...string) error {
	all, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range all {
		if slices.Contains(but, e.Name()) {
			continue
		}
		if err := os.Symlink(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// script runs a script as "make check" does.
func script(root, dir, name string) (word, why string) {
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	work, err := os.MkdirTemp("", "hallmark-elfutils-work")
	if err != nil {
		return "failed", err.Error()
	}
	defer os.RemoveAll(work)
	tests := filepath.Join(root, "tests")
	libraries := []string{}
	for _, lib := range []string{"libdw", "libelf", "libasm", "debuginfod", "backends"} {
		libraries = append(libraries, filepath.Join(root, lib), filepath.Join(root, lib, ".libs"))
	}
	cmd := guarded(ctx, filepath.Join(tests, "test-wrapper.sh"), strings.Join(libraries, ":"), filepath.Join(tests, name))
	cmd.Dir = work
	cmd.WaitDelay = 10 * time.Second
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + work, "TMPDIR=" + work, "LC_ALL=C", "LANG=C",
		"srcdir=" + tests, "abs_srcdir=" + tests, "abs_builddir=" + filepath.Join(dir, "tests"), "abs_top_builddir=" + dir, "VALGRIND_CMD="}
	out, err := cmd.CombinedOutput()
	if *logs != "" {
		if err := os.WriteFile(filepath.Join(*logs, name+".log"), out, 0o644); err != nil {
			return "failed", err.Error()
		}
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "passed", ""
	case errors.As(err, &exit) && exit.ExitCode() == 77:
		return "skip", last(out, 1)
	case ctx.Err() != nil:
		return "failed", "it was ended"
	}
	return "failed", failedAt(out)
}

// guarded returns a command that cannot change which files are in /dev. Root's can remove /dev/null, as programs do that write
// to a file of that name and remove it first. So root's has mounts of its own, in which the directory is read-only; its
// devices are not.
func guarded(ctx context.Context, name string, args ...string) *exec.Cmd {
	if os.Geteuid() != 0 {
		return exec.CommandContext(ctx, name, args...)
	}
	const mount = `mount --rbind /dev /dev && mount -o remount,bind,ro /dev && exec "$@"`
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", mount, "sh", name}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	return cmd
}

// failedAt returns the last command that a script ran before it reported errors.
func failedAt(out []byte) string {
	before, _, _ := bytes.Cut(out, []byte("echo ERROR REPORTS"))
	lines := strings.Split(strings.TrimSpace(string(before)), "\n")
	for _, line := range slices.Backward(lines) {
		text := strings.TrimLeft(line, "+ ")
		if strings.HasPrefix(line, "+") && text != "" && text != "err" && !strings.HasPrefix(text, "trap ") {
			return text[:min(len(text), 150)]
		}
	}
	return last(out, 1)
}

func last(out []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " ")
}
