package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// A cost is what one run of something took.
type cost struct {
	wall, cpu time.Duration
	peak      int64 // bytes of memory
}

// A contender is measured beside others that do the same.
type contender struct {
	name   string
	run    func() (cost, error)
	writes string // the file that it makes, if any
	costs  []cost
}

// measure lets all contenders have their turn in every round, in another order each
// time.
func measure(contenders []*contender, rounds int) error {
	for round := range rounds {
		for i := range contenders {
			c := contenders[(i+round)%len(contenders)]
			cost, err := c.run()
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			c.costs = append(c.costs, cost)
		}
	}
	return nil
}

// ratio returns the median over the rounds of what the first takes of what the other
// takes.
func ratio(ours, theirs *contender, of func(cost) time.Duration) float64 {
	var ratios []float64
	for i := range ours.costs {
		ratios = append(ratios, float64(of(ours.costs[i]))/float64(of(theirs.costs[i])))
	}
	return median(ratios)
}

func wall(c cost) time.Duration { return c.wall }
func cpu(c cost) time.Duration  { return c.cpu }

// middle returns the median of one kind of cost.
func (c *contender) middle(of func(cost) time.Duration) time.Duration {
	var values []time.Duration
	for _, cost := range c.costs {
		values = append(values, of(cost))
	}
	return median(values)
}

func (c *contender) peak() int64 {
	var values []int64
	for _, cost := range c.costs {
		values = append(values, cost.peak)
	}
	return median(values)
}

// A task is a program to be run, whose output is not looked at.
type task struct {
	args  []string
	stdin string // name of a file
	cache string // the user's cache directory
	cold  bool   // the cache is empty each time
	asks  bool   // status 1 only says that something was not found
}

// measuredArg makes this program run another one and print what it took. A process
// starts with the memory of its parent as its peak: with little that way, rather than
// with all that is kept here.
const measuredArg = "measured"

// run runs the program and returns what the kernel accounts to it.
func (t task) run() (c cost, err error) {
	var stderr bytes.Buffer
	cmd := exec.Command("/proc/self/exe", append([]string{measuredArg}, t.args...)...)
	cmd.Stderr = &stderr
	if t.cold {
		if err := os.RemoveAll(t.cache); err != nil {
			return cost{}, err
		}
	}
	if t.cache != "" {
		cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+t.cache)
	}
	if t.stdin != "" {
		f, err := os.Open(t.stdin)
		if err != nil {
			return cost{}, err
		}
		defer f.Close()
		cmd.Stdin = f
	}
	out, err := cmd.Output()
	var status int
	if err == nil {
		_, err = fmt.Sscan(string(out), &c.wall, &c.cpu, &c.peak, &status)
	}
	if err == nil && status != 0 && !(t.asks && status == 1) {
		err = fmt.Errorf("exit status %d", status)
	}
	if err != nil {
		return cost{}, fmt.Errorf("%w %s", err, stderr.Bytes()[:min(300, stderr.Len())])
	}
	return c, nil
}

// printMeasured runs a program and prints its cost for run.
func printMeasured(args []string) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stderr = os.Stdin, os.Stderr
	start := time.Now()
	err := cmd.Run()
	wall := time.Since(start)
	if cmd.ProcessState == nil {
		return err
	}
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	peak := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	_, err = fmt.Println(int64(wall), int64(cpu), peak, cmd.ProcessState.ExitCode())
	return err
}

func (t task) contender(name string) *contender { return &contender{name: name, run: t.run} }

func seconds(d time.Duration) string {
	if d < 100*time.Millisecond {
		return fmt.Sprintf("%.4f", d.Seconds())
	}
	return fmt.Sprintf("%.2f", d.Seconds())
}

// versus returns ratio as text.
func versus(ours, theirs *contender, of func(cost) time.Duration) string {
	return number(ratio(ours, theirs, of))
}

func quotient(ours, theirs int64) string { return number(float64(ours) / float64(theirs)) }

func number(f float64) string {
	if f < 0.1 {
		return fmt.Sprintf("%.4f", f)
	}
	return fmt.Sprintf("%.2f", f)
}
