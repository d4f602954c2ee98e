package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	pprof "github.com/google/pprof/profile"
	"github.com/spf13/cobra"

	"hallmark/capture"
	"hallmark/internal/atomicfile"
	"hallmark/internal/progress"
	"hallmark/profile"
)

const recordLong = `Record which code runs: of every process (-a), of some (-p), or of a command.

The profile is in pprof's format. Each frame has the identity (build ID) of the
exact file it is from and the place in that file, so symbols can be added on any
machine and at any later time; those found on this machine are added at once.

Recording ends with the command, with the processes, after --duration or with
Ctrl-C, and the profile is written in every case. The exit status is that of the
command.

An ordinary user may record own processes, without kernel code, as long as
kernel.perf_event_paranoid is 2 or less. Everything else needs root.`

func newRecordCommand(e *env) *cobra.Command {
	r := &record{env: e}
	var event string
	cmd := &cobra.Command{
		Use:   "record [flags] [-a | -p PID[,PID] | -- CMD [ARG...]]",
		Short: "Record a profile whose every frame says which exact file it is from",
		Long:  recordLong,
		Example: `  hallmark record -- gzip -k big.log
  hallmark record -a -d 30s -o machine.pb.gz
  hallmark record -p 1234,5678 --view
  hallmark record --report -- python3 train.py`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if r.opts.Event, err = capture.ParseEvent(event); err != nil {
				return usageError{err}
			}
			if err := r.check(args); err != nil {
				return usageError{err}
			}
			return r.run(cmd.Context(), args)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&r.opts.SystemWide, "all", "a", false, "record every process on every CPU")
	f.IntSliceVarP(&r.opts.PIDs, "pid", "p", nil, "record these processes and the children they will have")
	f.IntVarP(&r.opts.Frequency, "frequency", "F", capture.DefaultFrequency, "samples a second and CPU")
	f.DurationVarP(&r.opts.Duration, "duration", "d", 0, "stop recording after this time (30s, 5m)")
	f.StringVarP(&r.output, "output", "o", "hallmark.pb.gz", "write the profile to this file")
	f.StringVar(&event, "event", capture.CPUClock.String(), "what to sample by: `cpu-clock` or cycles")
	f.BoolVar(&r.noSymbols, "no-symbols", false, "leave the symbols of files for later")
	f.BoolVar(&r.report, "report", false, "show the report of the profile when it is written")
	f.BoolVar(&r.view, "view", false, "open the profile in a browser when it is written")
	return cmd
}

type record struct {
	env          *env
	opts         capture.Options
	noSymbols    bool
	output       string
	report, view bool
}

// maxFrequency is the kernel's own default limit, kernel.perf_event_max_sample_rate.
const maxFrequency = 100_000

func (r *record) check(args []string) error {
	targets := 0
	for _, given := range []bool{r.opts.SystemWide, len(r.opts.PIDs) > 0, len(args) > 0} {
		if given {
			targets++
		}
	}
	switch {
	case targets == 0:
		return errors.New("say what to record: -a, -p PID or -- CMD")
	case targets > 1:
		return errors.New("record one of: every process (-a), some (-p), a command")
	case r.opts.Frequency < 1 || r.opts.Frequency > maxFrequency:
		return fmt.Errorf("a frequency of %d is not between 1 and %d Hz", r.opts.Frequency, maxFrequency)
	case r.opts.Duration < 0:
		return fmt.Errorf("a duration of %v is negative", r.opts.Duration)
	}
	return nil
}

func (r *record) run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		c, err := capture.StartCommand(args)
		if err != nil {
			return commandError(err)
		}
		r.opts.Command = c
	}
	p, misses, err := r.record(ctx)
	if err != nil {
		if r.opts.Command != nil {
			r.opts.Command.Kill()
		}
		return err
	}
	if r.opts.Command != nil && ctx.Err() != nil {
		r.opts.Command.Terminate()
	}
	if err := r.show(p, misses); err != nil {
		return err
	}
	return r.commandStatus(ctx)
}

// commandError gives a command that cannot be started the exit status that
// shells give it.
func commandError(err error) error {
	if errors.Is(err, exec.ErrNotFound) {
		return statusError{127, err}
	}
	return statusError{126, err}
}

// record records and writes the profile.
func (r *record) record(ctx context.Context) (*pprof.Profile, profile.Misses, error) {
	bar := r.showProgress()
	s, err := capture.Start(r.opts)
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	for _, missing := range s.Stats().Reduced {
		fmt.Fprintf(r.env.stderr, "hallmark: recording without %s\n", missing)
	}
	runErr := s.Run(ctx)
	bar.Clear()
	recording, err := s.Finish()
	if err := errors.Join(runErr, err); err != nil {
		return nil, nil, err
	}
	var misses profile.Misses
	if !r.noSymbols {
		misses = recording.Symbolize()
	}
	p := recording.Profile
	err = atomicfile.Write(r.output, 0o666, func(w io.Writer) error { return p.Write(w) })
	if err != nil {
		return nil, nil, fmt.Errorf("writing the profile: %w", err)
	}
	r.tell(s.Stats(), p, misses)
	return p, misses, nil
}

// showProgress lets a recording of processes tell on a terminal how far it is. A
// command has the terminal for itself.
func (r *record) showProgress() *progress.Bar {
	bar := progress.New(r.env.stderr)
	if bar == nil || r.opts.Command != nil {
		return nil
	}
	if r.opts.Duration == 0 {
		fmt.Fprintln(r.env.stderr, "hallmark: recording; Ctrl-C ends it and writes the profile")
		return nil
	}
	r.opts.Progress = func(elapsed time.Duration, s capture.Stats) {
		bar.Set(float64(elapsed)/float64(r.opts.Duration), plural(int64(s.Samples), "sample"))
	}
	return bar
}

// tell says in a few lines how the recording went.
func (r *record) tell(stats capture.Stats, p *pprof.Profile, misses profile.Misses) {
	c := profile.MeasureCoverage(p, misses)
	fmt.Fprintf(r.env.stderr, "hallmark: %d samples in %v, %s of the frames in files identified; wrote %s\n",
		stats.Samples, time.Duration(p.DurationNanos).Round(10*time.Millisecond), percent(c.FileIdentified, c.FileFrames), r.output)
	if stats.Lost > 0 {
		fmt.Fprintf(r.env.stderr, "hallmark: %d records were lost: the machine was too busy to read them in time\n", stats.Lost)
	}
	if stats.Throttled > 0 {
		fmt.Fprintf(r.env.stderr, "hallmark: the kernel held sampling back %d times: record with a lower --frequency\n", stats.Throttled)
	}
	if stats.Coarse > 0 {
		fmt.Fprintf(r.env.stderr, "hallmark: %d samples lost some detail to keep memory bounded: record for a shorter time\n", stats.Coarse)
	}
	if stats.Malformed > 0 {
		fmt.Fprintf(r.env.stderr, "hallmark: %d records were malformed and left out\n", stats.Malformed)
	}
}

// show shows the profile. What ended the recording must not end the view, so
// that has an interrupt of its own.
func (r *record) show(p *pprof.Profile, misses profile.Misses) error {
	if r.report {
		if err := writeReport(r.env, p, misses); err != nil {
			return err
		}
	}
	if !r.view {
		return nil
	}
	ctx, stop := interruptible()
	defer stop()
	return viewProfile(ctx, r.env, p)
}

// commandStatus waits for the command, which may outlive the recording, and
// returns its exit status. Ctrl-C asks the command to end as well.
func (r *record) commandStatus(ctx context.Context) error {
	c := r.opts.Command
	if c == nil {
		return nil
	}
	stop := context.AfterFunc(ctx, c.Terminate)
	defer stop()
	if status := c.Wait(); status != 0 {
		return exitStatus(status)
	}
	return nil
}
