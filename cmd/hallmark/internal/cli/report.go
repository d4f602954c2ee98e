package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	pprof "github.com/google/pprof/profile"
	"github.com/spf13/cobra"

	"hallmark/internal/plaintext"
	"hallmark/profile"
	"hallmark/profile/fromperf"
	"hallmark/profile/summary"
)

const reportLong = `Report which functions, binaries and processes the time of a profile went to, or
what else it counts. Report also how much of it is known. For frames that is
the share with the identity of their file and the share with a function's name,
with the reasons for the rest. For stacks it is the share that is complete, with
the reasons why others end early, by the binary where they do.

FILE is any pprof profile, or a recording by perf (perf.data, and the directory
that 'perf record --threads' writes); '-' is standard input, and gzip is seen
through. It may also be the text of 'perf script' or folded stacks ("main;walk 42"),
as many profilers write them; neither has identities. Without one it is
hallmark.pb.gz, which 'hallmark record' writes.
Frames without symbols, or without source lines, get them from what has their
identity: prepared indexes, the files and installed debug files of this machine,
and where DEBUGINFOD_URLS names debuginfod servers, these.

A recording may have several events. The report is of the first one that has
samples, and names the others. --event chooses one; --event all reports on each
in turn (with --json in an object each). Files without a build ID are identified
as by 'hallmark inject', which reports for each file why not. --trust-paths acts
as it does there. Of a damaged recording what can be read is reported, and the
exit status is 1.

"flat" counts what a function did itself, "cum" also what it called.

Code without a symbol has the name of its file and the offset where its function
starts, as libfoo.so+0x1f3a40, if the file itself is on this machine: compilers
describe functions for unwinding, and strip leaves that. It counts as unknown.
Where the file is not here, all code of it without symbols is one function,
'libfoo.so [unknown]'.

Files of different content that claim one build ID are several binaries, and a
note names them: "same build ID, different content".

With --json it prints one object: docs/json.md has the fields.`

func newReportCommand(e *env) *cobra.Command {
	r := report{env: e}
	cmd := &cobra.Command{
		Use:   "report [flags] [FILE]",
		Short: "Show where the time of a profile went, and how much of it is known",
		Long:  reportLong,
		Example: `  hallmark report out.pb.gz
  hallmark report --top 5 --sort cum out.pb.gz
  hallmark report --sample-type inuse_space heap.pb.gz
  hallmark report --json out.pb.gz | jq .coverage`,
		Args: takes("[FILE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.json && !cmd.Flags().Changed("top") {
				r.top = 0
			}
			name, err := profileArgument(args)
			if err != nil {
				return err
			}
			return r.run(name)
		},
	}
	r.input.addFlags(cmd.Flags())
	r.input.symbols = &r.symbols
	r.symbols.addFlags(cmd.Flags())
	cmd.Flags().IntVar(&r.top, "top", defaultTop, "show `N` functions, 0 for all; with --json all is the default")
	cmd.Flags().StringVar(&r.sort, "sort", "flat", "order functions by this `COLUMN`, flat or cum")
	completeValues(cmd, "sort", "flat", "cum")
	cmd.Flags().BoolVar(&r.json, "json", false, "write JSON")
	return cmd
}

// defaultTop is how many functions people want to see at once.
const defaultTop = 20

type report struct {
	env     *env
	input   input
	symbols symbolOptions
	top     int
	sort    string
	json    bool
}

func (r *report) run(name string) error {
	collectSeldom()
	if r.top < 0 {
		return usageError{fmt.Errorf("--top %d is negative: 0 shows all", r.top)}
	}
	if r.sort != "flat" && r.sort != "cum" {
		return usageError{fmt.Errorf("--sort %s: must be flat or cum", r.sort)}
	}
	all, err := r.input.readEach(r.env, name)
	if err != nil {
		return err
	}
	for i, p := range all {
		misses, err := r.symbols.show(r.env, p)
		if err == nil {
			err = r.input.checkCalls(name, p)
		}
		if err != nil {
			return err
		}
		if i > 0 && !r.json {
			fmt.Fprintln(r.env.stdout)
		}
		if err := r.write(p, misses); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return r.input.status()
}

// writeReport writes the report of a profile that was symbolized, as far as
// misses do not say otherwise.
func writeReport(e *env, p *pprof.Profile, misses profile.Misses) error {
	r := report{env: e, top: defaultTop}
	return r.write(p, misses)
}

func (r *report) write(p *pprof.Profile, misses profile.Misses) error {
	s, err := summary.New(p, summary.Options{
		SampleType: r.input.sampleType,
		Misses:     misses,
		ByCum:      r.sort == "cum",
	})
	if err != nil {
		return err
	}
	fitAdvice(s, &r.input)
	if r.json {
		return r.writeJSON(s)
	}
	r.writeText(s)
	return nil
}

func (r *report) writeJSON(s *summary.Summary) error {
	s.Functions = s.Functions[:shown(len(s.Functions), r.top)]
	out := newObjectWriter(r.env.stdout)
	out.indent()
	return out.write(struct {
		*summary.Summary
		Events []fromperf.EventCount `json:"events,omitempty"`
	}{s, r.input.events})
}

// shown returns how many of n lines are shown; most is 0 for all of them.
func shown(n, most int) int {
	if most <= 0 {
		return n
	}
	return min(n, most)
}

// mostOthers is how many binaries and processes are shown beside the functions.
const mostOthers = 10

func (r *report) writeText(s *summary.Summary) {
	w := r.env.stdout
	if s.Total == 0 {
		fmt.Fprintf(w, "The profile is empty: %s.\n\n", emptiness(s))
		writeCoverage(w, &s.Coverage)
		return
	}
	fmt.Fprintln(w, headline(s))
	for _, c := range s.Comments {
		fmt.Fprintln(w, plaintext.Line(c))
	}
	others := min(mostOthers, r.top)
	r.section(functionTable(s, r.top), len(s.Functions), r.top)
	r.section(binaryTable(s, others, terminalWidth(w)), len(s.Binaries), others)
	if len(s.Processes) > 0 {
		r.section(processTable(s, others), len(s.Processes), others)
	}
	fmt.Fprintln(w)
	writeCoverage(w, &s.Coverage)
}

// emptiness says what a profile lacks that has nothing of what was to be counted.
func emptiness(s *summary.Summary) string {
	if s.Samples == 0 || s.SampleType == "samples" {
		return "it has no samples"
	}
	return "all values of " + plaintext.Line(s.SampleType) + " are 0"
}

// section writes a table of at most so many of n things, and how many it left out.
func (r *report) section(t *table, n, most int) {
	w := r.env.stdout
	fmt.Fprintln(w)
	t.write(w, terminalWidth(w))
	if left := n - shown(n, most); left > 0 {
		fmt.Fprintf(w, "… %s more, --top 0 shows all\n", thousands(int64(left)))
	}
}

// headline says what was measured: "9.87s cpu in 10.0s, 977 samples".
func headline(s *summary.Summary) string {
	line := quantity(s.Total, s.Unit) + " " + s.SampleType
	if s.Duration > 0 {
		line += " in " + quantity(int64(s.Duration), "nanoseconds")
	}
	if s.Samples > 0 && s.SampleType != "samples" {
		line += ", " + plural(s.Samples, "sample")
	}
	if !s.Time.IsZero() {
		line += ", " + s.Time.Local().Format("2006-01-02 15:04:05")
	}
	return plaintext.Line(line)
}

// number is a column of numbers.
var number = column{right: true}

func functionTable(s *summary.Summary, most int) *table {
	t := &table{columns: []column{number, number, number, number, {most: 24}, {}}}
	in := rulerFor(s.Total, s.Unit)
	t.add("flat", "", "cum", "", "binary", "function")
	for _, f := range s.Functions[:shown(len(s.Functions), most)] {
		t.add(in.format(f.Flat), percent(f.Flat, s.Total), in.format(f.Cum), percent(f.Cum, s.Total),
			nameCell(profile.ShortName(f.File)), plaintext.Quote(f.Name))
	}
	return t
}

func binaryTable(s *summary.Summary, most, width int) *table {
	t := &table{columns: []column{number, number, number, number, {}, {}}}
	in := rulerFor(s.Total, s.Unit)
	t.add("flat", "", "cum", "", "identity", "binary")
	for _, b := range s.Binaries[:shown(len(s.Binaries), most)] {
		t.add(in.format(b.Flat), percent(b.Flat, s.Total), in.format(b.Cum), percent(b.Cum, s.Total),
			cmp.Or(shortID(b.BuildID, width), "-"), nameCell(cmp.Or(b.File, "[unknown]")))
	}
	return t
}

// shortID cuts an identity for a terminal so narrow that no path would fit behind
// the whole of it. The start of one is what directories of debug files go by.
func shortID(id string, width int) string {
	most := 40
	switch {
	case width < narrowWidth:
		most = 12
	case width < 110:
		most = 16
	}
	if width == 0 || len(id) <= most {
		return id
	}
	return id[:most-1] + "…"
}

func processTable(s *summary.Summary, most int) *table {
	t := &table{columns: []column{number, number, number, {}}}
	in := rulerFor(s.Total, s.Unit)
	t.add("flat", "", "pids", "process")
	for _, p := range s.Processes[:shown(len(s.Processes), most)] {
		t.add(in.format(p.Flat), percent(p.Flat, s.Total), thousands(int64(p.PIDs)), plaintext.Name(cmp.Or(p.Name, "?")))
	}
	return t
}

// writeCoverage writes how much is known, and what can be done about the rest.
func writeCoverage(w io.Writer, c *profile.Coverage) {
	if c.Frames == 0 {
		fmt.Fprintln(w, "Coverage: there are no frames.")
		return
	}
	fmt.Fprintf(w, "Coverage: %s, %s identified", plural(c.Frames, "frame"), percent(c.Identified, c.Frames))
	if c.FileFrames > 0 {
		fmt.Fprintf(w, " (%s of those in mapped files)", percent(c.FileIdentified, c.FileFrames))
	}
	fmt.Fprintf(w, ", %s symbolized\n", percent(c.Symbolized, c.Frames))
	t := &table{columns: []column{number, {}, {}}}
	for _, g := range c.Gaps {
		t.add("  "+percent(g.Frames, c.Frames), "no "+string(g.Lacks), gapText(g))
		if advice := g.Advice(); advice != "" {
			t.add("", "", "→ "+advice)
		}
	}
	t.write(w, 0) // advice is for reading: better wrapped than cut
	writeStacks(w, c.Stacks)
}

// writeStacks writes how many stacks are complete, and why the others are not.
func writeStacks(w io.Writer, s *profile.Stacks) {
	if s == nil {
		return
	}
	rest := ""
	if s.KernelOnly > 0 {
		rest = "; " + thousands(s.KernelOnly) + " more are of the kernel alone"
	}
	fmt.Fprintf(w, "Stacks: %s, %s known to be complete%s\n", plural(s.Samples, "sample"), percent(s.Complete, s.Samples), rest)
	t := &table{columns: []column{number, {}}}
	for _, g := range s.Gaps {
		var names []string
		for _, b := range g.Binaries {
			names = append(names, nameCell(profile.ShortName(b.File)))
		}
		t.add("  "+percent(g.Samples, s.Samples), withNames(g.Reason.String(), names))
		if advice := g.Advice(); advice != "" {
			t.add("", "→ "+advice)
		}
	}
	t.write(w, 0)
}

// gapText says what is wrong, and in which binaries mostly.
func gapText(g profile.Gap) string {
	pseudo := profile.PseudoFile(g.Reason, "")
	var names []string
	for _, b := range g.Binaries {
		if b.File != pseudo {
			names = append(names, nameCell(strings.TrimPrefix(profile.ShortName(b.File), pseudo+" ")))
		}
	}
	return withNames(g.Reason.String(), names)
}

// withNames adds the first few of the binaries that something is about.
func withNames(text string, names []string) string {
	if len(names) == 0 {
		return text
	}
	if more := len(names) - mostNames; more > 0 {
		names = append(names[:mostNames], fmt.Sprintf("%d more", more))
	}
	return text + ": " + strings.Join(names, ", ")
}

// mostNames is how many binaries are named for one reason.
const mostNames = 4
