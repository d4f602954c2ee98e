// Command testrun runs every check and test of the repository. test.sh builds and starts
// it: see ./test.sh --help.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/internal/testenv"
)

const usage = `Usage: ./test.sh [FLAGS] [PACKAGE...]

Runs every check and test, or those of some packages. Exit status 0: all that was
run has passed. Exit status 1: something has failed, nothing was run, or the run was
interrupted. Exit status 2: the arguments are wrong.

  ./test.sh                        everything, as CI runs it
  ./test.sh --quick                six minutes once built: no root, no other kernels, no perf
  ./test.sh ./procmap ./symbol/... the tests of some packages
  ./test.sh -run TestTable         the tests with matching names, wherever they are

Flags:
`

const environment = `
Environment:
  HALLMARK_THOROUGH=1  run the long forms of all tests, and all suites on all kernels
  HALLMARK_KERNELS     the directory of the kernels (default: in the user's cache)
  HALLMARK_SEED        the number that a failed test printed, to repeat its choices
  CI=1                 a test that lacks a tool fails, instead of being skipped

As root the command installs missing Debian packages, and fetches kernels if tests need
to run on them. Nothing else outside of the user's caches is changed. Tests see nothing
of the user's home and settings.
`

// options are what the arguments say.
type options struct {
	quick     bool
	run       string
	timeout   time.Duration
	jobs      int
	noInstall bool
	noKernels bool
	slowest   int
	scratch   string
	packages  []string
}

func main() {
	o, status := parse(os.Args[1:])
	if status < 0 {
		status = run(o)
	}
	if o.scratch != "" {
		_ = remove(o.scratch) // what is left of it, which the summary says
	}
	os.Exit(status)
}

// parse returns the options, or the exit status of a run that ends here.
func parse(args []string) (o options, status int) {
	f := flag.NewFlagSet("test.sh", flag.ContinueOnError)
	f.BoolVar(&o.quick, "quick", false, "run what needs no root, no other kernels and no perf, without the race detector")
	f.StringVar(&o.run, "run", "", "run only the tests that match the `pattern`, as go test -run does")
	f.DurationVar(&o.timeout, "timeout", 0, "end everything after this time (default: never)")
	f.IntVar(&o.jobs, "j", runtime.NumCPU()+1, "run so many packages at a time") // tests wait for a part of their time
	f.BoolVar(&o.noInstall, "no-install", false, "install no packages")
	f.BoolVar(&o.noKernels, "no-kernels", false, "run nothing on other kernels")
	f.IntVar(&o.slowest, "slowest", 0, "name so many tests that took longest")
	f.StringVar(&o.scratch, "scratch", "", "the `directory` for all that is made; it is removed (test.sh gives it)")
	f.Usage = func() {
		fmt.Fprint(f.Output(), usage)
		f.VisitAll(func(f *flag.Flag) {
			if f.Name != "scratch" {
				name, text := flag.UnquoteUsage(f)
				fmt.Fprintf(os.Stderr, "  %-20s %s\n", strings.TrimSpace("--"+f.Name+" "+name), text)
			}
		})
		fmt.Fprint(f.Output(), environment)
	}
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return o, 0
	case err != nil:
		return o, 2
	}
	o.packages = f.Args()
	if o.quick && testenv.Thorough() {
		fmt.Fprintln(os.Stderr, "test.sh: --quick and HALLMARK_THOROUGH exclude each other")
		return o, 2
	}
	o.jobs = max(o.jobs, 1)
	return o, -1
}

// A runner is one run.
type runner struct {
	options
	root       string            // of the module
	toolchains map[string]string // where the Go command is, and what it keeps
	begun      time.Time
	console    *console
	results    *results
	procs      *procs
	notes      []string // what the summary says of the run as a whole
}

// run runs everything and returns the exit status.
func run(o options) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	// Nobody reads on: as good as an interruption, but what is printed from now on must not
	// end this program before it has put everything away.
	ctx, unread := context.WithCancel(ctx)
	defer unread()
	closed := make(chan os.Signal, 1)
	signal.Notify(closed, syscall.SIGPIPE)
	go func() { <-closed; unread() }()
	os.Unsetenv(testenv.LackVar) // it is for this program to set
	root, err := os.Getwd()
	if err == nil && o.scratch == "" {
		o.scratch, err = os.MkdirTemp("", "hallmark-test")
	}
	if err == nil {
		err = prepare(o.scratch)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "test.sh:", err)
		return 1
	}
	// The Go command's directories are there too, so that nothing is left of one that is killed.
	if err := os.Setenv("TMPDIR", filepath.Join(o.scratch, "tmp")); err != nil {
		fmt.Fprintln(os.Stderr, "test.sh:", err)
		return 1
	}
	testenv.SetUmask()
	toolchains := testenv.Toolchains() // before there is anybody who waits for all children
	c := newConsole(os.Stdout)
	r := &runner{options: o, root: root, toolchains: toolchains, begun: time.Now(), console: c, results: newResults(c), procs: newProcs()}
	go func() {
		<-ctx.Done()
		stop() // a second signal ends this program at once
	}()
	usage := r.all(ctx)
	c.close()
	for _, left := range r.procs.endAll() {
		if ctx.Err() == nil {
			r.results.failure("processes", "still running at the end: "+left)
		}
	}
	if err := remove(o.scratch); err != nil {
		r.note("left behind: %v", err)
	}
	switch {
	case usage != nil:
		fmt.Fprintf(os.Stderr, "test.sh: %v\n", usage)
		return 2
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		r.results.failed = append(r.results.failed, fmt.Sprintf("time: the limit of %v is over; %s", o.timeout, r.results.unfinished()))
	case ctx.Err() != nil:
		r.results.failed = append(r.results.failed, "interrupted: "+r.results.unfinished())
	}
	return r.summary()
}

// prepare makes the directory for all that is made. Tests have their temporary files
// there, and some of them run programs as another user.
func prepare(scratch string) error {
	tmp := filepath.Join(scratch, "tmp")
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return err
	}
	return errors.Join(os.Chmod(scratch, 0o755), os.Chmod(tmp, 0o777|os.ModeSticky))
}

// remove removes a directory, and before that the mounts that ended tests have left below it:
// else what is mounted there would be removed with it.
func remove(dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return os.RemoveAll(dir) // it is not there
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	escaped := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for _, line := range slices.Backward(strings.Split(string(text), "\n")) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		if at := escaped.Replace(f[4]); strings.HasPrefix(at, real+"/") {
			if err := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
				return fmt.Errorf("%s is still mounted: %w", at, err)
			}
		}
	}
	return os.RemoveAll(dir)
}

// all runs one stage after the other, until the run is ended from outside. An error is one of
// the arguments.
func (r *runner) all(ctx context.Context) error {
	p, err := r.plan(ctx)
	var usage usageError
	if errors.As(err, &usage) {
		return usage
	}
	if err != nil {
		if ctx.Err() == nil {
			r.results.failure("nothing was run", err.Error())
		}
		return nil
	}
	if !r.noInstall && !r.quick {
		r.install(ctx, p)
	}
	if err := r.planRaces(p); err != nil {
		if ctx.Err() == nil {
			r.results.failure("nothing was run", err.Error())
		}
		return nil
	}
	r.describe(p)
	r.console.printf("%s\n", p)
	for _, stage := range []func(context.Context, *plan){r.build, r.packages, r.kernels, r.repeat} {
		if ctx.Err() == nil {
			stage(ctx, p)
		}
	}
	return nil
}

// note keeps a sentence for the summary.
func (r *runner) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}
