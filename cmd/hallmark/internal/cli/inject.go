package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hallmark/cmd/hallmark/internal/input"
	"hallmark/cmd/hallmark/internal/perffile"
	"hallmark/cmd/hallmark/internal/proof"
	"hallmark/cmd/hallmark/internal/symbolsource"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/atomicfile"
	"hallmark/internal/plaintext"
	"hallmark/perfdata"
	"hallmark/profile"
)

const injectLong = `Fill missing build IDs of a recording that perf made, in place of 'perf inject
-b'. Without --output, inject replaces FILE when the new recording is complete.

A mapping gets the build ID of the file at its path, if that is proven to be the
file that was mapped. A file is proven on the host that recorded: by the same
device, inode and generation, and by no change since the recording began. The
kernel and its modules are proven if they are where they were. For others inject
reports why not, and leaves them without. Build IDs that are in the list already
stay. --trust-paths takes the files at the paths without proof, as 'perf inject
-b' does.

A build ID is a claim: files that get the same one and differ in their code are
reported.

Files that have no GNU build ID stay without: perf takes their symbols from
their paths. With --every-identity they get the digits of another identity.
For Go's build ID it is the GNU build ID that Go's linker would make of it, else
the hash of their content. Hallmark finds the files by these digits, also on
other machines; perf does not, and takes no symbols from them.

Mappings and the list of build IDs are filled, and everything else stays byte
for byte as it is. A stream has no list: records of build IDs are put before its
others. Of a damaged recording what can be read is filled, and the exit status
is 1. Standard error has what became of each file. With '-' for FILE, inject
reads all of standard input, and then writes the result to standard output. A
recording that gzip compressed needs --output, and is written uncompressed. Of
the directory that 'perf record --threads' writes each file is filled; OUT is a
new directory then.`

func newInjectCommand(e *verb.Env) *cobra.Command {
	i := injector{env: e}
	cmd := &cobra.Command{
		Use:   "inject [flags] FILE",
		Short: "Fill the build IDs that a recording by perf lacks",
		Long:  injectLong,
		Example: `  hallmark inject -o filled.data perf.data
  hallmark inject perf.data                 # replaces perf.data
  hallmark inject --trust-paths -o filled.data perf.data
  perf record -g -o - sleep 1 | hallmark inject - | hallmark report -`,
		Args: verb.Takes("FILE"),
		RunE: func(_ *cobra.Command, args []string) error { return i.run(args[0]) },
	}
	cmd.Flags().StringVarP(&i.output, "output", "o", "", "write to the file `OUT`, '-' for standard output (default: replace FILE, and standard output for standard input)")
	cmd.Flags().BoolVar(&i.Trust, "trust-paths", false, "take the files that are at the recorded paths now, without proof")
	everyIdentityFlag(cmd.Flags(), &i.Every)
	return cmd
}

// everyIdentityFlag adds the flag of verbs that write perf.data.
func everyIdentityFlag(flags *pflag.FlagSet, every *bool) {
	flags.BoolVar(every, "every-identity", false, "in perf.data, give files without a GNU build ID the digits of their identity too: hallmark knows them by it, and perf finds no symbols of them")
}

type injector struct {
	env    *verb.Env
	output string
	proof.Judging
	directory bool // the recording is one, and the output is
}

func (i *injector) run(name string) error {
	files, written, err := i.open(name)
	if err != nil {
		return err
	}
	defer files.Close()
	rec, err := proof.ReadMappings(files)
	if err != nil {
		return input.DescribeKind(name, fmt.Errorf("%s: %w", name, err))
	}
	listed := proof.ListedNames(rec.Info)
	verdicts := rec.Judge(listed, written, i.Judging)
	of := func(m *perfdata.Mmap2) []byte {
		if v := verdicts[proof.FileOf(m)]; !v.ID.IsZero() {
			return v.ID.GNUForm().Bytes()
		}
		return nil
	}
	more := proof.NewList(verdicts, rec, len(listed) > 0)
	var filled perfdata.Filled
	for at, f := range files {
		write := func(w io.Writer) error {
			one, err := fill(w, files, at, of, more)
			filled.Mappings += one.Mappings
			filled.Compressed += one.Compressed
			filled.Listed = filled.Listed || one.Listed
			return err
		}
		if err := i.write(name, f, write); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return i.printSummary(name, rec, verdicts, listed, filled)
}

// fill copies one file of a recording with more build IDs. The first one has the list.
func fill(w io.Writer, files perfdata.Files, at int, of func(*perfdata.Mmap2) []byte, more []perfdata.HeaderBuildID) (perfdata.Filled, error) {
	if at == 0 {
		return perfdata.FillBuildIDs(w, files[0], of, more)
	}
	return perfdata.FillRecords(w, files[at], files[0], of)
}

// write writes the result. No more people may read it than could read the recording: there may
// be memory of programs in it, and perf keeps it to itself.
func (i *injector) write(name string, recording *os.File, write func(io.Writer) error) error {
	if i.output == "-" {
		return write(i.env.Stdout)
	}
	to := cmp.Or(i.output, name)
	if i.directory {
		to = filepath.Join(to, filepath.Base(recording.Name()))
	}
	if i.output == "" {
		return atomicfile.Rewrite(recording, to, write)
	}
	info, err := recording.Stat()
	if err != nil {
		return err
	}
	return atomicfile.Write(to, info.Mode().Perm(), write)
}

// open opens the recording, which is read twice: what comes through a pipe, or is compressed, is
// kept in a file that has no name. It returns when it was written as well, zero for a pipe.
func (i *injector) open(name string) (perfdata.Files, time.Time, error) {
	var from io.Reader = i.env.Stdin
	if name == "-" {
		name = "standard input"
		i.output = cmp.Or(i.output, "-")
	} else {
		files, err := i.openFiles(name)
		if err != nil {
			return nil, time.Time{}, err
		}
		info, err := files[0].Stat()
		regular := err == nil && info.Mode().IsRegular()
		if regular && !isGzip(files[0]) {
			return files, info.ModTime(), nil
		}
		defer files.Close()
		if i.output == "" {
			what := "is no regular file"
			if regular {
				what = "is compressed"
			}
			if regular && !perffile.HasCompressedMagic(bufio.NewReader(io.NewSectionReader(files[0], 0, info.Size()))) {
				return nil, time.Time{}, input.DescribeKind(name, fmt.Errorf("%s: %w", name, perfdata.ErrNotPerfData))
			}
			return nil, time.Time{}, verb.Usagef("%s: %s and cannot be replaced: use --output", name, what)
		}
		from = files[0]
	}
	kept, err := i.keepPlain(from)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("%s: %w", name, err)
	}
	return perfdata.Files{kept}, writtenAt(from), nil
}

// openFiles opens a file, or those of a directory, for which it makes the output's.
func (i *injector) openFiles(name string) (perfdata.Files, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, terminal.OpenFailed(err)
	}
	if i.directory = info.IsDir(); i.directory && i.output == "-" {
		return nil, verb.Usagef("%s: is a directory, and is not written to standard output", name)
	}
	files, err := perfdata.OpenFiles(name)
	if err == nil && i.directory && i.output != "" {
		err = atomicfile.NewDir(i.output, info.Mode().Perm())
	}
	if err != nil {
		return nil, errors.Join(err, files.Close())
	}
	return files, nil
}

// isGzip reports whether gzip compressed a regular file.
func isGzip(f *os.File) bool {
	var head [2]byte
	_, err := f.ReadAt(head[:], 0)
	return err == nil && bytes.Equal(head[:], perffile.GzipMagic)
}

// keepPlain keeps what it reads, uncompressed and within bounds.
func (i *injector) keepPlain(from io.Reader) (*os.File, error) {
	plain, err := uncompressed(from)
	if err != nil {
		return nil, err
	}
	if plain.compressed {
		return perffile.Keep(perffile.Bound(plain, profile.DefaultMaxSize))
	}
	return perffile.Keep(plain)
}

// writtenAt returns when what is read was written, zero if it is no file.
func writtenAt(from io.Reader) time.Time {
	if f, ok := from.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			return info.ModTime()
		}
	}
	return time.Time{}
}

// printSummary says what was filled, what not, and why. A damaged recording is an error.
func (i *injector) printSummary(recording string, rec *proof.Recorded, verdicts map[proof.File]proof.Verdict, listed map[string]bool, filled perfdata.Filled) error {
	out := bufio.NewWriter(i.env.Stderr)
	files := slices.SortedFunc(maps.Keys(verdicts), func(a, b proof.File) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Inode, b.Inode), cmp.Compare(a.Generation, b.Generation))
	})
	found, trusted, missing, left := 0, 0, 0, 0
	for _, file := range files {
		v, name := verdicts[file], terminal.Name(file.Name)
		switch {
		case v.Trusted:
			trusted++
			fmt.Fprintf(out, "trusted  %x  %s: %s\n", v.ID.GNUForm().Bytes(), name, plaintext.Line(v.Err.Error()))
		case v.NoGNU:
			left++
			fmt.Fprintf(out, "left     %s: %s\n", name, plaintext.Line(v.Err.Error()))
		case v.Err == nil:
			found++
			fmt.Fprintf(out, "filled   %x  %s\n", v.ID.GNUForm().Bytes(), name)
		default:
			missing++
			fmt.Fprintf(out, "missing  %s: %s\n", name, plaintext.Line(v.Err.Error()))
		}
	}
	without := ""
	if left > 0 {
		without = fmt.Sprintf(", %d without a GNU build ID", left)
	}
	fmt.Fprintf(out, "%s filled, %d without proof, %d missing%s; %s of perf's list and %s had one; %s written\n",
		plaintext.Plural(int64(found+trusted), "file"), trusted, missing, without, plaintext.Plural(int64(len(listed)), "file"),
		plaintext.Plural(int64(rec.Identified), "mapping"), plaintext.Plural(int64(filled.Mappings), "mapping"))
	for _, paths := range proof.DifferentFiles(verdicts) {
		fmt.Fprintln(out, symbolsource.DifferentText(paths))
	}
	if missing > 0 && !i.Trust {
		fmt.Fprintln(out, "--trust-paths takes files without proof")
	}
	if filled.Compressed > 0 {
		fmt.Fprintln(out, "mappings in compressed records have their build IDs in the list only")
	}
	if !filled.Listed {
		fmt.Fprintln(out, "the recording has no list of build IDs: only its mappings have them")
	}
	if err := out.Flush(); err != nil || rec.Damage == nil {
		return err
	}
	return fmt.Errorf("%s: the recording is damaged, and what could not be read has no build IDs: %w", perffile.InputName(recording), rec.Damage)
}
