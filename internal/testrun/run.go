package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"hallmark/internal/testenv"
)

// A job is something that is run beside others.
type job struct {
	name    string
	machine bool // looks at what the machine does
	run     func(context.Context)
}

// inParallel runs jobs, so many at a time, in their order, and of those that look at the
// machine one at a time.
func (r *runner) inParallel(ctx context.Context, jobs []job) {
	var mu sync.Mutex
	done, busy, left := 0, false, slices.Clone(jobs)
	changed := sync.NewCond(&mu)
	r.results.setWaiting(len(jobs))
	r.console.setStatus(func() string {
		mu.Lock()
		defer mu.Unlock()
		return fmt.Sprintf("%s  %d of %d  %s", elapsed(r.begun), done, len(jobs), r.results.doing())
	})
	defer r.console.setStatus(nil)
	next := func() (j job, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		for len(left) > 0 && ctx.Err() == nil {
			i := slices.IndexFunc(left, func(j job) bool { return !j.machine || !busy })
			if i < 0 {
				changed.Wait()
				continue
			}
			j = left[i]
			left = slices.Delete(left, i, i+1)
			r.results.setWaiting(len(left))
			busy = busy || j.machine
			return j, true
		}
		return job{}, false
	}
	var workers sync.WaitGroup
	for range r.jobs {
		workers.Go(func() {
			for {
				j, ok := next()
				if !ok {
					return
				}
				j.run(ctx)
				mu.Lock()
				done++
				if j.machine {
					busy = false
				}
				changed.Broadcast()
				mu.Unlock()
			}
		})
	}
	workers.Wait()
}

func elapsed(since time.Time) string {
	return time.Since(since).Truncate(time.Second).String()
}

func hasCompiler() bool {
	_, err := exec.LookPath("gcc")
	return err == nil
}

// binary is where the tests of a package are.
func (r *runner) binary(p pkg) string {
	dir := "plain"
	if p.race {
		dir = "race"
	}
	return filepath.Join(r.scratch, dir, filepath.FromSlash(p.name())+".test")
}

// build builds the tests of all packages, each once.
func (r *runner) build(ctx context.Context, p *plan) {
	end := r.results.begin("building the tests")
	r.results.setWaiting(len(p.packages) + len(p.again) + len(p.checks))
	defer func() {
		if ctx.Err() == nil {
			end()
		}
	}()
	begun := time.Now()
	r.console.setStatus(func() string { return fmt.Sprintf("%s  %s", elapsed(r.begun), r.results.doing()) })
	defer r.console.setStatus(nil)
	for _, race := range []bool{true, false} {
		var set []pkg
		for _, f := range slices.Concat(p.packages, p.again) {
			if f.race == race {
				set = append(set, f)
			}
		}
		if len(set) == 0 || ctx.Err() != nil {
			continue
		}
		out, err := r.buildTests(ctx, set, race)
		if err != nil && ctx.Err() == nil {
			r.console.printf("%s", out)
			for _, f := range set {
				if _, err := os.Stat(r.binary(f)); err != nil {
					r.results.failure(f.name()+" (build)", "its tests cannot be built")
				}
			}
		}
	}
	if ctx.Err() == nil {
		r.console.printf("built the tests %39.1fs\n", time.Since(begun).Seconds())
	}
}

// buildTests builds with one command, so that packages are compiled side by side. The
// programs are named after the last element of the path, so those with the same one are
// built by commands of their own.
func (r *runner) buildTests(ctx context.Context, packages []pkg, race bool) (output string, err error) {
	var sets [][]pkg
	for _, p := range packages {
		i := slices.IndexFunc(sets, func(s []pkg) bool {
			return !slices.ContainsFunc(s, func(q pkg) bool { return filepath.Base(p.ImportPath) == filepath.Base(q.ImportPath) })
		})
		if i < 0 {
			sets = append(sets, nil)
			i = len(sets) - 1
		}
		sets[i] = append(sets[i], p)
	}
	var errs []error
	for _, set := range sets {
		dir := filepath.Join(r.scratch, "built") + string(filepath.Separator)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", err
		}
		args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", dir} // as go test links what it runs itself
		if race {
			args = append(args, "-race")
		}
		for _, p := range set {
			args = append(args, p.ImportPath)
		}
		out, err := r.procs.output(r.procs.command(ctx, "go", args...))
		output += out
		errs = append(errs, err)
		for _, p := range set {
			to := r.binary(p)
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return output, err
			}
			if err := os.Rename(filepath.Join(dir, filepath.Base(p.ImportPath)+".test"), to); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return output, errors.Join(errs...)
}

// longest are packages whose tests take longest. They begin first, so that no lane waits for one of
// them in the end.
var longest = []string{
	"symbol", "cmd/hallmark/internal/hostile", "perfdata", "unwind", "symbolize", "cmd/hallmark/internal/addr2line", "internal/testrun",
	"debuginfo", "profile/toperf", "profile/fromperf", "internal/unwindtest", "buildid", "server",
}

// rank says when a package begins: those that look at the machine are tested one after the
// other, so they are what the whole run waits for.
func rank(p pkg) int {
	if i := slices.Index(onMachine, p.name()); i >= 0 {
		return i - len(onMachine)
	}
	if i := slices.Index(longest, p.name()); i >= 0 {
		return i
	}
	return len(longest)
}

// looksAtMachine reports whether the tests of a package are run while no others like them are. A part
// of a package that runs under the race detector is there for its goroutines, and none of its tests
// needs that.
func looksAtMachine(p pkg) bool {
	_, isSplit := split[p.name()]
	return slices.Contains(onMachine, p.name()) && !(p.race && isSplit)
}

// packages runs the tests of all packages, and the checks beside them.
func (r *runner) packages(ctx context.Context, p *plan) {
	all := slices.Concat(p.again, p.packages)
	slices.SortStableFunc(all, func(a, b pkg) int { return rank(a) - rank(b) })
	var first, last, checks []job
	for _, f := range all {
		j := job{name: f.name(), machine: looksAtMachine(f), run: func(ctx context.Context) { r.runTests(ctx, f) }}
		if rank(f) < len(longest) {
			first = append(first, j)
		} else {
			last = append(last, j)
		}
	}
	for _, c := range p.checks {
		checks = append(checks, job{name: c.name, run: func(ctx context.Context) { r.runCheck(ctx, c) }})
	}
	r.inParallel(ctx, slices.Concat(first, checks, last))
}

// perPackage is more than the tests of a package take on a busy machine.
const perPackage = "40m"

// atMost is more than any execution takes, kernels among them.
const atMost = 125 * time.Minute

// runTests runs the tests of a package.
func (r *runner) runTests(ctx context.Context, p pkg) {
	if _, err := os.Stat(r.binary(p)); err != nil {
		return // it could not be built, which was said
	}
	args := []string{"-test.timeout=" + perPackage}
	if p.name() == vmPackage {
		args = append(args, "-test.skip=^TestKernels$") // see kernels
	}
	if run := cmp.Or(r.options.run, p.only); run != "" {
		args = append(args, "-test.run="+run)
	}
	if p.skip != "" {
		args = append(args, "-test.skip="+p.skip)
	}
	if r.quick {
		args = append(args, "-test.short")
	}
	r.execute(ctx, execution{pkg: p, args: args, env: []string{testenv.LackVar + "=later"}})
}

// An execution is of one program with tests.
type execution struct {
	pkg  pkg
	args []string
	env  []string
	only string // a test that is run again
}

// name is that of the job. A package that is tested twice has two.
func (e execution) name() string {
	if _, isSplit := split[e.pkg.name()]; isSplit && e.pkg.race {
		return e.pkg.name() + "(race)"
	}
	return e.pkg.name()
}

// execute runs a program with tests, as go test does it, and reports whether it ended well.
func (r *runner) execute(ctx context.Context, e execution) (ok bool) {
	name := e.name()
	end := r.results.begin(name)
	begun := time.Now()
	ok, tests, cpu, err := r.watch(ctx, e, name)
	if ctx.Err() != nil {
		return false // it stays among those that have not finished
	}
	end()
	word := "ok  "
	switch {
	case err != nil:
		word = "FAIL"
		r.results.failure(name, err.Error())
	case !ok:
		word = "FAIL"
	case !tests && e.only != "":
		word, ok = "FAIL", false
		r.results.failure(name+" "+e.only, "it is not there when it is to be run alone")
	case !tests && r.options.run == "" && declares(e.pkg.Dir, append(e.pkg.TestGoFiles, e.pkg.XTestGoFiles...), regexp.MustCompile("")):
		word, ok = "FAIL", false
		r.results.failure(name, "it has tests, and none was run")
	case !tests:
		word = "none"
	}
	if e.only != "" {
		name += " " + e.only
	}
	r.console.printf("%s  %-40s %6.1fs %6.1fs CPU\n", word, name, time.Since(begun).Seconds(), cpu.Seconds())
	return ok && err == nil
}

// watch runs a program with tests and takes its events. An error is what no event says.
func (r *runner) watch(ctx context.Context, e execution, name string) (ok, tests bool, cpu time.Duration, err error) {
	from, to, err := os.Pipe()
	if err != nil {
		return false, false, 0, err
	}
	reader := r.procs.command(ctx, "go", "tool", "test2json", "-t", "-p", e.pkg.ImportPath)
	reader.Stdin = from
	events, err := reader.StdoutPipe()
	if err == nil {
		err = r.procs.start(reader)
	}
	from.Close() // so that a writer to a reader that has ended gets an error
	if err != nil {
		to.Close()
		return false, false, 0, err
	}
	// A process that is stopped, or cannot print its panic, does not end by itself.
	limited, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	cmd := r.procs.command(limited, r.binary(e.pkg), append([]string{"-test.v=test2json", "-test.paniconexit0"}, e.args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = e.pkg.Dir, to, to
	home, err := r.newHome()
	if err != nil {
		return false, false, 0, err
	}
	defer os.RemoveAll(home)
	cmd.Env = append(testenv.Environment(os.Environ(), home, r.toolchains),
		"PWD="+e.pkg.Dir,
		"TMPDIR="+filepath.Join(r.scratch, "tmp"),
		// Else each process that ends waits a second for reports of its other threads: so do helpers.
		"GORACE="+strings.TrimSpace("atexit_sleep_ms=0 "+os.Getenv("GORACE")))
	cmd.Env = append(cmd.Env, e.env...)
	err = r.procs.start(cmd)
	to.Close()
	left, read := make(chan []string, 1), make(chan struct{})
	if err == nil {
		go func() {
			_ = r.procs.wait(cmd) // its events say how it ended
			names := r.procs.group(cmd.Process.Pid)
			_ = cmd.Cancel() // so that nobody holds the pipe
			r.procs.group(cmd.Process.Pid)
			select {
			case <-read:
			case <-time.After(30 * time.Second): // who has left the group holds it
				names = append(names, "one that holds its output")
				_ = reader.Cancel()
			}
			left <- names
		}()
	} else {
		left <- nil
	}
	ok, tests, rest := r.results.take(ctx, name, events, e.only)
	close(read)
	names := <-left
	_ = r.procs.wait(reader)
	if s := cmd.ProcessState; s != nil {
		cpu = s.UserTime() + s.SystemTime()
	}
	if ctx.Err() != nil {
		return false, tests, cpu, nil
	}
	switch {
	case err != nil:
		return false, tests, cpu, err
	case len(names) > 0:
		return false, tests, cpu, fmt.Errorf("its tests leave processes behind: %s", strings.Join(names, ", "))
	case ok && !cmd.ProcessState.Success():
		return false, tests, cpu, fmt.Errorf("ends with %v\n%s", cmd.ProcessState, rest)
	}
	return ok, tests, cpu, nil
}

// newHome makes the home of an execution. Nothing is there that another one has left, or the user has.
func (r *runner) newHome() (dir string, err error) {
	parent := filepath.Join(r.scratch, "homes")
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp(parent, ""); err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755) // some tests run programs as another user
}

// repeat runs the tests again that lacked samples or time, each alone.
func (r *runner) repeat(ctx context.Context, p *plan) {
	for _, l := range r.results.takeLacks() {
		if ctx.Err() != nil {
			return
		}
		all := slices.Concat(p.packages, p.again)
		i := slices.IndexFunc(all, func(f pkg) bool { return execution{pkg: f}.name() == l.job })
		e := execution{pkg: all[i], only: l.name}
		e.args = []string{"-test.timeout=" + perPackage, "-test.run=" + testenv.RunPattern(l.name)}
		if r.execute(ctx, e) && r.results.hasPassed(l.test) {
			r.results.passedAlone(l)
		}
	}
}

// passedAlone notes that a test has passed when it was run again.
func (r *results) passedAlone(l lack) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.alone = append(r.alone, l.String()+": "+l.text)
}
