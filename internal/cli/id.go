package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/cobra"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/progress"
)

const idLong = `Id prints the identity of files, of the programs that processes run, and of the
kernel, one a line: its kind, the identity, the path.

The kinds are gnu (the GNU build ID), go (the Go toolchain's build ID, for files
without a GNU one) and htl (a hash of head, tail and length, for files without
any). An argument of digits only is a process; write ./123 for a file.

What cannot be read is told on standard error, or as an object with "error" in
the output of --json; the others go on, and the exit status is 1. It is 130 when
interrupted.`

const idExample = `  hallmark id /bin/sh                  # a file
  hallmark id 1 self-contained.so      # what process 1 runs, and a file
  hallmark id -r /usr/lib              # all ELF files of a tree
  hallmark id --kernel --vdso          # what the machine runs
  hallmark id --json -r . | jq -r .id  # one JSON object a line`

type idOptions struct {
	json, recursive, verbose bool
	kernel, modules, vdso    bool
}

func newIDCommand(e *env) *cobra.Command {
	var opt idOptions
	cmd := &cobra.Command{
		Use:     "id [flags] [FILE|PID|DIR]...",
		Short:   "Print the identity of files, processes and the kernel",
		Long:    idLong,
		Example: idExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && !opt.kernel && !opt.modules && !opt.vdso {
				return usageError{errors.New("id: nothing to identify")}
			}
			ctx, stop := interruptible()
			defer stop()
			return runID(ctx, e, opt, args)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opt.json, "json", false, "print one JSON object a line")
	flags.BoolVarP(&opt.recursive, "recursive", "r", false, "look into directories, for their ELF files")
	flags.BoolVarP(&opt.verbose, "verbose", "v", false, "print where in the file the identity was found, before the path")
	flags.BoolVar(&opt.kernel, "kernel", false, "identify the running kernel")
	flags.BoolVar(&opt.modules, "modules", false, "identify the loaded kernel modules")
	flags.BoolVar(&opt.vdso, "vdso", false, "identify the vdso")
	return cmd
}

// idRecord is one line of output.
type idRecord struct {
	Path   string       `json:"path"`
	PID    int          `json:"pid,omitempty"`
	Kind   string       `json:"kind,omitempty"`
	ID     buildid.ID   `json:"id,omitzero"`
	Where  string       `json:"where,omitempty"`
	Offset *addr.Offset `json:"offset,omitempty"` // none if the identity is in no place
	Error  string       `json:"error,omitempty"`
}

// idPrinter writes records and remembers whether one was a failure.
type idPrinter struct {
	opt            idOptions
	stdout, stderr io.Writer
	failed         bool
}

func runID(ctx context.Context, e *env, opt idOptions, args []string) error {
	bar := progress.New(e.stderr)
	defer bar.Clear()
	p := &idPrinter{opt: opt, stdout: bar.Over(e.stdout), stderr: bar.Over(e.stderr)}
	if err := p.machine(); err != nil {
		return err
	}
	for _, arg := range args {
		if err := p.argument(ctx, bar, arg); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return exitStatus(130)
	}
	if p.failed {
		return exitStatus(1)
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

// argument prints what one argument names.
func (p *idPrinter) argument(ctx context.Context, bar *progress.Bar, arg string) error {
	if ctx.Err() != nil {
		return nil
	}
	if pid, ok := processID(arg); ok {
		info, err := buildid.ReadProcess(pid)
		if errors.Is(err, fs.ErrNotExist) {
			err = noProgram(pid)
		}
		return p.print(idRecord{Path: programOf(pid), PID: pid}, info, err)
	}
	if p.opt.recursive && isDir(arg) {
		return p.tree(ctx, bar, arg)
	}
	info, err := buildid.ReadFile(arg)
	if errors.Is(err, syscall.EISDIR) {
		err = fmt.Errorf("%w (use -r to look into it)", err)
	}
	return p.print(idRecord{Path: arg}, info, err)
}

// tree prints the ELF files of a directory and those below.
func (p *idPrinter) tree(ctx context.Context, bar *progress.Bar, dir string) error {
	for entry := range buildid.Scan(dir) {
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
	if err != nil {
		p.failed = true
		r.Error = err.Error()
		if !p.opt.json {
			_, err := fmt.Fprintf(p.stderr, "hallmark: %s\n", oneLine(r.Error))
			return err
		}
	} else {
		r.Kind, r.ID, r.Where = info.ID.Kind().String(), info.ID, info.Where.String()
		if info.Where != buildid.Hashed {
			r.Offset = &info.Offset
		}
	}
	if p.opt.json {
		return json.NewEncoder(p.stdout).Encode(r)
	}
	return p.text(r)
}

func (p *idPrinter) text(r idRecord) error {
	where := ""
	if p.opt.verbose {
		where = " " + r.Where
		if r.Offset != nil {
			where += "@" + r.Offset.String()
		}
	}
	_, err := fmt.Fprintf(p.stdout, "%s %s%s %s\n", r.Kind, r.ID, where, oneLine(r.Path))
	return err
}

// oneLine quotes what would break the line or steer the terminal.
func oneLine(s string) string {
	if strings.ContainsFunc(s, unicode.IsControl) {
		return strconv.Quote(s)
	}
	return s
}

// processID reads an argument of digits only.
func processID(arg string) (int, bool) {
	if strings.Trim(arg, "0123456789") != "" {
		return 0, false
	}
	pid, err := strconv.Atoi(arg)
	return pid, err == nil
}

// programOf returns the path to show for what a process runs.
func programOf(pid int) string {
	link := "/proc/" + strconv.Itoa(pid) + "/exe"
	if path, err := os.Readlink(link); err == nil {
		return path
	}
	return link
}

// noProgram says why a process has no program to identify.
func noProgram(pid int) error {
	if isDir("/proc/" + strconv.Itoa(pid)) {
		return fmt.Errorf("process %d runs no program: a kernel thread, or ended already", pid)
	}
	return fmt.Errorf("no process %d", pid)
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}
