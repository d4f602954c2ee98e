package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"hallmark/cmd/hallmark/internal/doctor"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/plaintext"
)

const censusLong = `Census measures what it would cost here if the kernel kept the build ID of each
open file. It counts the structures that could keep one: open files, inodes,
files whose code is mapped. It computes what a pointer would cost in each of
them, beside the memory that Hallmark's own table takes.

It is the exercise that the kernel's developers set themselves when they wanted
the build ID in struct file: how many instances of it are there, and how many
files with code are behind them? A structure whose allocator leaves room behind
it takes a pointer for nothing; else fewer fit into a slab.

Counts that cannot be taken have a reason: most of them need CAP_BPF,
CAP_PERFMON, CAP_SYS_PTRACE, CAP_SYS_ADMIN or CAP_DAC_READ_SEARCH, which root
has.`

const censusExample = `  hallmark census
  hallmark census --json | jq .designs`

func newCensusCommand(e *verb.Env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "census [flags]",
		Short:   "Count open files and files with code, and what designs would cost",
		Long:    censusLong,
		Example: censusExample,
		Args:    verb.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			c := doctor.TakeCensus()
			w := bufio.NewWriter(e.Stdout)
			if asJSON {
				out := verb.NewObjectWriter(w)
				out.Indent()
				return errors.Join(out.Write(c), w.Flush())
			}
			writeCensus(w, c, terminal.Width(e.Stdout))
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

func writeCensus(w io.Writer, c *doctor.Census, width int) {
	t := &terminal.Grid{Columns: []terminal.Column{{Right: true}, {}}}
	for _, line := range []struct {
		n    *int
		what string
	}{
		{c.Processes, "processes"},
		{c.Tasks, "tasks, with the kernel's"},
		{c.Files.Allocated, "open files (struct file), as the kernel counts them"},
		{c.Files.Descriptors, "descriptors of processes"},
		{c.Files.Open, "open files behind descriptors"},
		{c.Files.Mapped, "open files behind mappings"},
		{c.Files.Reached, "open files behind either"},
		{c.Inodes, "inodes in cache"},
		{c.Code.Spaces, "address spaces"},
		{c.Code.Mappings, "executable mappings of files"},
		{c.Code.Inodes, "inodes of files with code that is mapped"},
		{c.Code.Identities, "identities of these"},
		{c.Code.Contested, "build IDs that files of different or unknown content claim"},
	} {
		if line.n != nil {
			t.Add(plaintext.Thousands(int64(*line.n)), line.what)
		}
	}
	t.Write(w, width)
	writeDesigns(w, c, width)
	for _, m := range c.Missing {
		fmt.Fprintf(w, "\nnot counted: %s: %s\n", plaintext.Quote(m.What), plaintext.Line(m.Why))
	}
}

// writeDesigns says what each way to keep a build ID would take.
func writeDesigns(w io.Writer, c *doctor.Census, width int) {
	if len(c.Designs) == 0 && c.Table == nil {
		return
	}
	fmt.Fprintln(w, "\nA pointer to the build ID in each")
	t := &terminal.Grid{Columns: []terminal.Column{{}, {}, {Right: true}, {Right: true}, {Right: true}, {Right: true}, {}}}
	t.Add("structure", "cache", "objects", "bytes", "slot", "per slab", "takes")
	for _, d := range c.Designs {
		takes := terminal.Quantity(d.Cost, "bytes")
		if d.Absorbed {
			takes = "nothing: as many fit into a slab"
		}
		t.Add(d.Structure, d.Cache, plaintext.Thousands(int64(d.Objects)), fmt.Sprint(d.Bytes), fmt.Sprint(d.Slot), fmt.Sprint(d.PerSlab), takes)
	}
	t.Write(w, width)
	if c.Table != nil {
		fmt.Fprintf(w, "\nHallmark's table, with whole identities of %s: %s\n", plaintext.Plural(int64(c.Table.Entries), "file"), terminal.Quantity(int64(c.Table.Bytes), "bytes"))
	}
}
