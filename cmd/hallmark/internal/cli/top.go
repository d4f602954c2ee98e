package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	pprof "github.com/google/pprof/profile"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"hallmark/capture"
	"hallmark/cmd/hallmark/internal/input"
	"hallmark/cmd/hallmark/internal/symbolsource"
	"hallmark/cmd/hallmark/internal/top"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/plaintext"
	"hallmark/internal/procfs"
	"hallmark/profile/summary"
)

const topLong = `Show, round after round, where the time goes now: on this machine, in some
processes, or in one container. The table has functions, binaries by identity,
or processes. The line below it says how much of what was sampled is known.

Keys: f, b and p choose the table, s sorts by flat or cum, / shows only lines
that have some text, Space pauses, q ends; ? lists all of them. The terminal is
what it was afterwards.

Where standard output is no terminal, or with --plain, each round is printed as
text, and with --json as an object a line. --rounds ends after so many.

Each round is a recording of its own, as 'hallmark record' makes it: the next
one begins while the one before is shown. No debuginfod server is asked.
Permissions are those of 'hallmark record'.`

func newTopCommand(e *verb.Env) *cobra.Command {
	t := &topVerb{env: e}
	var backend, callGraph, table string
	cmd := &cobra.Command{
		Use:   "top [flags] [-p PID[,PID]]",
		Short: "Show where the time goes now, by function, binary or process",
		Long:  topLong,
		Example: `  hallmark top
  hallmark top -p 1234 --table binaries
  hallmark top --container 5c8f3a
  hallmark top --rounds 1 --plain
  hallmark top --json | jq .coverage.identified`,
		Args: verb.NoArguments,
		RunE: func(_ *cobra.Command, _ []string) error {
			var err error
			if t.opts.Backend, err = capture.ParseBackend(backend); err != nil {
				return verb.Usage(err)
			}
			if t.opts.CallGraph, err = capture.ParseCallGraph(callGraph); err != nil {
				return verb.Usage(err)
			}
			var ok bool
			if t.state.Table, ok = top.ParseTable(table); !ok {
				return verb.Usagef("--table %s: must be %s", table, strings.Join(top.TableNames(), ", "))
			}
			if err := t.check(); err != nil {
				return verb.Usage(err)
			}
			return t.run()
		},
	}
	f := cmd.Flags()
	f.VarP((*verb.PIDList)(&t.opts.PIDs), "pid", "p", "look at these processes and the children they will have")
	f.StringVar(&t.container, "container", "", "look at the container whose number begins with `ID`")
	f.IntVarP(&t.opts.Frequency, "frequency", "F", capture.DefaultFrequency, "`HZ`: samples a second on each CPU")
	t.opts.Duration = 2 * time.Second
	f.Var((*verb.TimeSpan)(&t.opts.Duration), "interval", "how long a round is (seconds, or 2s, 1m)")
	f.IntVar(&t.rounds, "rounds", 0, "end after `N` rounds, 0 for none")
	f.StringVar(&table, "table", top.Functions.String(), "begin with this `TABLE`: functions, binaries or processes")
	verb.CompleteValues(cmd, "table", top.TableNames()...)
	f.BoolVar(&t.state.ByCum, "cum", false, "begin with lines sorted by cum")
	f.StringVar(&t.state.Filter, "filter", "", "begin with lines that have this `TEXT`")
	f.IntVar(&t.most, "top", defaultTop, "print `N` lines of each round, 0 for all; with --json all is the default")
	f.StringVar(&backend, "backend", capture.Auto.String(), "sample by this `BACKEND`, as 'hallmark record' does")
	verb.CompleteValues(cmd, "backend", "auto", "perf", "bpf", "stackmap")
	f.StringVar(&callGraph, "call-graph", capture.CallGraph{}.String(), "how callers are found, a `MODE`, as 'hallmark record' does")
	verb.CompleteValues(cmd, "call-graph", "auto", "fp", "dwarf")
	f.BoolVar(&t.plain, "plain", false, "print rounds as text, even to a terminal")
	f.BoolVar(&t.json, "json", false, "print each round as JSON, an object a line")
	return cmd
}

type topVerb struct {
	env       *verb.Env
	opts      capture.Options
	container string
	rounds    int
	most      int
	plain     bool
	json      bool
	state     top.State
}

func (t *topVerb) check() error {
	switch {
	case t.opts.Frequency < 1:
		return fmt.Errorf("a frequency of %d Hz is not positive", t.opts.Frequency)
	case t.opts.Duration < 100*time.Millisecond:
		return fmt.Errorf("an interval of %v is too short: 100ms is the least", t.opts.Duration)
	case t.rounds < 0 || t.most < 0:
		return errors.New("--rounds and --top cannot be negative")
	case t.container != "" && len(t.opts.PIDs) > 0:
		return errors.New("look at one of: a container (--container), some processes (-p)")
	}
	return nil
}

// run shows rounds until a key, a signal or their number ends that.
func (t *topVerb) run() error {
	if err := checkProc("/proc"); err != nil {
		return err
	}
	if t.container != "" && !isRunning(t.container) {
		return fmt.Errorf("no process is in a container whose number begins with %s", plaintext.Quote(t.container))
	}
	verb.CollectLate()
	t.opts.CacheDir = input.CacheDir()
	t.opts.SystemWide = len(t.opts.PIDs) == 0
	t.state.Target = t.target()
	ctx, over := verb.Interruptible()
	defer over()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	out, isFile := t.screen()
	if t.plain || t.json || !isFile {
		return t.print(ctx, stop)
	}
	// The first session is opened before the screen is taken: its error is for the shell.
	first, err := capture.Start(ctx, t.opts)
	if err != nil {
		return err
	}
	screen, err := top.OpenTerminal(os.Stdin, out)
	if err != nil {
		first.Close()
		return err
	}
	defer screen.Close()
	// Messages on standard error would be written over the screen.
	t.env = &verb.Env{Stdout: t.env.Stdout, Stderr: io.Discard, Stdin: t.env.Stdin}
	defer context.AfterFunc(ctx, screen.Close)()
	r := t.record(ctx, first)
	err = screen.Show(ctx, &t.state, r.rounds)
	screen.Close()
	stop()
	return errors.Join(err, r.wait())
}

// screen returns the terminal that standard output is, if keys can be read.
func (t *topVerb) screen() (*os.File, bool) {
	if !term.IsTerminal(int(os.Stdout.Fd())) || !term.IsTerminal(int(os.Stdin.Fd())) {
		return nil, false
	}
	return os.Stdout, true
}

func (t *topVerb) target() string {
	switch {
	case t.container != "":
		return "container " + t.container
	case len(t.opts.PIDs) == 1:
		return fmt.Sprintf("process %d", t.opts.PIDs[0])
	case len(t.opts.PIDs) > 1:
		return plaintext.Plural(int64(len(t.opts.PIDs)), "process", "processes")
	}
	return "the machine"
}

// print prints rounds.
func (t *topVerb) print(ctx context.Context, stop func()) error {
	first, err := capture.Start(ctx, t.opts)
	if err != nil {
		return err
	}
	r := t.record(ctx, first)
	out := verb.NewObjectWriter(t.env.Stdout)
	for round := range r.rounds {
		t.state.Sum, t.state.Round = round.Sum, round.Round
		if !t.json {
			t.state.WriteRound(t.env.Stdout, t.most)
		} else if err = out.Write(struct {
			Round int `json:"round"`
			*summary.Summary
		}{round.Round, round.Sum}); err != nil {
			break
		}
		if t.env.LostOutput() != nil { // nobody reads it any more
			break
		}
	}
	stop()
	return errors.Join(err, r.wait())
}

// recorder records rounds.
type recorder struct {
	rounds chan top.State
	done   chan struct{}
	err    error // valid once done is closed
}

// wait returns what ended the recording, nil for its own end.
func (r *recorder) wait() error {
	<-r.done
	return r.err
}

// record records rounds until ctx is done. While one is added up, the next is recorded.
func (t *topVerb) record(ctx context.Context, s *capture.Session) *recorder {
	r := &recorder{rounds: make(chan top.State), done: make(chan struct{})}
	go func() {
		defer close(r.done)
		var adding sync.WaitGroup
		failed := make(chan error, 1)
		fail := func(err error) {
			select {
			case failed <- err:
			default:
			}
		}
		defer func() {
			adding.Wait()
			close(r.rounds)
			select {
			case r.err = <-failed:
			default:
			}
		}()
		for n := 1; ; n++ {
			err := s.Run(ctx)
			if err != nil || ctx.Err() != nil {
				s.Close()
				if ctx.Err() == nil {
					fail(err)
				}
				return
			}
			adding.Wait() // one at a time
			ended, last := s, n == t.rounds
			adding.Go(func() {
				defer ended.Close()
				sum, err := t.sum(ctx, ended)
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					fail(err)
					return
				}
				select {
				case r.rounds <- top.State{Sum: sum, Round: n}:
				case <-ctx.Done():
				}
			})
			if last {
				return
			}
			if s, err = capture.Start(ctx, t.opts); err != nil {
				if ctx.Err() == nil {
					fail(err)
				}
				return
			}
		}
	}()
	return r
}

// sum adds up a round.
func (t *topVerb) sum(ctx context.Context, s *capture.Session) (*summary.Summary, error) {
	recording, err := s.Finish(ctx)
	if err != nil {
		return nil, err
	}
	p := recording.Profile
	if t.container != "" {
		onlyContainer(p, t.container)
	}
	misses, err := recording.SymbolizeFunctions(ctx)
	if err != nil {
		return nil, err
	}
	shown, err := (&symbolsource.Options{NoDebuginfod: true}).Show(t.env, p)
	if err != nil {
		return nil, err
	}
	for l, why := range shown {
		misses[l] = why
	}
	sum, err := summary.New(p, summary.Options{Misses: misses})
	if err == nil && t.json && t.most > 0 && t.most != defaultTop {
		sum.Functions = sum.Functions[:min(len(sum.Functions), t.most)]
	}
	return sum, err
}

// isRunning reports whether a process is in a container whose number begins with id.
func isRunning(id string) bool {
	pids, err := procfs.Processes()
	return err != nil || slices.ContainsFunc(pids, func(pid int) bool {
		number := procfs.ContainerOf(pid)
		return number != "" && strings.HasPrefix(number, id)
	})
}

// onlyContainer leaves the samples of a container.
func onlyContainer(p *pprof.Profile, id string) {
	kept := p.Sample[:0]
	for _, s := range p.Sample {
		if numbers := s.Label["container"]; len(numbers) > 0 && strings.HasPrefix(numbers[0], id) {
			kept = append(kept, s)
		}
	}
	p.Sample = kept
}
