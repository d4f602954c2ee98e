package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"syscall"
	"time"

	pprof "github.com/google/pprof/profile"
	"github.com/spf13/cobra"

	"hallmark/capture"
	"hallmark/internal/atomicfile"
	"hallmark/internal/progress"
	"hallmark/profile"
	"hallmark/reason"
)

const recordLong = `Record which code runs: of every process (-a), of some (-p), or of a command.

The profile is in pprof's format, or in that of perf where the name of the output ends
in perf.data: 'perf report' and its kin read it, with a build ID of every file. Each
frame has the identity (build ID) of the exact file it is from and the place in that
file, so symbols can be added on any machine and at any later time; those found on this
machine are added at once.

Recording ends with the command, with the processes, after --duration or with
Ctrl-C, and the profile is written in every case. The exit status is that of the
command.

The backend bpf finds the file of each frame inside the kernel, also of processes that
exit at once, and needs root; perf learns of mappings from the kernel's records. What
works here is taken, bpf before perf: 'hallmark doctor' says which, and why.

Callers are found by the call frame information of the files (--call-graph auto), which
is in everything that distributions build: with the backend bpf inside the kernel, by
tables that are made once of each file and kept in ~/.cache/hallmark/unwind. The backend
perf follows frame pointers unless --call-graph dwarf has it copy stacks, which costs
more; dwarf,SIZE says how many bytes of each. --call-graph fp follows frame pointers in
any case, and is for code that was built with them.

With --timeline every sample keeps its time, for viewers that show what ran when.

An ordinary user may record own processes, without kernel code, as long as
kernel.perf_event_paranoid is 2 or less. Everything else needs root.`

func newRecordCommand(e *env) *cobra.Command {
	r := &record{env: e}
	var event, backend, callGraph string
	cmd := &cobra.Command{
		Use:   "record [flags] [-a | -p PID[,PID] | -- CMD [ARG...]]",
		Short: "Record a profile whose every frame says which exact file it is from",
		Long:  recordLong,
		Example: `  hallmark record -- gzip -k big.log
  hallmark record -a -d 30s -o machine.pb.gz
  hallmark record -p 1234,5678 --view
  hallmark record -a -d 5s -o out.perf.data && perf report -i out.perf.data
  hallmark record --report -- python3 train.py
  hallmark record --backend perf --call-graph dwarf,32768 -- ./prog
  hallmark record -a -d 10m --unwind-memory 256`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if r.opts.Event, err = capture.ParseEvent(event); err != nil {
				return usageError{err}
			}
			if r.opts.Backend, err = capture.ParseBackend(backend); err != nil {
				return usageError{err}
			}
			if r.opts.CallGraph, err = capture.ParseCallGraph(callGraph); err != nil {
				return usageError{err}
			}
			r.opts.UnwindMemory = r.unwindMemory << 20
			if cmd.Flags().Changed("duration") && r.opts.Duration == 0 {
				return usageError{errors.New("a duration of 0 records nothing")}
			}
			if err := r.check(args); err != nil {
				return usageError{err}
			}
			ctx, stop := interruptible()
			defer stop()
			return r.run(ctx, args)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&r.opts.SystemWide, "all", "a", false, "record every process on every CPU")
	f.IntSliceVarP(&r.opts.PIDs, "pid", "p", nil, "record these processes and the children they will have")
	f.IntVarP(&r.opts.Frequency, "frequency", "F", capture.DefaultFrequency, "samples a second and CPU")
	f.DurationVarP(&r.opts.Duration, "duration", "d", 0, "stop recording after this time (30s, 5m)")
	f.StringVarP(&r.output, "output", "o", "hallmark.pb.gz", "write the profile to this file, - for standard output; one whose name ends in perf.data is for perf")
	f.StringVar(&event, "event", capture.CPUClock.String(), "what to sample by: `cpu-clock` or cycles")
	completeValues(cmd, "event", "cpu-clock", "cycles")
	f.StringVar(&backend, "backend", capture.Auto.String(), "how to sample: `auto`, perf, bpf (files are identified inside the kernel; root only), or stackmap (by the kernel's own means)")
	completeValues(cmd, "backend", "auto", "perf", "bpf", "stackmap")
	f.StringVar(&callGraph, "call-graph", capture.CallGraph{}.String(), "how callers are found: `auto`, fp (by frame pointers), dwarf (by call frame information), or dwarf,SIZE")
	completeValues(cmd, "call-graph", "auto", "fp", "dwarf")
	f.Int64Var(&r.unwindMemory, "unwind-memory", capture.DefaultUnwindMemory>>20, "room for unwind tables in the kernel, in `MB`, of the backend bpf")
	f.BoolVar(&r.opts.Timeline, "timeline", false, "keep the time of every sample, for 'hallmark convert' to speedscope")
	f.IntVar(&r.opts.TableEntries, "table-entries", capture.DefaultTableEntries, "room for `N` files in the kernel's table of the backend bpf")
	f.BoolVar(&r.noSymbols, "no-symbols", false, "leave the symbols of files for later")
	f.BoolVar(&r.report, "report", false, "show the report of the profile when it is written")
	f.BoolVar(&r.view, "view", false, "open the profile in a browser when it is written")
	return cmd
}

type record struct {
	env          *env
	opts         capture.Options
	unwindMemory int64 // MiB
	noSymbols    bool
	output       string
	report, view bool
}

// maxUnwindMemory, in MiB, is beyond the tables of all files of a large machine.
const maxUnwindMemory = 4096

// maxTableEntries bounds the memory of the table to about 1 GB.
const maxTableEntries = 1 << 22

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
	case r.opts.Frequency < 1:
		return fmt.Errorf("a frequency of %d Hz is not positive", r.opts.Frequency)
	case r.opts.TableEntries < 1 || r.opts.TableEntries > maxTableEntries:
		return fmt.Errorf("%d table entries are not between 1 and %d", r.opts.TableEntries, maxTableEntries)
	case r.unwindMemory < 1 || r.unwindMemory > maxUnwindMemory:
		return fmt.Errorf("--unwind-memory %d is not between 1 and %d", r.unwindMemory, maxUnwindMemory)
	case r.output == "":
		return errors.New("--output has no name in it")
	case r.output == "-" && r.report:
		return errors.New("standard output cannot take both the profile and --report")
	case r.opts.Duration < 0:
		return fmt.Errorf("a duration of %v is negative", r.opts.Duration)
	}
	return nil
}

// run records into the output, which is opened first: a place that cannot be
// written to is found before anything is started.
func (r *record) run(ctx context.Context, args []string) error {
	collectLate()
	r.opts.CacheDir = cacheDir()
	result, err := r.write(func(w io.Writer) (*result, error) { return r.record(ctx, args, w) })
	if result == nil {
		return err
	}
	c := r.opts.Command
	if c != nil {
		// Ctrl-C asks the command to end as well, which may outlive the recording.
		stop := context.AfterFunc(ctx, c.Terminate)
		defer stop()
	}
	if err == nil {
		r.tell(result)
	} else {
		fmt.Fprintf(r.env.stderr, "hallmark: %v\n", err)
	}
	if err := errors.Join(err, r.show(result)); err != nil {
		r.commandStatus()
		return exitStatus(1)
	}
	return r.commandStatus()
}

// result is what was recorded, even if it could not be written.
type result struct {
	profile *pprof.Profile
	misses  profile.Misses
	stats   capture.Stats
}

// write lets record write to the output.
func (r *record) write(record func(io.Writer) (*result, error)) (result *result, err error) {
	if r.output == "-" {
		return record(r.env.stdout)
	}
	if isPerfName(r.output) {
		err = atomicfile.WriteSeeking(r.output, 0o666, func(w io.WriteSeeker) (err error) {
			result, err = record(w)
			return err
		})
		return result, err
	}
	err = atomicfile.Write(r.output, 0o666, func(w io.Writer) (err error) {
		result, err = record(w)
		return err
	})
	return result, err
}

// record records and writes the profile to w. With an error there may be a result.
func (r *record) record(ctx context.Context, args []string, w io.Writer) (*result, error) {
	if len(args) > 0 {
		c, err := capture.StartCommand(args)
		if err != nil {
			return nil, commandError(err)
		}
		r.opts.Command = c
	}
	bar := r.showProgress()
	s, err := capture.Start(r.opts)
	if err != nil {
		r.abandon()
		return nil, err
	}
	defer s.Close()
	for _, missing := range s.Stats().Reduced {
		fmt.Fprintf(r.env.stderr, "hallmark: recording without %s\n", missing)
	}
	err = s.Run(ctx)
	bar.Clear()
	var exec *capture.ExecError
	if errors.As(err, &exec) {
		return nil, commandError(err)
	}
	recording := s.Finish()
	done := &result{profile: recording.Profile}
	if !r.noSymbols {
		done.misses = recording.Symbolize()
	}
	done.stats = s.Stats()
	encode := profile.Write
	if isPerfName(r.output) {
		encode = writePerfHere
	}
	if writeErr := encode(w, done.profile); writeErr != nil {
		err = errors.Join(err, fmt.Errorf("writing the profile: %w", writeErr))
	}
	return done, err
}

// abandon ends a command that was never let go.
func (r *record) abandon() {
	if r.opts.Command != nil {
		r.opts.Command.Kill()
	}
}

// commandError gives a command that cannot be run the exit status that shells
// give it.
func commandError(err error) error {
	var failed *capture.ExecError
	missing := errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) ||
		errors.As(err, &failed) && failed.Reason == syscall.ENOENT.Error() // its interpreter
	if missing {
		return statusError{127, err}
	}
	return statusError{126, err}
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
func (r *record) tell(done *result) {
	c := profile.MeasureCoverage(done.profile, done.misses)
	share := stackShare(c.Stacks)
	if c.FileFrames > 0 {
		share += percent(c.FileIdentified, c.FileFrames) + " of the frames in files identified; "
	}
	stats := done.stats
	fmt.Fprintf(r.env.stderr, "hallmark: %s in %v by %v, %swrote %s\n", plural(int64(stats.Samples), "sample"),
		time.Duration(done.profile.DurationNanos).Round(10*time.Millisecond), stats.Backend, share, r.output)
	for _, loss := range []struct {
		count uint64
		text  string
	}{
		{stats.Lost, "records were lost: the machine was too busy to read them in time"},
		{stats.Collided, "samples had no place in the kernel's map of stacks: record with a lower --frequency"},
		{stats.Throttled, "times the kernel held sampling back: record with a lower --frequency"},
		{stats.Coarse, "samples lost some detail to keep memory bounded: record for a shorter time"},
		{stats.Untimed, "samples have no time in the timeline, to keep memory bounded: record for a shorter time"},
		{stats.Table.Full, "frames found no room in the kernel's table of files: record with more --table-entries"},
		{stats.Table.Refused, "of the frames found the kernel's table of files locked: what that cost, if anything, is among the reasons of the coverage"},
		{stats.Unwind.NoRoom, "unwind tables found no room in the kernel: record with more --unwind-memory"},
		{stats.Unwind.Evicted, "unwind tables made room for others in the kernel: record with more --unwind-memory"},
		{stats.Unfollowed, "processes were not recorded, because too many ran at once: record with -a"},
		{stats.Malformed, "records were malformed and left out"},
		{stats.Disagreed, "files have another identity than processes had in memory: the file counts"},
	} {
		if loss.count > 0 {
			fmt.Fprintf(r.env.stderr, "hallmark: %s %s\n", thousands(int64(loss.count)), loss.text)
		}
	}
}

// stackShare tells how many stacks are complete, and nothing of those that were walked by
// frame pointers, which do not tell.
func stackShare(s *profile.Stacks) string {
	if s == nil {
		return ""
	}
	told := s.Samples
	for _, g := range s.Gaps {
		if g.Reason == reason.FramePointers {
			told -= g.Samples
		}
	}
	if told == 0 {
		return ""
	}
	return percent(s.Complete, told) + " of the stacks complete, "
}

// show shows the profile. What ended the recording must not end the view, so
// that has an interrupt of its own.
func (r *record) show(done *result) error {
	if r.report {
		if err := writeReport(r.env, done.profile, done.misses); err != nil {
			return err
		}
	}
	if !r.view {
		return nil
	}
	ctx, stop := interruptible()
	defer stop()
	return viewProfile(ctx, r.env, done.profile)
}

// commandStatus waits for the command, which may outlive the recording, and
// returns its exit status.
func (r *record) commandStatus() error {
	c := r.opts.Command
	if c == nil {
		return nil
	}
	select {
	case <-c.Done():
	default:
		fmt.Fprintln(r.env.stderr, "hallmark: waiting for the command to end")
	}
	if status := c.Wait(); status != 0 {
		return exitStatus(status)
	}
	return nil
}
