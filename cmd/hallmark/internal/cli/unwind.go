package cli

import (
	"bufio"
	"debug/elf"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hallmark/addr"
	"hallmark/cmd/hallmark/internal/input"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/defect"
	"hallmark/internal/plaintext"
	"hallmark/internal/regular"
	"hallmark/unwind"
)

const unwindLong = `Unwind prints the tables that find callers in files without frame pointers. Each
line has the offsets in the file and the rule for the canonical frame address
(c). It also has the places of the return address and of the caller's registers,
and the source of the rule. Registers that a line does not name are unchanged.

The tables are made from .eh_frame, .debug_frame, Go's pclntab, and the known
forms of PLT entries and other code. Where a table has no rule, a reason stands
in its place. It is gap (no source covers the code), expression or unusual (the
rule does not fit into a table), or damaged.

With --stats there is a summary of each file instead, with --check only the row
of one offset. Damaged parts are left out and named on standard error; when a
file can have no table the others go on, and the exit status is 1; with --json
the error is an object.`

const unwindExample = `  hallmark unwind /bin/sh
  hallmark unwind --check 0x27020 /lib/x86_64-linux-gnu/libc.so.6
  hallmark unwind --stats /usr/lib/x86_64-linux-gnu/*.so.*
  hallmark unwind --json /bin/sh | jq -r 'select(.kind == "none") | .why'`

type unwindOptions struct {
	json, stats bool
	check       string
	threads     int
}

func newUnwindCommand(e *verb.Env) *cobra.Command {
	var opt unwindOptions
	cmd := &cobra.Command{
		Use:     "unwind [flags] FILE...",
		Short:   "Print how callers are found in files without frame pointers",
		Long:    unwindLong,
		Example: unwindExample,
		Args:    verb.Takes("FILE..."),
		RunE: func(_ *cobra.Command, args []string) error {
			p := &unwindPrinter{opt: opt, out: bufio.NewWriter(e.Stdout), stdout: e.Stdout, stderr: e.Stderr, several: len(args) > 1}
			if opt.check != "" {
				at, err := parseAddress(opt.check)
				if err != nil {
					return verb.Usagef("%q is not a hexadecimal offset", opt.check)
				}
				p.at = addr.Offset(at)
			}
			if opt.threads < 0 {
				return verb.Usagef("--threads %d is negative", opt.threads)
			}
			if opt.check != "" && opt.stats {
				return verb.Usagef("--check and --stats do not go together")
			}
			return p.files(args)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opt.json, "json", false, "print one JSON object a line")
	flags.BoolVar(&opt.stats, "stats", false, "print a summary of each file")
	flags.StringVar(&opt.check, "check", "", "print the row of this hexadecimal `OFFSET` in the file only")
	flags.IntVar(&opt.threads, "threads", 0, "threads that make a table: `N` (0: as many as run at once)")
	return cmd
}

// unwindPrinter prints the tables of files.
type unwindPrinter struct {
	opt            unwindOptions
	at             addr.Offset // of --check
	out            *bufio.Writer
	stdout, stderr io.Writer
	several        bool
}

func (p *unwindPrinter) files(names []string) error {
	failed := false
	for _, name := range names {
		if err := p.file(name); err != nil {
			failed = true
			if p.opt.json {
				err = verb.WriteObject(p.out, fileFailure{name, err.Error()})
			} else {
				_, err = fmt.Fprintf(p.stderr, "hallmark: %s\n", plaintext.Line(terminal.Message(err, name)))
			}
			if err != nil {
				return err
			}
		}
		if err := p.out.Flush(); err != nil {
			return err
		}
	}
	if failed {
		return verb.ExitStatus(1)
	}
	return nil
}

// fileFailure is the object of a file that has no table.
type fileFailure struct {
	File  string `json:"binary"`
	Error string `json:"error"`
}

func (p *unwindPrinter) file(name string) (err error) {
	defer func() {
		if defect.Escapes() {
			return
		}
		if v := recover(); v != nil {
			err = fmt.Errorf("%s: %w", name, defect.Caught(v))
		}
	}()
	f, err := regular.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	start := time.Now()
	table, err := unwind.Build(f, unwind.BuildOptions{
		Threads: p.opt.threads,
		Warn: func(err error) {
			fmt.Fprintf(p.stderr, "hallmark: %s: %s\n", plaintext.Name(name), plaintext.Line(err.Error()))
		},
	})
	if err != nil {
		return input.DescribeKind(name, fmt.Errorf("%s: %w", name, err))
	}
	took := time.Since(start)
	if p.several && !p.opt.json {
		fmt.Fprintf(p.out, "%s:\n", plaintext.Name(name))
	}
	switch {
	case p.opt.stats:
		return p.stats(name, f, table, took)
	case p.opt.check != "":
		return p.rows(name, table, func(r unwind.Row) bool { return r.Start <= p.at && p.at < r.End })
	}
	return p.rows(name, table, func(unwind.Row) bool { return true })
}

// rows prints those rows of a table that are wanted.
func (p *unwindPrinter) rows(name string, t *unwind.Table, wanted func(unwind.Row) bool) error {
	m := t.Machine()
	text := &terminal.Grid{Columns: make([]terminal.Column, 4)}
	found := false
	for row := range t.All() {
		if !wanted(row) {
			continue
		}
		found = true
		if !p.opt.json {
			text.Measure(cellsOfRow(m, row)...)
		} else if err := verb.WriteObject(p.out, recordOfRow(name, m, row)); err != nil {
			return err
		}
	}
	switch {
	case !found && p.opt.check != "":
		return fmt.Errorf("%s: no row has offset %v", name, p.at)
	case p.opt.json:
		return nil
	}
	width := terminal.Width(p.stdout)
	for row := range t.All() {
		if !wanted(row) {
			continue
		}
		if text.Add(cellsOfRow(m, row)...); len(text.Rows) == rowsAtOnce {
			text.Write(p.out, width)
			text.Rows = text.Rows[:0]
		}
	}
	text.Write(p.out, width)
	return nil
}

// rowsAtOnce is how many rows are in memory as text: a table may have millions.
const rowsAtOnce = 1000

func cellsOfRow(m unwind.Machine, row unwind.Row) []string {
	r := &row.Rule
	return []string{fmt.Sprintf("%x-%x", uint64(row.Start), uint64(row.End)), r.CFA(m), r.Describe(m), r.Source().String()}
}

// rowRecord is one row as a JSON object.
type rowRecord struct {
	File       string         `json:"binary"`
	Start      addr.Offset    `json:"start"`
	End        addr.Offset    `json:"end"`
	Kind       string         `json:"kind"`
	Why        string         `json:"why,omitempty"`
	Register   string         `json:"register,omitempty"`
	Offset     *int32         `json:"offset,omitempty"`
	Addend     int            `json:"addend,omitempty"`      // bytes
	RA         *int           `json:"ra,omitempty"`          // bytes from the CFA
	RARegister string         `json:"ra_register,omitempty"` // where the return address is otherwise
	SavedFrom  string         `json:"saved_from,omitempty"`  // cfa, or a register
	Saved      map[string]int `json:"saved,omitempty"`       // bytes from it
	Lost       []string       `json:"lost_registers,omitempty"`
	Source     string         `json:"section,omitempty"`
}

func recordOfRow(name string, m unwind.Machine, row unwind.Row) rowRecord {
	r := row.Rule
	rec := rowRecord{File: name, Start: row.Start, End: row.End, Kind: r.Kind.String()}
	if r.Source() != unwind.NoSource {
		rec.Source = r.Source().String()
	}
	switch r.Kind {
	case unwind.None:
		rec.Why = r.Silence().String()
	case unwind.Signal, unwind.Goroutine:
		rec.Register, rec.Offset = m.Name(r.Register), &r.Offset
	case unwind.Reg, unwind.Deref, unwind.PLT:
		rec.Register, rec.Offset, rec.Addend = m.Name(r.Register), &r.Offset, 8*int(r.Addend)
		rec.places(m, &r)
	}
	return rec
}

// places fills in where the caller's registers are.
func (rec *rowRecord) places(m unwind.Machine, r *unwind.Rule) {
	if r.RA == unwind.Same {
		rec.RARegister = m.Name(r.Link)
	} else {
		n := 8 * int(r.RA)
		rec.RA = &n
	}
	for i, reg := range m.Saved() {
		switch n := r.Saved[i]; n {
		case unwind.Same:
		case unwind.Unknown:
			rec.Lost = append(rec.Lost, m.Name(reg))
		default:
			if rec.Saved == nil {
				rec.Saved, rec.SavedFrom = map[string]int{}, "cfa"
			}
			rec.Saved[m.Name(reg)] = 8 * int(n)
		}
	}
	if r.Flags&unwind.SavedAtRegister != 0 && rec.Saved != nil {
		rec.SavedFrom = m.Name(r.Register)
	}
	if r.Flags&unwind.SavedAtFramePointer != 0 && rec.Saved != nil {
		rec.SavedFrom = m.Name(m.FramePointer())
	}
}

// statsRecord is the summary of one file as a JSON object.
type statsRecord struct {
	File        string            `json:"binary"`
	Machine     string            `json:"machine"`
	Rows        int               `json:"rows"`
	Rules       int               `json:"rules"`
	Size        int               `json:"table_bytes"`  // bytes
	Code        uint64            `json:"code_bytes"`   // bytes that are executable
	Known       uint64            `json:"known_bytes"`  // bytes of them with a rule
	Silent      map[string]int    `json:"silent"`       // rows without, by reason
	SilentBytes map[string]uint64 `json:"silent_bytes"` // bytes of these
	Lost        int               `json:"lost_rows"`    // rows that lose the frame pointer
	Nanoseconds int64             `json:"built_ns"`     // to make the table
}

func (p *unwindPrinter) stats(name string, f io.ReaderAt, t *unwind.Table, took time.Duration) error {
	s := t.Stats()
	code := executableBytes(f)
	if p.opt.json {
		rec := statsRecord{File: name, Machine: t.Machine().String(), Rows: s.Rows, Rules: s.Rules, Size: s.Size, Code: code,
			Known: s.Known, Silent: map[string]int{}, SilentBytes: map[string]uint64{}, Lost: s.Lost, Nanoseconds: int64(took)}
		for why := range unwind.Silence(len(s.Silent)) {
			rec.Silent[why.String()], rec.SilentBytes[why.String()] = s.Silent[why], s.SilentBytes[why]
		}
		return verb.WriteObject(p.out, rec)
	}
	perRow := "-"
	if s.Rows > 0 {
		perRow = strconv.FormatFloat(float64(s.Size)/float64(s.Rows), 'f', 2, 64)
	}
	text := &terminal.Grid{Columns: []terminal.Column{{}, {Right: true}, {}}}
	text.Add("rows", plaintext.Thousands(int64(s.Rows)), plaintext.Plural(int64(s.Rules), "distinct rule"))
	text.Add("size", terminal.Quantity(int64(s.Size), "bytes"), perRow+" bytes a row, "+t.Machine().String())
	text.Add("code with a rule", terminal.Percent(int64(s.Known), int64(code)), "of "+terminal.Quantity(int64(code), "bytes"))
	for why := range unwind.Silence(len(s.Silent)) {
		text.Add("none: "+why.String(), plaintext.Thousands(int64(s.Silent[why])), strings.TrimSpace("rows, "+terminal.Quantity(int64(s.SilentBytes[why]), "bytes")))
	}
	text.Add("frame pointer lost", plaintext.Thousands(int64(s.Lost)), "rows")
	text.Add("made in", terminal.Quantity(int64(took), "nanoseconds"), "")
	text.Write(p.out, terminal.Width(p.stdout))
	return nil
}

// executableBytes returns how much of a file is mapped to be executed.
func executableBytes(r io.ReaderAt) (n uint64) {
	f, err := elf.NewFile(r)
	if err != nil {
		return 0
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			n += p.Filesz
		}
	}
	return n
}
