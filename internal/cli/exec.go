package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"hallmark/capture"
	"hallmark/internal/atomicfile"
)

const execLong = `Exec tells which programs are executed, as it happens: when, by which process, with which
arguments, and from which exact file. With --exit it tells which processes end too, how,
and what they have run; with --libs which libraries are loaded.

With a command it tells only of it and of what it starts, and ends with it. Else it tells
of all processes of the machine, until Ctrl-C, SIGTERM or SIGHUP, for --count events, or for
--duration. The standard output of the command goes to standard error, unless -o names a file.

With CAP_BPF and CAP_PERFMON, which root has, and on kernels from 6.1 on, programs in the
kernel (--backend bpf) see every execution. From 6.18 on the process itself reads the identities before it runs its first
instruction: however short it lives, in whichever mount namespace its files are, and
whether they were deleted. Before, and of files without a build ID, Hallmark opens the
file. The backend perf learns of executions from the kernel's records: arguments and
users come from /proc, if the process is still there, and of an end neither the exit
status nor the CPU time is known.

--match leaves out all but the events in which this is: an identity or its first digits
(at least 6), the path or the file name of a program, a script or a library, or the name of
a process, which the kernel cuts after 15 bytes. Of a script that was started by a relative
path, only the end of the path is compared. Process and user numbers are those of the machine, also of what is in a container.

With --exit the programs are known of processes, too, that ran before: which build crashed. A
child that executes nothing has no program with the backend bpf, if it was started since.

"after" is how long a process lived until it ended, "cpu" what it has run in all, with the
giving back of its memory behind its end.

The program of a script is its interpreter, and the script stands behind it. In place of an
identity stands the reason why there is none, in brackets. A file that claims the build ID of
another one which was executed before, and has other content, is marked so. "elsewhere" says that its path leads to another file here, or to none, as in
a container, or in a mount namespace that a user has made; if that file has the same build ID, both are compared. What could not be told in time is
counted, in the stream and at the end.`

const execExample = `  hallmark exec                              # what is executed here
  hallmark exec -d 30 --exit                 # what is executed and ends in half a minute
  hallmark exec --exit -- make               # what make starts, and what each costs
  hallmark exec --match 5dc767c02e183bb9     # who executes this build?
  hallmark exec --match /usr/bin/git --exit
  hallmark exec --json -o made.jsonl -- make # apart from what make prints
  hallmark exec --json | jq -r 'select(.program.deleted).program.path'`

type execOptions struct {
	capture.WatchOptions
	json   bool
	match  []string
	count  int
	time   time.Duration // 0 for no end
	output string
}

func newExecCommand(e *env) *cobra.Command {
	var opt execOptions
	var backend string
	cmd := &cobra.Command{
		Use:     "exec [flags] [-- CMD [ARG...]]",
		Short:   "Tell which programs are executed and which processes end, by identity",
		Long:    execLong,
		Example: execExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if opt.Backend, err = watchBackend(backend); err != nil {
				return usageError{err}
			}
			if cmd.Flags().Changed("count") && opt.count == 0 {
				return usageError{errors.New("a count of 0 tells nothing")}
			}
			if opt.count < 0 {
				return usageError{fmt.Errorf("a count of %d is negative", opt.count)}
			}
			switch {
			case opt.time < 0:
				return usageError{fmt.Errorf("a duration of %v is negative", opt.time)}
			case cmd.Flags().Changed("duration") && opt.time == 0:
				return usageError{errors.New("a duration of 0 tells nothing")}
			}
			match, err := newWatchMatch(opt.match)
			if err != nil {
				return usageError{err}
			}
			if err := checkProc("/proc"); err != nil {
				return err
			}
			ctx, over := promising()
			defer over()
			return execInto(ctx, e, opt, match, args)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what is behind the command is the command's
	f.BoolVar(&opt.json, "json", false, "print one JSON object a line, for each event")
	f.BoolVar(&opt.Exits, "exit", false, "tell which processes end, too")
	f.BoolVar(&opt.Libs, "libs", false, "tell which libraries are loaded, too")
	f.StringArrayVar(&opt.match, "match", nil, "tell only of this `ID`, path, file or process name; may be repeated")
	f.IntVar(&opt.count, "count", 0, "end after `N` events")
	f.VarP((*timeSpan)(&opt.time), "duration", "d", "end after this time (seconds, or 30s, 5m)")
	f.StringVarP(&opt.output, "output", "o", "-", "write to this `FILE`, and leave standard output to CMD (its output goes to standard error else)")
	f.StringVar(&backend, "backend", capture.Auto.String(), "how to know: `auto`, bpf (takes CAP_BPF and CAP_PERFMON) or perf")
	completeValues(cmd, "backend", "auto", "bpf", "perf")
	return cmd
}

// watchBackend returns the backend of this name, if it can watch.
func watchBackend(name string) (capture.Backend, error) {
	b, err := capture.ParseBackend(name)
	if err != nil || b == capture.Stackmap {
		return 0, fmt.Errorf("unknown backend %q: there are auto, bpf and perf", name)
	}
	return b, nil
}

// errEnough ends the telling after --count.
var errEnough = errors.New("enough events")

// execInto has the events in a file, unless they are for standard output.
func execInto(ctx context.Context, e *env, opt execOptions, match *watchMatch, args []string) error {
	if opt.output == "-" {
		return runExec(ctx, e, opt, match, args)
	}
	file, err := atomicfile.Open(opt.output, recordingMode)
	if err != nil {
		return err
	}
	toFile := *e
	toFile.stdout = file
	err = runExec(ctx, &toFile, opt, match, args)
	if closing := file.Close(); err == nil {
		err = closing
	}
	return err
}

func runExec(ctx context.Context, e *env, opt execOptions, match *watchMatch, args []string) error {
	collectLate()
	if len(args) > 0 {
		c, err := capture.StartCommandWith(args, commandOptions(opt.output))
		if err != nil {
			return commandError(err)
		}
		opt.Command = c
		stop := context.AfterFunc(ctx, c.Terminate)
		defer stop()
	}
	err := watch(ctx, e, opt, match)
	if opt.Command == nil {
		return err
	}
	if err != nil {
		opt.Command.Kill() // unless it has ended
	}
	var failed *capture.ExecError
	if errors.As(err, &failed) {
		return commandError(err)
	}
	status := statusOf(e, opt.Command)
	return cmp.Or(err, status)
}

// watch prints the events until the end: the interruption, --count, --duration, or that of the command.
func watch(ctx context.Context, e *env, opt execOptions, match *watchMatch) error {
	out := newWatchWriter(e.stdout, opt)
	opt.Told = out.w.Flush
	w, err := capture.StartWatch(opt.WatchOptions)
	if err != nil {
		return err
	}
	defer w.Close()
	for _, missing := range w.Stats().Reduced {
		fmt.Fprintf(e.stderr, "hallmark: telling without %s\n", missing)
	}
	left, matched := opt.count, int64(0)
	running := ctx
	if opt.time > 0 {
		var cancel context.CancelFunc
		running, cancel = context.WithTimeout(ctx, opt.time)
		defer cancel()
	}
	err = w.Run(running, func(ev *capture.WatchEvent) error {
		if !match.has(ev) {
			return nil
		}
		if err := out.write(ev); err != nil {
			return err
		}
		if ev.Kind == capture.Missed {
			return nil
		}
		matched++
		if left--; left == 0 {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	if err == nil { // what could not be written is the error already
		err = out.w.Flush()
	}
	tellWatch(e.stderr, w.Stats(), opt)
	if !match.isAny() {
		fmt.Fprintf(e.stderr, "hallmark: %s matched\n", plural(matched, "event"))
	}
	return err
}

// tellWatch says in a few lines what was told, and what was not.
func tellWatch(w io.Writer, s capture.WatchStats, opt execOptions) {
	text := plural(int64(s.Execs), "execution")
	if opt.Exits {
		text += ", " + plural(int64(s.Exits), "end")
	}
	if opt.Libs {
		text += ", " + plural(int64(s.Loads), "library load")
	}
	fmt.Fprintf(w, "hallmark: %s seen by %v, %s lost\n", text, s.Backend, thousands(int64(s.Lost)))
	for _, loss := range []struct {
		count uint64
		text  string
	}{
		{s.Unidentified, "times a file had no identity"},
		{s.Uncertain, "events at most may be missing: the programs in the kernel were preempted"},
		{s.Unfollowed, "processes were not followed, because too many ran at once"},
		{s.Malformed, "records were malformed and left out"},
		{s.Contested, "times a file claimed the build ID of another file, and has other or unknown content"},
		{s.Forgotten, "build IDs were forgotten: a file that claims one of them afterwards is not marked"},
		{s.Disagreed, "files have another identity than processes had in memory: the file counts"},
	} {
		if loss.count > 0 {
			fmt.Fprintf(w, "hallmark: %s %s\n", thousands(int64(loss.count)), loss.text)
		}
	}
}

// watchWriter writes events.
type watchWriter struct {
	w    *bufio.Writer
	json bool
	text watchText
	line []byte
}

func newWatchWriter(stdout io.Writer, opt execOptions) *watchWriter {
	return &watchWriter{
		w:    bufio.NewWriterSize(stdout, 1<<16),
		json: opt.json,
		text: watchText{width: terminalWidth(stdout), exits: opt.Exits || opt.Libs},
	}
}

func (o *watchWriter) write(ev *capture.WatchEvent) error {
	if o.json {
		o.line = appendWatchJSON(o.line[:0], ev)
	} else {
		o.line = o.text.append(o.line[:0], ev)
	}
	_, err := o.w.Write(o.line)
	return err
}
