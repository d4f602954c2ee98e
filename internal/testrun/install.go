package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"hallmark/internal/testenv"
)

// How long the package manager may take: to be free, and to fetch.
const (
	lockLimit  = 5 * time.Minute
	fetchLimit = 15 * time.Minute
)

var (
	// locked matches apt's words for a lock that another program holds.
	locked = regexp.MustCompile(`(?m)Could not get lock|Unable to acquire|Unable to lock|is another process using it`)
	// unavailable matches its words for a package that the machine's sources do not have.
	unavailable = regexp.MustCompile(`(?m)(?:Unable to locate package|Package '?)\s?([a-z0-9.+-]+)(?:'? has no installation candidate)?`)
	// aptOptions bound what a silent mirror costs.
	aptOptions = []string{"-q", "-y", "--no-install-recommends", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=30", "-o", "Acquire::https::Timeout=30", "-o", "DPkg::Lock::Timeout=10"}
)

// install installs what tests use and the machine lacks. Whatever happens, the run goes on.
func (r *runner) install(ctx context.Context, p *plan) {
	wanted := needs
	if len(p.stale) > 0 {
		wanted = slices.Concat(wanted, kernelNeeds)
	}
	if testenv.Thorough() {
		wanted = slices.Concat(wanted, thoroughNeeds)
	}
	packages := missing(wanted)
	if len(packages) == 0 {
		return
	}
	_, noApt := exec.LookPath("apt-get")
	if noApt != nil || os.Geteuid() != 0 {
		r.note("These Debian packages are missing, so the tests that use them were skipped (as root this command installs them): %s.", strings.Join(packages, " "))
		return
	}
	r.console.printf("Installing %s\n", strings.Join(packages, " "))
	end := r.results.begin("installing packages")
	r.console.setStatus(func() string { return fmt.Sprintf("%s  %s", elapsed(r.begun), r.results.doing()) })
	err := r.apt(ctx, packages)
	r.console.setStatus(nil)
	if ctx.Err() != nil {
		return
	}
	end()
	if still := missing(wanted); len(still) > 0 {
		if err == nil {
			err = errors.New("apt says that they are installed, and what tests use of them is not there")
		}
		r.console.printf("Without %s the tests that use them are skipped: %v\n", strings.Join(still, " "), err)
		r.note("These Debian packages could not be installed, so the tests that use them were skipped: %s.", strings.Join(still, " "))
	}
}

// apt installs packages: what is there of them, if some are not.
func (r *runner) apt(ctx context.Context, packages []string) error {
	fetching, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	if err := r.aptGet(fetching, "update"); err != nil {
		r.console.printf("%v\n", err) // the lists that are there may do
	}
	err := r.aptGet(fetching, "install", append([]string{"--download-only"}, packages...)...)
	if err != nil {
		for _, m := range unavailable.FindAllStringSubmatch(err.Error(), -1) {
			packages = slices.DeleteFunc(packages, func(p string) bool { return p == m[1] })
		}
		if len(packages) == 0 {
			return err
		}
		if again := r.aptGet(fetching, "install", append([]string{"--download-only"}, packages...)...); again != nil {
			return again
		}
	}
	// There is no limit on the installation of fetched packages: half an installation helps nobody.
	return errors.Join(err, r.aptGet(ctx, "install", append([]string{"--no-download"}, packages...)...))
}

// aptGet runs apt-get, and waits as long as another program holds its locks.
func (r *runner) aptGet(ctx context.Context, verb string, args ...string) error {
	said := false
	for begun := time.Now(); ; {
		cmd := r.procs.command(ctx, "apt-get", slices.Concat(aptOptions, []string{verb}, args)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
		out, err := r.procs.output(cmd)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("apt-get %s: %w", verb, ctx.Err())
		case !locked.MatchString(out) || time.Since(begun) > lockLimit:
			return fmt.Errorf("apt-get %s: %w\n%s", verb, err, lastLines(out, 5))
		case !said:
			r.console.printf("Another program uses the package manager: waiting up to %v\n%s\n", lockLimit, lastLines(out, 2))
			said = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(3 * time.Second):
		}
	}
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
