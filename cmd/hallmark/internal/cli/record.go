package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	pprof "github.com/google/pprof/profile"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"hallmark/capture"
	"hallmark/cmd/hallmark/internal/input"
	"hallmark/cmd/hallmark/internal/progress"
	"hallmark/cmd/hallmark/internal/symbolsource"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/atomicfile"
	"hallmark/internal/plaintext"
	"hallmark/launch"
	"hallmark/perfdata"
	"hallmark/profile"
	"hallmark/profile/svg"
	"hallmark/profile/toperf"
	"hallmark/reason"
)

const recordLong = `Record which code runs: in every process (-a), in some (-p), or in a command. A
command beside -a or -p limits the time: they are recorded while it runs.

Each frame of the profile has the identity (build ID) of the exact file it is
from, and the offset in that file. Symbols can be added on any machine, at any
later time ('hallmark convert'); those found here are added at once. These are
functions, and source lines and inlined calls where the file or a debug file on
this machine has debug information. A file with more than 128 MiB of it, or read
when that takes longer than 5 seconds, has functions only, unless 'hallmark
index' prepared it; a note names it.

The format is pprof's, or the one that the output's name ends in, as in
'hallmark convert': .folded, .speedscope.json, .firefox.json, .html, .svg,
perf.data, .otlp.

If files of different content claim one build ID, the one that only root or you
can have written keeps it. The others are shown by a hash of their code
(content:…), and a note names the files.

End: recording ends with the command, with the processes, after --duration, or
with Ctrl-C, Ctrl-\, SIGTERM or SIGHUP. The profile is written in every case.
Only a second Ctrl-C or Ctrl-\, a second or more after the first, gives it up.
The exit status is that of the command. Only you can read a new output; a
replaced one keeps its mode. With -o - the profile goes to standard output, and
the output of the command to standard error.

Backends: bpf finds the file of each frame inside the kernel, on Linux 6.1 or
later, also in processes that end at once. From Linux 6.18 on it reads the
identity there as well; before, Hallmark opens the file. perf learns of mappings
from the kernel's records. Hallmark takes bpf where it works; 'hallmark doctor'
says whether, and why not.

Callers: by default (--call-graph auto) Hallmark finds them by the call frame
information of the files, which distributions build into everything. bpf does so
inside the kernel, with tables that are kept in ~/.cache/hallmark/unwind. With
perf, each sample copies 16 KiB of its stack, or SIZE bytes with dwarf,SIZE; a
copy costs about 0.1 ms of CPU time. Beyond a copy, frame pointers are followed.
--call-graph fp follows only frame pointers, for code that was built with them.

--timeline keeps the time of every sample, for viewers that show what ran when.

Permissions: an ordinary user may record own processes, without kernel code,
where kernel.perf_event_paranoid is 2 or less. CAP_PERFMON adds kernel code,
other users' processes and -a; CAP_BPF adds the backend bpf; CAP_SYS_PTRACE and
CAP_CHECKPOINT_RESTORE open files of other users' processes; CAP_SYSLOG adds the
kernel's symbols. Root has all of them.`

func newRecordCommand(e *verb.Env) *cobra.Command {
	r := &record{env: e}
	var event, backend, callGraph string
	cmd := &cobra.Command{
		Use:   "record [flags] [-a | -p PID[,PID]] [-- CMD [ARG...]]",
		Short: "Record a profile whose frames say which exact file they are from",
		Long:  recordLong,
		Example: `  hallmark record -- gzip -k big.log
  hallmark record -a -d 30s -o machine.pb.gz
  hallmark record -p 1234,5678 --view
  hallmark record -a -- sleep 5
  hallmark record -o out.speedscope.json --timeline -- ./prog
  hallmark record -a -d 5s -o out.perf.data && perf report -i out.perf.data
  hallmark record --report -- python3 train.py
  hallmark record --backend perf --call-graph dwarf,32768 -- ./prog
  hallmark record -a -d 10m --unwind-memory 256`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if r.opts.Event, err = capture.ParseEvent(event); err != nil {
				return verb.Usage(err)
			}
			if r.opts.Backend, err = capture.ParseBackend(backend); err != nil {
				return verb.Usage(err)
			}
			if r.opts.CallGraph, err = capture.ParseCallGraph(callGraph); err != nil {
				return verb.Usage(err)
			}
			if r.opts.Backend == capture.Stackmap && r.opts.CallGraph.By == capture.ByDWARF {
				return verb.Usagef("the backend stackmap knows frame pointers only: use --call-graph fp, or the backend bpf or perf")
			}
			if r.as, err = recordedFormat(r.format, r.output); err != nil {
				return err
			}
			if !cmd.Flags().Changed("output") {
				r.output = r.as.defaultName()
			}
			r.opts.UnwindMemory = r.unwindMemory << 20
			if cmd.Flags().Changed("duration") && r.opts.Duration == 0 {
				return verb.Usagef("a duration of 0 records nothing")
			}
			if err := checkCommand(cmd, args); err != nil {
				return err
			}
			if err := r.check(args); err != nil {
				return verb.Usage(err)
			}
			return r.run(args)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what is behind the command is the command's
	f.BoolVarP(&r.opts.SystemWide, "all", "a", false, "record every process on every CPU")
	f.VarP((*verb.PIDList)(&r.opts.PIDs), "pid", "p", "record these processes and the children they will have")
	f.IntVarP(&r.opts.Frequency, "frequency", "F", capture.DefaultFrequency, "`HZ`: samples a second on each CPU")
	f.VarP((*verb.TimeSpan)(&r.opts.Duration), "duration", "d", "stop recording after this time (seconds, or 30s, 5m)")
	f.StringVarP(&r.output, "output", "o", input.DefaultFile, "write the profile to this `FILE`, - for standard output (that of the command goes to standard error then), in the format that its name ends in as with 'hallmark convert'")
	f.StringVar(&r.format, "format", "", "write this `FORMAT`: folded, speedscope, firefox, html, svg, pprof, perf or otlp (default: by the name of the output, else pprof); without --output to hallmark.folded and so on")
	verb.CompleteValues(cmd, "format", formatNames()...)
	f.StringVarP(&event, "event", "e", capture.CPUClock.String(), "sample by this `EVENT`: cpu-clock or cycles")
	f.BoolP("stacks", "g", false, "accepted as perf's: callers are recorded in any case")
	verb.CompleteValues(cmd, "event", "cpu-clock", "cycles")
	f.StringVar(&backend, "backend", capture.Auto.String(), "sample by this `BACKEND`: auto, perf, bpf (files are identified inside the kernel; takes CAP_BPF and CAP_PERFMON), or stackmap (by the kernel's own means)")
	verb.CompleteValues(cmd, "backend", "auto", "perf", "bpf", "stackmap")
	f.StringVar(&callGraph, "call-graph", capture.CallGraph{}.String(), "how callers are found, a `MODE`: auto, fp (by frame pointers), dwarf (by call frame information), or dwarf,SIZE")
	verb.CompleteValues(cmd, "call-graph", "auto", "fp", "dwarf")
	f.Int64Var(&r.unwindMemory, "unwind-memory", capture.DefaultUnwindMemory>>20, "room for unwind tables in the kernel, in `MB`, of the backend bpf")
	f.BoolVar(&r.opts.Timeline, "timeline", false, "keep the time of every sample, for 'hallmark convert' to speedscope and Firefox Profiler")
	f.IntVar(&r.opts.TableEntries, "table-entries", capture.DefaultTableEntries, "room for `N` files in the kernel's table of the backend bpf")
	f.BoolVar(&r.noSymbols, "no-symbols", false, "leave the symbols of files for later")
	f.BoolVar(&r.report, "report", false, "show the report of the profile when it is written")
	f.BoolVar(&r.view, "view", false, "open the profile in a browser when it is written")
	return cmd
}

type record struct {
	env          *verb.Env
	opts         capture.Options
	unwindMemory int64 // MiB
	noSymbols    bool
	output       string
	format       string          // as it was asked for
	as           format          // which the output gets
	command      *launch.Command // nil for none
	report, view bool
}

// maxUnwindMemory, in MiB, is beyond the tables of all files of a large machine.
const maxUnwindMemory = 4096

// maxTableEntries bounds the memory of the table to about 1 GB.
const maxTableEntries = 1 << 22

func (r *record) check(args []string) error {
	switch {
	case !r.opts.SystemWide && len(r.opts.PIDs) == 0 && len(args) == 0:
		return errors.New("say what to record: -a, -p PID or -- CMD")
	case r.opts.SystemWide && len(r.opts.PIDs) > 0:
		return errors.New("record one of: every process (-a), some (-p)")
	case r.opts.Frequency < 1:
		return fmt.Errorf("a frequency of %d Hz is not positive", r.opts.Frequency)
	case r.opts.TableEntries < 1 || r.opts.TableEntries > maxTableEntries:
		return fmt.Errorf("%d table entries are not between 1 and %d", r.opts.TableEntries, maxTableEntries)
	case r.unwindMemory < 1 || r.unwindMemory > maxUnwindMemory:
		return fmt.Errorf("--unwind-memory %d is not between 1 and %d", r.unwindMemory, maxUnwindMemory)
	case r.output == "-" && r.report:
		return errors.New("standard output cannot take both the profile and --report")
	case r.output == "-" && r.view:
		return errors.New("standard output cannot take both the profile and the URL of --view")
	case r.opts.Duration < 0:
		return fmt.Errorf("a duration of %v is negative", r.opts.Duration)
	}
	return nil
}

// run records into the output, which is opened first: a place that cannot be
// written to is found before anything is started.
func (r *record) run(args []string) error {
	if err := checkProc("/proc"); err != nil {
		return err
	}
	ctx, written := verb.Promising()
	verb.CollectLate()
	r.opts.CacheDir = input.CacheDir()
	result, err := r.write(func(w io.Writer) (*result, error) { return r.record(ctx, args, w) })
	switch {
	case errors.Is(err, svg.ErrEmpty) && result.stats.Samples == 0:
		err = fmt.Errorf("%s was not written: %s", plaintext.Name(r.output), nothingSampled)
	case result != nil && err != nil:
		err = r.rescue(result, err)
	}
	written()
	if result == nil {
		return err
	}
	defer r.terminateWith(ctx)()
	if err == nil {
		r.printSummary(result)
	} else {
		fmt.Fprintf(r.env.Stderr, "hallmark: %s\n", plaintext.Text(terminal.Message(err, r.output)))
	}
	if err := errors.Join(err, r.show(result)); err != nil {
		r.commandStatus()
		return verb.ExitStatus(1)
	}
	return r.commandStatus()
}

// terminateWith asks the command to end, which may outlive the recording, if a signal has ended
// that, or with the next signal.
func (r *record) terminateWith(ctx context.Context) func() {
	c := r.command
	switch {
	case c == nil:
		return func() {}
	case ctx.Err() != nil:
		c.Terminate()
		return func() {}
	}
	waiting, over := verb.Interruptible()
	stop := context.AfterFunc(waiting, c.Terminate)
	return func() { stop(); over() }
}

// result is what was recorded, even if it could not be written.
type result struct {
	profile *pprof.Profile
	misses  profile.Misses
	stats   capture.Stats
}

// recordingMode is that of a new file with what was recorded: paths, arguments and functions of
// all users are for the one who records.
const recordingMode = 0o600

// write lets record write to the output.
func (r *record) write(record func(io.Writer) (*result, error)) (result *result, err error) {
	if r.output == "-" {
		return record(r.env.Stdout)
	}
	if r.as.name == "perf" {
		err = atomicfile.WriteSeeking(r.output, recordingMode, func(w io.WriteSeeker) (err error) {
			result, err = record(w)
			return err
		})
		return result, err
	}
	err = atomicfile.Write(r.output, recordingMode, func(w io.Writer) (err error) {
		result, err = record(w)
		return err
	})
	return result, err
}

// outputName is what messages call an output.
func outputName(name string) string {
	if name == "-" {
		return "the profile to standard output"
	}
	return plaintext.Name(name)
}

// rescue writes a profile that could not be written where it belongs to the directory for
// temporary files, and adds to the error where it is.
func (r *record) rescue(done *result, cause error) error {
	if r.output == "-" {
		return cause
	}
	name, err := filepath.Abs(r.output)
	if err != nil {
		name = r.output
	}
	var at *fs.PathError
	if errors.As(cause, &at) && at.Path == r.output {
		cause = at.Err
	}
	cause = fmt.Errorf("%s was not written: %w", name, cause)
	f, err := os.CreateTemp("", "hallmark-*-"+filepath.Base(name)) // mode 0600
	if err != nil {
		return fmt.Errorf("%w; the profile is lost: %w", cause, err)
	}
	err = errors.Join(r.encode(f, done.profile), f.Close())
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("%w; the profile is lost: writing %s: %w", cause, f.Name(), verb.ReasonOf(err))
	}
	return fmt.Errorf("%w; the profile is in %s", cause, f.Name())
}

// record records and writes the profile to w. With an error there may be a result.
func (r *record) record(ctx context.Context, args []string, w io.Writer) (*result, error) {
	if len(args) > 0 {
		if err := r.start(args); err != nil {
			return nil, err
		}
	}
	bar := r.showProgress()
	s, err := capture.Start(context.WithoutCancel(ctx), r.opts) // a signal ends Run, and what was seen is written
	if err != nil {
		r.abandon()
		return nil, err
	}
	defer s.Close()
	for _, missing := range s.Stats().Reduced {
		fmt.Fprintf(r.env.Stderr, "hallmark: recording without %s\n", missing)
	}
	for _, pid := range s.Stats().KernelThreads {
		fmt.Fprintf(r.env.Stderr, "hallmark: process %d is a kernel thread: it runs code of the kernel alone\n", pid)
	}
	err = s.Run(ctx)
	bar.Clear()
	if ctx.Err() != nil && progress.New(r.env.Stderr) != nil {
		fmt.Fprintln(r.env.Stderr, "hallmark: writing the profile; Ctrl-C gives it up")
	}
	var exec *launch.ExecError
	if errors.As(err, &exec) {
		return nil, commandError(err)
	}
	ctx = context.Background() // the next Ctrl-C ends this process
	recording, finishErr := s.Finish(ctx)
	if finishErr != nil {
		return nil, errors.Join(err, finishErr)
	}
	err = errors.Join(err, s.Release()) // room for symbols
	done := &result{profile: recording.Profile}
	if !r.noSymbols {
		done.misses, _ = recording.Symbolize(ctx)
	}
	done.stats = s.Stats()
	if writeErr := r.encode(w, done.profile); writeErr != nil {
		err = errors.Join(err, fmt.Errorf("writing the profile: %w", writeErr))
	}
	return done, err
}

// checkProc returns an error if there are no processes in a directory as /proc: programs are
// started by way of it, and files of processes found.
func checkProc(dir string) error {
	if _, err := os.Lstat(dir + "/self/exe"); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not mounted, and nothing is known of processes without it: mount -t proc proc %s", dir, dir)
	}
	return nil
}

// commandOptions has what a command prints on its standard output go to standard error, if
// standard output is for something else.
func commandOptions(output string) launch.Options {
	if output == "-" {
		return launch.Options{Stdout: os.Stderr}
	}
	return launch.Options{}
}

// abandon ends a command that was never let go.
func (r *record) abandon() {
	if r.command != nil {
		r.command.Kill()
	}
}

// start starts the command, which is what is recorded, unless that is the machine or some
// processes: then they are recorded for as long as it runs.
func (r *record) start(args []string) error {
	c, err := launch.StartWith(args, commandOptions(r.output))
	if err != nil {
		return commandError(err)
	}
	r.command = c
	if r.opts.SystemWide || len(r.opts.PIDs) > 0 {
		r.opts.While = c
	} else {
		r.opts.Command = c
	}
	return nil
}

// encode writes the profile as 'hallmark convert' would.
func (r *record) encode(w io.Writer, p *pprof.Profile) error {
	if r.output == "-" {
		w = struct{ io.Writer }{w} // standard output may be able to seek, and not be at its start
	}
	switch {
	case r.as.name == "perf":
		return writePerfHere(w, p)
	case r.as.name != "pprof" && r.as.name != "otlp" && r.as.name != "html" && r.as.name != "svg" && !r.noSymbols: // not to be kept
		p = p.Copy()
		if _, err := (&symbolsource.Options{NoDebuginfod: true}).Show(r.env, p); err != nil {
			return err
		}
	}
	return r.as.encode(&converter{env: r.env, output: r.output, noSymbols: r.noSymbols, symbols: symbolsource.Options{NoDebuginfod: true}}, w, p)
}

// commandError gives a command that cannot be run the exit status that shells
// give it.
func commandError(err error) error {
	var failed *launch.ExecError
	var unknown *exec.Error
	missing := errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) ||
		errors.As(err, &failed) && failed.Reason == syscall.ENOENT.Error() // its interpreter
	switch {
	case errors.As(err, &unknown) && errors.Is(err, exec.ErrNotFound):
		return verb.WithStatus(127, fmt.Errorf("%s: no such program in PATH", unknown.Name))
	case missing:
		return verb.WithStatus(127, err)
	}
	return verb.WithStatus(126, err)
}

// showProgress lets a recording of processes show on a terminal how far it is. A
// command has the terminal for itself.
func (r *record) showProgress() *progress.Bar {
	bar := progress.New(r.env.Stderr)
	if bar == nil || r.command != nil {
		return nil
	}
	if r.opts.Duration == 0 {
		fmt.Fprintln(r.env.Stderr, "hallmark: recording; Ctrl-C ends it and writes the profile")
		return nil
	}
	r.opts.Progress = func(elapsed time.Duration, s capture.Stats) {
		bar.Set(float64(elapsed)/float64(r.opts.Duration), plaintext.Plural(int64(s.Samples), "sample"))
	}
	return bar
}

// printSummary says in a few lines how the recording went.
func (r *record) printSummary(done *result) {
	c := profile.MeasureCoverage(done.profile, done.misses)
	share := stackShare(c.Stacks)
	if c.FileFrames > 0 {
		share += terminal.Percent(c.FileIdentified, c.FileFrames) + " of the frames in files identified; "
	}
	stats := done.stats
	way := stats.Backend.String()
	if stats.Copied > 0 {
		way += " with " + terminal.Quantity(int64(stats.Copied), "bytes") + " of copied stacks"
	}
	fmt.Fprintf(r.env.Stderr, "hallmark: %s in %v by %s, %swrote %s\n", plaintext.Plural(int64(stats.Samples), "sample"),
		time.Duration(done.profile.DurationNanos).Round(10*time.Millisecond), way, share, outputName(r.output))
	if stats.Samples == 0 {
		fmt.Fprintf(r.env.Stderr, "hallmark: %s\n", nothingSampled)
	}
	if note := r.waited(done); note != "" {
		fmt.Fprintf(r.env.Stderr, "hallmark: %s\n", note)
	}
	for _, loss := range plaintext.Sentences(
		plaintext.Sentence(stats.Lost, "record was", "records were", "lost: the machine was too busy for reading in time"),
		plaintext.Sentence(stats.Collided, "sample", "samples", "had no place in the kernel's map of stacks: record with a lower --frequency"),
		plaintext.Sentence(stats.Throttled, "time", "times", "the kernel held sampling back: record with a lower --frequency"),
		plaintext.Sentence(stats.Coarse, "sample", "samples", "lost some detail to keep memory bounded: record for a shorter time"),
		plaintext.Sentence(stats.Untimed, "sample has", "samples have", "no time in the timeline, to keep memory bounded: record for a shorter time"),
		plaintext.Sentence(stats.Table.Full, "frame", "frames", "found no room in the kernel's table of files: record with more --table-entries"),
		plaintext.Sentence(stats.Table.Refused, "frame", "frames", "found the kernel's table of files locked: what that cost, if anything, is among the reasons of the coverage"),
		plaintext.Sentence(stats.Unwind.NoRoom, "unwind table", "unwind tables", "found no room in the kernel: record with more --unwind-memory"),
		plaintext.Sentence(stats.Unwind.Evicted, "unwind table", "unwind tables", "made room for others in the kernel: record with more --unwind-memory"),
		plaintext.Sentence(stats.Unfollowed, "process was", "processes were", "not recorded, because too many ran at once: record with -a"),
		plaintext.Sentence(stats.Malformed, "record was", "records were", "malformed and left out"),
		plaintext.Sentence(stats.Disagreed, "file has", "files have", "another identity than processes had in memory: the file counts"),
	) {
		fmt.Fprintf(r.env.Stderr, "hallmark: %s\n", loss)
	}
	for _, note := range slices.Concat(profile.Disagreements(done.profile), profile.Rewritten(done.profile), profile.WithoutLines(done.profile)) {
		fmt.Fprintf(r.env.Stderr, "hallmark: %s\n", note)
	}
	if note := unsampled(stats.Backend, time.Duration(stats.Samples)*time.Second/time.Duration(r.opts.Frequency), r.commandTime(false)); note != "" {
		fmt.Fprintf(r.env.Stderr, "hallmark: %s\n", note)
	}
}

// nothingSampled is what is known of a recording without samples, and what helps.
const nothingSampled = "nothing ran on a CPU for long enough to be sampled: record for longer, or with a higher --frequency"

// mostlyWaits is the share of the time from which on what is recorded does not mostly wait: samples have most of it.
const mostlyWaits = 0.2

// waited says that what was recorded was mostly not on a CPU, where no sample shows it. The machine as a whole does not
// wait.
func (r *record) waited(done *result) string {
	whole := time.Duration(done.profile.DurationNanos)
	if r.opts.SystemWide || whole < time.Second/10 || done.stats.Samples == 0 {
		return ""
	}
	used, who := time.Duration(done.stats.Samples)*time.Second/time.Duration(r.opts.Frequency), "the processes were"
	if len(r.opts.PIDs) == 1 {
		who = "the process was"
	}
	if r.opts.Command != nil {
		if used, who = r.commandTime(true), "the command was"; used == 0 {
			return ""
		}
	} else if r.opts.Event != capture.CPUClock {
		return ""
	}
	return waitedText(who, used, whole)
}

func waitedText(who string, used, whole time.Duration) string {
	if float64(used) > mostlyWaits*float64(whole) {
		return ""
	}
	return fmt.Sprintf("%s on a CPU for %s of %s, and waited else: samples do not show that",
		who, terminal.Percent(int64(used), int64(whole)), terminal.Quantity(int64(whole), "nanoseconds"))
}

// commandTime returns how long the code of a command that is recorded ran, and of the children
// that it waited for, outside the kernel or in all; 0 where the command has not ended, or more than
// it is recorded.
func (r *record) commandTime(withKernel bool) time.Duration {
	if r.opts.Command == nil {
		return 0
	}
	select {
	case <-r.opts.Command.Done():
	case <-time.After(commandPatience / 10): // it ends at about the same time as the recording
		return 0
	}
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_CHILDREN, &used) != nil {
		return 0
	}
	if withKernel {
		return time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	return time.Duration(used.Utime.Nano())
}

// unsampled says that most of what a command ran was in processes that were too short to be
// sampled: the backend perf has a timer of each, which starts with it.
func unsampled(way capture.Backend, sampled, ran time.Duration) string {
	const notable = 100 * time.Millisecond
	if way != capture.Perf || ran < 2*sampled || ran-sampled < notable {
		return ""
	}
	return fmt.Sprintf("the command and its children ran for %s, and samples stand for %s: the backend perf samples no child that ends within its first sample's time; the backend bpf does, and so does -a",
		terminal.Quantity(int64(ran), "nanoseconds"), terminal.Quantity(int64(sampled), "nanoseconds"))
}

// stackShare says how many of all stacks are complete. Frame pointers do not say.
func stackShare(s *profile.Stacks) string {
	if s == nil {
		return "" // no user code was sampled
	}
	unknown := int64(0)
	for _, g := range s.Gaps {
		if g.Reason == reason.FramePointers {
			unknown += g.Samples
		}
	}
	share := terminal.Percent(s.Complete, s.Samples)
	switch {
	case unknown == s.Samples:
		return share + " of the stacks known to be complete (walked by frame pointers), "
	case unknown > 0:
		return fmt.Sprintf("%s of the stacks complete (%s walked by frame pointers), ", share, terminal.Percent(unknown, s.Samples))
	}
	return share + " of the stacks complete, "
}

// show shows the profile. The signal that ended the recording must not end the view, so
// that has an interrupt of its own.
func (r *record) show(done *result) error {
	if r.report {
		if err := r.showReport(done); err != nil {
			return err
		}
	}
	if !r.view {
		return nil
	}
	ctx, over := verb.Interruptible()
	defer over()
	return viewProfile(ctx, r.env, done.profile, filepath.Base(r.output))
}

// showReport shows what 'report' shows of the profile.
func (r *record) showReport(done *result) error {
	if r.noSymbols {
		return writeReport(r.env, done.profile, done.misses)
	}
	p := done.profile.Copy() // what names it for the report is not for the view
	misses, err := new(symbolsource.Options).Show(r.env, p)
	if err != nil {
		return err
	}
	return writeReport(r.env, p, misses)
}

// commandPatience is how long a command may take to end before it is said that it is waited for.
const commandPatience = time.Second

// commandStatus waits for the command, which may outlive the recording, and
// returns its exit status.
func (r *record) commandStatus() error {
	if r.command == nil {
		return nil
	}
	return statusOf(r.env, r.command)
}

// statusOf waits for a command, and returns its exit status.
func statusOf(e *verb.Env, c *launch.Command) error {
	select {
	case <-c.Done():
	case <-time.After(commandPatience):
		fmt.Fprintln(e.Stderr, "hallmark: waiting for the command to end")
	}
	if status := c.Wait(); status != 0 {
		return verb.ExitStatus(status)
	}
	return nil
}

// writePerfHere writes a profile of this machine in perf's format.
func writePerfHere(w io.Writer, p *pprof.Profile) error {
	info := perfdata.Info{Version: "hallmark", Cmdline: os.Args}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		info.Hostname = unix.ByteSliceToString(uts.Nodename[:])
		info.OSRelease = unix.ByteSliceToString(uts.Release[:])
		info.Arch = unix.ByteSliceToString(uts.Machine[:])
	}
	return toperf.Write(w, p, toperf.Options{Info: info})
}
