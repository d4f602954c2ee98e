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
	"hallmark/cmd/hallmark/internal/execprint"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/execwatch"
	"hallmark/internal/atomicfile"
	"hallmark/internal/plaintext"
	"hallmark/launch"
)

const execLong = `Exec reports each program that is executed, as it happens: the time, the
process, the arguments, and the exact file. With --exit it also reports each
process that ends, how it ended, and which program it ran; with --libs each
library that is loaded.

With a command, exec watches that command and the processes that it starts, and
ends with it. Without one, exec watches all processes of the machine until
Ctrl-C, SIGTERM or SIGHUP, for --count events, or for --duration. The
command's output goes to standard error, unless -o names a file for the events.
When nobody reads the events any more, as after 'head -1', exec ends, and the
command goes on without it. Where standard output is closed (>&-), events go
nowhere, without an error.

With CAP_BPF and CAP_PERFMON, which root has, and on Linux 6.1 or later,
programs in the kernel (--backend bpf) see every execution. On Linux 6.18 or
later they read the identities in the process, before its first instruction,
also in other mount namespaces, and of deleted files. On older kernels, and for
files without a build ID, Hallmark opens the file. The backend perf learns of
executions from the kernel's records. It reads arguments and users in /proc, if
the process is still there. It knows neither exit status nor CPU time.

--match prints only events that have one of these: an identity or its first
digits (at least 6); the path or the file name of a program, a script or a
library; the name of a process, which the kernel cuts after 15 bytes. Of a
script that was started by a relative path, exec compares only the end of the
path. Numbers of processes and users are those of the machine, also in a
container.

--exit also knows the programs of processes that ran before exec began. With the
backend bpf, a child that was started since and executes nothing has no program.

In a terminal of less than 100 columns exec leaves out parents and users. Pipe
it into 'less -S' to see them.

"after" is the time from the start of a process to its end. "cpu" is the CPU
time of all its threads, including the release of its memory.

The program of a script is its interpreter; the script stands behind it. In
brackets stands the reason where there is no identity. A file may claim
the build ID of another one that was executed before. Then it is marked "same
build ID, different content", or "claimed" if one of the contents is
unknown. "elsewhere" marks a file whose path leads to another file here, or to
none, as in a container.
Events that exec could not report in time are counted, in the stream and at the
end.`

const execExample = `  hallmark exec                           # what is executed here
  hallmark exec -d 30 --exit              # and what ends, in half a minute
  hallmark exec --exit -- make            # what make starts, and its cost
  hallmark exec --match 5dc767c02e183bb9  # who executes this build?
  hallmark exec --match /usr/bin/git --exit
  hallmark exec --json -o made.jsonl -- make # apart from what make prints
  hallmark exec --json | jq -r 'select(.program.deleted).program.binary'`

type execOptions struct {
	execwatch.Options
	json   bool
	match  []string
	count  int
	time   time.Duration // 0 for no end
	output string
}

func newExecCommand(e *verb.Env) *cobra.Command {
	var opt execOptions
	var backend string
	cmd := &cobra.Command{
		Use:     "exec [flags] [-- CMD [ARG...]]",
		Short:   "Report executions and ends of processes, by identity",
		Long:    execLong,
		Example: execExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if opt.Backend, err = watchBackend(backend); err != nil {
				return verb.Usage(err)
			}
			if cmd.Flags().Changed("count") && opt.count == 0 {
				return verb.Usagef("a count of 0 reports nothing")
			}
			if opt.count < 0 {
				return verb.Usagef("a count of %d is negative", opt.count)
			}
			switch {
			case opt.time < 0:
				return verb.Usagef("a duration of %v is negative", opt.time)
			case cmd.Flags().Changed("duration") && opt.time == 0:
				return verb.Usagef("a duration of 0 reports nothing")
			}
			match, err := execprint.NewMatch(opt.match)
			if err != nil {
				return verb.Usage(err)
			}
			if err := checkProc("/proc"); err != nil {
				return err
			}
			if err := checkCommand(cmd, args); err != nil {
				return err
			}
			ctx, over := verb.Promising()
			defer over()
			return execInto(ctx, e, opt, match, args)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what is behind the command is the command's
	f.BoolVar(&opt.json, "json", false, "print one JSON object a line, for each event")
	f.BoolVar(&opt.Exits, "exit", false, "report processes that end, too")
	f.BoolVar(&opt.Libs, "libs", false, "report libraries that are loaded, too")
	f.StringArrayVar(&opt.match, "match", nil, "report only this `ID`, path, file or process name (can be repeated)")
	f.IntVar(&opt.count, "count", 0, "end after `N` events")
	f.VarP((*verb.TimeSpan)(&opt.time), "duration", "d", "end after this time (seconds, or 30s, 5m)")
	f.StringVarP(&opt.output, "output", "o", "-", "write to this `FILE`, and leave standard output to CMD (its output goes to standard error else)")
	f.StringVar(&backend, "backend", capture.Auto.String(), "how to learn of executions: this `BACKEND`, auto, bpf (takes CAP_BPF and CAP_PERFMON) or perf")
	verb.CompleteValues(cmd, "backend", "auto", "bpf", "perf")
	if err := cmd.RegisterFlagCompletionFunc("match", completerOf("PATH")); err != nil {
		panic(err) // no such flag
	}
	return cmd
}

// checkCommand refuses a command line that ends in "--", as with a variable that is not set: without a
// command other processes are looked at, and nothing ends it.
func checkCommand(cmd *cobra.Command, args []string) error {
	if cmd.ArgsLenAtDash() == 0 && len(args) == 0 {
		return verb.Usagef("%s: no command stands behind --", cmd.Name())
	}
	return nil
}

// watchBackend returns the backend of this name, if it can watch.
func watchBackend(name string) (capture.Backend, error) {
	b, err := capture.ParseBackend(name)
	if err != nil || b == capture.Stackmap {
		return 0, fmt.Errorf("unknown backend %q: there are auto, bpf and perf", name)
	}
	return b, nil
}

// errEnough ends the watch after --count.
var errEnough = errors.New("enough events")

// execInto has the events in a file, unless they are for standard output.
func execInto(ctx context.Context, e *verb.Env, opt execOptions, match *execprint.Match, args []string) error {
	if opt.output == "-" {
		return runExec(ctx, e, opt, match, args)
	}
	file, err := atomicfile.Open(opt.output, recordingMode)
	if err != nil {
		return err
	}
	toFile := *e
	toFile.Stdout = file
	err = runExec(ctx, &toFile, opt, match, args)
	if closing := file.Close(); err == nil {
		err = closing
	}
	return err
}

func runExec(ctx context.Context, e *verb.Env, opt execOptions, match *execprint.Match, args []string) error {
	verb.CollectLate()
	if len(args) > 0 {
		c, err := launch.StartWith(args, commandOptions(opt.output))
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
	var failed *launch.ExecError
	if errors.As(err, &failed) {
		return commandError(err)
	}
	status := statusOf(e, opt.Command)
	return cmp.Or(err, status)
}

// watch prints the events until the end: the interruption, --count, --duration, or that of the command.
func watch(ctx context.Context, e *verb.Env, opt execOptions, match *execprint.Match) error {
	out := newWatchWriter(e.Stdout, opt)
	opt.Reported, opt.Reuse = out.w.Flush, true
	w, err := execwatch.Start(opt.Options)
	if err != nil {
		return err
	}
	defer w.Close()
	for _, missing := range w.Stats().Reduced {
		fmt.Fprintf(e.Stderr, "hallmark: watching without %s\n", missing)
	}
	left, matched := opt.count, int64(0)
	running := ctx
	if opt.time > 0 {
		var cancel context.CancelFunc
		running, cancel = context.WithTimeout(ctx, opt.time)
		defer cancel()
	}
	err = w.Run(running, func(ev *execwatch.Event) error {
		if !match.Has(ev) {
			return nil
		}
		if err := out.write(ev); err != nil {
			return err
		}
		if ev.Kind == execwatch.Missed {
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
	tellWatch(e.Stderr, w.Stats(), opt)
	if !match.IsAny() {
		fmt.Fprintf(e.Stderr, "hallmark: %s matched\n", plaintext.Plural(matched, "event"))
	}
	return err
}

// tellWatch says in a few lines what was reported, and what was not.
func tellWatch(w io.Writer, s execwatch.Stats, opt execOptions) {
	text := plaintext.Plural(int64(s.Execs), "execution")
	if opt.Exits {
		text += ", " + plaintext.Plural(int64(s.Exits), "end")
	}
	if opt.Libs {
		text += ", " + plaintext.Plural(int64(s.Loads), "library load")
	}
	fmt.Fprintf(w, "hallmark: %s seen by %v, %s lost\n", text, s.Backend, plaintext.Thousands(int64(s.Lost)))
	for _, loss := range plaintext.Sentences(
		plaintext.Sentence(s.Unidentified, "time", "times", "a file had no identity"),
		plaintext.Sentence(s.Uncertain, "event", "events", "at most may be missing: the programs in the kernel were preempted"),
		plaintext.Sentence(s.Unfollowed, "process was", "processes were", "not followed, because too many ran at once"),
		plaintext.Sentence(s.Malformed, "record was", "records were", "malformed and left out"),
		plaintext.Sentence(s.Contested, "time", "times", "a file claimed the build ID of another file, and has other or unknown content"),
		plaintext.Sentence(s.Forgotten, "build ID was", "build IDs were", "forgotten: a file that claims it afterwards is not marked"),
		plaintext.Sentence(s.Disagreed, "file has", "files have", "another identity than processes had in memory: the file counts"),
	) {
		fmt.Fprintf(w, "hallmark: %s\n", loss)
	}
}

// watchWriter writes events.
type watchWriter struct {
	w    *bufio.Writer
	json bool
	text execprint.Text
	line []byte
}

func newWatchWriter(stdout io.Writer, opt execOptions) *watchWriter {
	return &watchWriter{
		w:    bufio.NewWriterSize(stdout, 1<<16),
		json: opt.json,
		text: execprint.Text{Width: terminal.Width(stdout), Exits: opt.Exits || opt.Libs},
	}
}

func (o *watchWriter) write(ev *execwatch.Event) error {
	if o.json {
		o.line = execprint.AppendJSON(o.line[:0], ev)
	} else {
		o.line = o.text.Append(o.line[:0], ev)
	}
	_, err := o.w.Write(o.line)
	return err
}
