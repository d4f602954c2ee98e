package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/cmd/hallmark/internal/advice"
	"hallmark/cmd/hallmark/internal/perffile"
	"hallmark/cmd/hallmark/internal/progress"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/plaintext"
	"hallmark/internal/procfs"
	"hallmark/procmap"
	"hallmark/reason"
)

const idLong = `Id prints the identity of files, of the programs that processes run, and of the
kernel, one a line: its kind, the identity, the path.

The kinds are gnu (the GNU build ID), go (the Go toolchain's build ID, for files
without a GNU one) and content (a hash of the code, for files without any). A
file and its stripped copy have the same content, and two builds do not. For
files of kind content --verbose and --json also print OpenTelemetry's htlhash,
which is no identity: it is of head, tail and length only.

An argument of digits only is a process; write ./123 for a file. '-' is standard
input, a file or a pipe.

Errors are printed on standard error, or as an object with "error" in
the output of --json; the others go on, and the exit status is 1. It is 130 when
interrupted.`

const idExample = `  hallmark id /bin/sh                  # a file
  hallmark id 1 self-contained.so      # what process 1 runs, and a file
  hallmark id -r /usr/lib              # all ELF files of a tree
  hallmark id --kernel --vdso          # what the machine runs
  ssh host cat /usr/sbin/sshd | hallmark id -
  hallmark id --json -r . | jq -r .build_id  # one JSON object a line`

type idOptions struct {
	json, recursive, verbose bool
	kernel, modules, vdso    bool
}

func newIDCommand(e *verb.Env) *cobra.Command {
	var opt idOptions
	cmd := &cobra.Command{
		Use:     "id [flags] [FILE|PID|DIR]...",
		Short:   "Print the identity of files, processes and the kernel",
		Long:    idLong,
		Example: idExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && !opt.kernel && !opt.modules && !opt.vdso {
				return verb.Usagef("id: nothing to identify")
			}
			for _, arg := range args {
				if err := checkDigits(arg); err != nil {
					return err
				}
			}
			ctx, stop := verb.Interruptible()
			defer stop()
			return runID(ctx, e, opt, args)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opt.json, "json", false, "print one JSON object a line")
	flags.BoolVarP(&opt.recursive, "recursive", "r", false, "look into directories, for their ELF files")
	flags.BoolVarP(&opt.verbose, "verbose", "v", false, "before the path print where in the file the identity was found, or the htlhash")
	flags.BoolVar(&opt.kernel, "kernel", false, "identify the running kernel")
	flags.BoolVar(&opt.modules, "modules", false, "identify the loaded kernel modules")
	flags.BoolVar(&opt.vdso, "vdso", false, "identify the vdso")
	return cmd
}

// idRecord is one line of output.
type idRecord struct {
	Path   string       `json:"binary"`
	PID    int          `json:"pid,omitempty"`
	Kind   string       `json:"build_id_kind,omitempty"`
	ID     buildid.ID   `json:"build_id,omitzero"`
	Where  string       `json:"where,omitempty"`
	HTL    string       `json:"htlhash,omitempty"` // of a file that is identified by its content
	Offset *addr.Offset `json:"offset,omitempty"`  // none if the identity is in no place
	Error  string       `json:"error,omitempty"`
}

// idPrinter writes records and remembers whether one was a failure.
type idPrinter struct {
	opt    idOptions
	stdin  io.Reader
	stdout *verb.Batch
	stderr io.Writer
	named  neighbours
	line   []byte // room for one
	failed bool
}

// idHashing is how much code of files without build IDs is hashed in one run. Files of others
// may be of any size.
var idHashing = buildid.Budget{Bytes: 16 << 30}

func runID(ctx context.Context, e *verb.Env, opt idOptions, args []string) (err error) {
	bar := progress.New(e.Stderr)
	defer bar.Clear()
	ctx = buildid.WithBudget(ctx, idHashing)
	p := &idPrinter{named: neighbours{dir: -1}, opt: opt, stdin: e.Stdin, stdout: verb.NewBatch(bar.Over(e.Stdout)), stderr: bar.Over(e.Stderr)}
	defer p.named.close()
	defer func() {
		if flushErr := p.stdout.Flush(); flushErr != nil {
			err = flushErr
		}
	}()
	if err := p.machine(); err != nil {
		return err
	}
	for i, arg := range args {
		next := ""
		if i+1 < len(args) {
			next = args[i+1]
		}
		if err := p.argument(ctx, bar, arg, next); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		if opt.json { // else what is there would look complete
			_ = verb.WriteObject(p.stdout, verb.Failure{Error: errInterrupted.Error()}) // Main reports that it cannot be written
		}
		return verb.ExitStatus(130)
	}
	if p.failed {
		return verb.ExitStatus(1)
	}
	return nil
}

// machine prints what flags ask for.
func (p *idPrinter) machine() error {
	if p.opt.kernel {
		info, err := buildid.ReadKernel()
		if err := p.print(idRecord{Path: "[kernel]"}, info, err); err != nil {
			return err
		}
	}
	if p.opt.vdso {
		info, err := buildid.ReadVDSO()
		if err := p.print(idRecord{Path: "[vdso]"}, info, err); err != nil {
			return err
		}
	}
	if p.opt.modules {
		return p.modules()
	}
	return nil
}

func (p *idPrinter) modules() error {
	names, err := buildid.Modules()
	if err != nil {
		return p.print(idRecord{Path: "[modules]"}, buildid.Info{}, err)
	}
	for _, name := range names {
		info, err := buildid.ReadModule(name)
		if err := p.print(idRecord{Path: "[" + name + "]"}, info, err); err != nil {
			return err
		}
	}
	return nil
}

// argument prints what one argument names. The next one is "" behind the last.
func (p *idPrinter) argument(ctx context.Context, bar *progress.Bar, arg, next string) error {
	if ctx.Err() != nil {
		return nil
	}
	if pid, ok := verb.ProcessID(arg); ok {
		info, err := procmap.ProgramContext(ctx, pid)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = noProgram(pid)
		case errors.Is(err, procmap.ErrUnresponsive):
			err = fmt.Errorf("%w (%s): %s", err, reason.FileUnresponsive.Code(), programOf(pid))
		default:
			err = advice.OnError(err)
		}
		if ctx.Err() != nil {
			return nil
		}
		return p.print(idRecord{Path: programOf(pid), PID: pid}, info, err)
	}
	if p.opt.recursive && isDir(arg) {
		return p.tree(ctx, bar, arg)
	}
	var info buildid.Info
	var err error
	if arg == "-" {
		info, err = p.readInput(ctx, arg)
	} else {
		info, err = p.named.read(ctx, arg, next)
	}
	if ctx.Err() != nil {
		return nil
	}
	if errors.Is(err, syscall.EISDIR) {
		err = fmt.Errorf("%w (use -r to look into it)", err)
	}
	return p.print(idRecord{Path: arg}, info, err)
}

// maxInput bounds what is kept of standard input that is no file: on the disk, or in memory
// where temporary files are.
const maxInput = 1 << 30

// readInput reads the identity of what is on standard input, from its start if that is a file.
func (p *idPrinter) readInput(ctx context.Context, name string) (buildid.Info, error) {
	if f, ok := p.stdin.(*os.File); ok && isRegular(f) {
		return buildid.ReadContext(ctx, f)
	}
	kept, err := perffile.Keep(io.LimitReader(p.stdin, maxInput))
	if err != nil {
		return buildid.Info{}, fmt.Errorf("%s: %w", perffile.InputName(name), err)
	}
	defer kept.Close()
	if n, _ := p.stdin.Read(make([]byte, 1)); n > 0 {
		return buildid.Info{}, fmt.Errorf("%s: more than %s: pass it as a file", perffile.InputName(name), terminal.Quantity(maxInput, "bytes"))
	}
	info, err := buildid.ReadContext(ctx, kept)
	if err != nil {
		err = fmt.Errorf("%s: %w", perffile.InputName(name), err)
	}
	return info, err
}

// isRegular reports whether an open file is a regular one.
func isRegular(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular()
}

// tree prints the ELF files of a directory and those below.
func (p *idPrinter) tree(ctx context.Context, bar *progress.Bar, dir string) error {
	for entry := range buildid.ScanContext(ctx, dir) {
		if ctx.Err() != nil {
			return nil
		}
		bar.Set(entry.Done, entry.Path)
		if entry.Err == nil && !entry.Info.ELF {
			continue
		}
		if err := p.print(idRecord{Path: entry.Path}, entry.Info, entry.Err); err != nil {
			return err
		}
	}
	return nil
}

// print writes one record; the error that it returns is that of writing.
func (p *idPrinter) print(r idRecord, info buildid.Info, err error) error {
	switch {
	case err != nil:
	case info.Where == buildid.TooLarge:
		err = &fs.PathError{Op: "hash", Path: r.Path, Err: buildid.ErrTooLarge}
	case info.Where == buildid.OverBudget:
		err = &fs.PathError{Op: "hash", Path: r.Path, Err: buildid.ErrBudget}
	}
	if err != nil {
		p.failed = true
		r.Error = err.Error()
		if !p.opt.json {
			if err := p.stdout.Flush(); err != nil { // both may be one terminal or file
				return err
			}
			_, err := fmt.Fprintf(p.stderr, "hallmark: %s\n", plaintext.Line(terminal.Message(err, r.Path)))
			return err
		}
	} else if !p.opt.json {
		return p.text(r.Path, info)
	} else {
		r.Kind, r.ID, r.Where = info.ID.Kind().String(), info.ID, info.Where.String()
		if info.Where == buildid.Hashed {
			r.HTL = htl(info)
		} else {
			r.Offset = new(info.Offset)
		}
	}
	return verb.WriteObject(p.stdout, r)
}

// text writes a line, which fmt.Fprintf would take several times as long for as reading the file's note.
func (p *idPrinter) text(path string, info buildid.Info) error {
	line := append(p.line[:0], info.ID.Kind().String()...)
	line, _ = info.ID.AppendText(append(line, ' ')) // never fails
	if p.opt.verbose {
		line = append(append(line, ' '), info.Where.String()...)
		if info.Where != buildid.Hashed {
			line = append(append(line, '@'), info.Offset.String()...)
		} else if hash := htl(info); hash != "" {
			line = append(append(line, " htl:"...), hash...)
		}
	}
	line = append(append(line, ' '), plaintext.Name(path)...)
	p.line = append(line, '\n')
	_, err := p.stdout.Write(p.line)
	return err
}

// htl returns the digits of OpenTelemetry's hash, "" for none.
func htl(info buildid.Info) string { return strings.TrimPrefix(info.Also.String(), "htl:") }

// checkDigits returns an error for an argument of digits only that can be no process.
func checkDigits(arg string) error {
	if pid, ok := verb.ProcessID(arg); arg == "" || strings.Trim(arg, "0123456789") != "" || ok && pid > 0 {
		return nil
	}
	return verb.Usage(verb.NotProcessID(arg))
}

// programOf returns the path to show for what a process runs.
func programOf(pid int) string {
	link := "/proc/" + strconv.Itoa(pid) + "/exe"
	if path, err := procfs.Readlink(pid, "exe"); err == nil {
		return path
	}
	return link
}

// noProgram says why a process has no program to identify.
func noProgram(pid int) error {
	if isDir("/proc/" + strconv.Itoa(pid)) {
		return &procmap.Error{PID: pid, Err: procmap.ErrNoMemory}
	}
	return &procmap.Error{PID: pid, Err: procmap.ErrNoProcess}
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}
