package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	pprof "github.com/google/pprof/profile"
	"github.com/spf13/cobra"

	"hallmark/cmd/hallmark/internal/advice"
	"hallmark/cmd/hallmark/internal/input"
	"hallmark/cmd/hallmark/internal/symbolsource"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
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
through. It may also be the text of 'perf script' or folded stacks, as many
profilers write them ("main;walk 42"); neither has identities. Or it is a
message of OTLP, OpenTelemetry's protocol (1.10 or later), as in 'hallmark
convert -o out.otlp'. Without FILE, hallmark.pb.gz is read, which 'hallmark
record' writes.
Frames without symbols, or without source lines, get them from what has their
identity: prepared indexes, the files and installed debug files of this machine,
and where DEBUGINFOD_URLS names debuginfod servers, these. With --server, a
symbol server ('hallmark serve') is asked first.

A recording may have several events. The report is of the first one that has
samples, and names the others. --event chooses one; --event all reports on each
in turn (with --json in an object each). Files without a build ID are identified
as by 'hallmark inject', which reports for each file why not. Where a file has
no identity, as in profiles by gperftools, --binary FILE takes a file of that
name for it, and --trust-paths the one at its path. Nothing proves that it ran,
and the report says so. Of a damaged recording what can be read is reported, and
the exit status is 1.

--tree prints the calls as a tree, the functions first that count most, or with
--invert each function and below it its callers. --diff BASE compares two
profiles: functions, binaries and processes are sorted by what changed most.
Folded stacks with two counts in each line, as difffolded.pl writes them, are
such a comparison. Functions of two builds are compared by name. Values are
compared as they are; --normalize scales the base to the same total first, where
one of the two was recorded for longer.

--focus and --ignore choose stacks, --process, --thread and --container samples,
and --from and --to a part of the time, in all forms of the report. Shares are
of what was chosen. The exit status is 1 if that is nothing.

"flat" counts what a function did itself, "cum" also what it called.

Code without a symbol has the name of its file and the offset where its function
starts, as libfoo.so+0x1f3a40, if the file itself is on this machine: compilers
describe functions for unwinding, and strip leaves that. It counts as unknown.
Where the file is not here, all code of it without symbols is one function,
'libfoo.so [unknown]'.

Files of different content that claim one build ID are several binaries, and a
note names them: "same build ID, different content".

An identity is proven if the content of the file was compared. Else the file
claims it, and the coverage has the share of both. Where another user can have
written the file, the line of the binary has the mark "[claimed by user 1000]".
Only files of that user name the functions of such a binary.

With --json it prints one object: docs/json.md has the fields.`

func newReportCommand(e *verb.Env) *cobra.Command {
	r := report{env: e}
	cmd := &cobra.Command{
		Use:   "report [flags] [FILE]",
		Short: "Show where the time of a profile went, and how much of it is known",
		Long:  reportLong,
		Example: `  hallmark report out.pb.gz
  hallmark report --top 5 --sort cum out.pb.gz
  hallmark report --sample-type inuse_space heap.pb.gz
  hallmark report --tree --process nginx --ignore epoll_wait out.pb.gz
  hallmark report --diff before.pb.gz after.pb.gz
  hallmark report --server https://symbols.example other-machine.pb.gz
  hallmark report --json out.pb.gz | jq .coverage`,
		Args: verb.Takes("[FILE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case cmd.Flags().Changed("top"):
			case r.json:
				r.top = 0
			case r.tree:
				r.top = mostNodes
			}
			name, err := input.Argument(args)
			if err != nil {
				return err
			}
			return r.run(name)
		},
	}
	r.input.AddFlags(cmd.Flags())
	r.input.DebugPaths = &r.symbols.Extra
	r.symbols.AddFlags(cmd.Flags())
	r.symbols.AddServerFlags(cmd.Flags())
	r.filter.addFlags(cmd)
	cmd.Flags().IntVar(&r.top, "top", defaultTop, "show `N` functions, 0 for all; with --json all is the default")
	cmd.Flags().StringVar(&r.sort, "sort", "flat", "order functions by this `COLUMN`, flat or cum")
	verb.CompleteValues(cmd, "sort", "flat", "cum")
	cmd.Flags().BoolVar(&r.tree, "tree", false, "print the tree of calls, --top says of how many nodes")
	cmd.Flags().BoolVar(&r.invert, "invert", false, "with --tree, print functions and below each its callers")
	cmd.Flags().StringVar(&r.base, "diff", "", "print what changed since the profile `BASE`")
	cmd.Flags().BoolVar(&r.normalize, "normalize", false, "with --diff, compare after the base was scaled to the same total")
	cmd.Flags().BoolVar(&r.json, "json", false, "write JSON")
	return cmd
}

// defaultTop is how many functions people want to see at once.
const defaultTop = 20

type report struct {
	env     *verb.Env
	input   input.Reader
	symbols symbolsource.Options
	filter  stackFilter
	top     int
	sort    string
	json    bool
	tree    bool
	invert  bool

	base      string // what the profile is compared with
	normalize bool
}

func (r *report) run(name string) error {
	verb.CollectSeldom()
	if err := r.input.Believe(); err != nil {
		return err
	}
	if r.top < 0 {
		return verb.Usagef("--top %d is negative: 0 shows all", r.top)
	}
	if r.sort != "flat" && r.sort != "cum" {
		return verb.Usagef("--sort %s: must be flat or cum", r.sort)
	}
	if err := r.checkForms(); err != nil {
		return err
	}
	if err := r.filter.check(); err != nil {
		return verb.Usage(err)
	}
	r.input.Times = r.filter.hasTime()
	if r.base != "" {
		return r.runDiff(name)
	}
	r.input.Differences = !r.tree
	all, err := r.input.ReadEach(r.env, name)
	if err != nil {
		return err
	}
	if r.input.Base != nil {
		return r.reportComparison(name, all[0])
	}
	written := 0
	for _, p := range all {
		misses, err := r.named(name, p)
		if err != nil {
			return err
		}
		if written > 0 && !r.json {
			fmt.Fprintln(r.env.Stdout)
		}
		switch err := r.write(p, misses); {
		case errors.Is(err, errFiltered) && len(all) > 1: // another event may have samples
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		default:
			written++
		}
	}
	if written == 0 {
		return fmt.Errorf("%s: %w", name, errFiltered)
	}
	return r.input.Status()
}

// checkForms refuses forms of the report that exclude each other.
func (r *report) checkForms() error {
	switch {
	case r.tree && r.base != "":
		return verb.Usagef("--tree and --diff exclude each other")
	case r.invert && !r.tree:
		return verb.Usagef("--invert is for --tree")
	case r.normalize && r.base == "":
		return verb.Usagef("--normalize is for --diff")
	}
	return nil
}

// writeReport writes the report of a profile that was symbolized, as far as
// misses do not say otherwise.
func writeReport(e *verb.Env, p *pprof.Profile, misses profile.Misses) error {
	r := report{env: e, top: defaultTop}
	return r.write(p, misses)
}

func (r *report) write(p *pprof.Profile, misses profile.Misses) error {
	if r.tree {
		return r.writeTree(p, misses)
	}
	if r.filter.isSet() {
		sel, err := r.selected(p, misses, nil, nil)
		if err != nil {
			return err
		}
		sel.Only(p)
	}
	s, err := summary.New(p, summary.Options{
		SampleType: r.input.SampleType,
		Misses:     misses,
		ByCum:      r.sort == "cum",
	})
	if err != nil {
		return err
	}
	advice.Fit(s, &r.input)
	if r.json {
		return r.writeJSON(s)
	}
	r.writeText(s)
	return nil
}

func (r *report) writeJSON(s *summary.Summary) error {
	s.Functions = s.Functions[:shown(len(s.Functions), r.top)]
	out := verb.NewObjectWriter(r.env.Stdout)
	out.Indent()
	return out.Write(struct {
		*summary.Summary
		Events []fromperf.EventCount `json:"events,omitempty"`
	}{s, r.input.Events})
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

// mostComments is how many comments of the profile are shown, of which it may have a million.
const mostComments = 1000

func (r *report) writeText(s *summary.Summary) {
	w := r.env.Stdout
	if s.Total == 0 {
		fmt.Fprintf(w, "The profile is empty: %s.\n\n", emptiness(s))
		writeCoverage(w, &s.Coverage)
		return
	}
	fmt.Fprintln(w, headline(s))
	for _, c := range s.Comments[:min(len(s.Comments), mostComments)] {
		fmt.Fprintln(w, plaintext.Line(c))
	}
	if n := len(s.Comments) - mostComments; n > 0 {
		fmt.Fprintf(w, "%s: --json has all\n", plaintext.Plural(int64(n), "more comment of the profile is not shown", "more comments of the profile are not shown"))
	}
	others := min(mostOthers, r.top)
	r.section(functionTable(s, r.top), len(s.Functions), r.top)
	r.section(binaryTable(s, others, terminal.Width(w)), len(s.Binaries), others)
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
func (r *report) section(t *terminal.Grid, n, most int) {
	w := r.env.Stdout
	fmt.Fprintln(w)
	t.Write(w, terminal.Width(w))
	if left := n - shown(n, most); left > 0 {
		fmt.Fprintf(w, "… %s more, --top 0 shows all\n", plaintext.Thousands(int64(left)))
	}
}

// headline says what was measured: "9.87s cpu in 10.0s, 977 samples".
func headline(s *summary.Summary) string {
	line := terminal.Quantity(s.Total, s.Unit) + " " + s.SampleType
	if s.Duration > 0 {
		line += " in " + terminal.Quantity(int64(s.Duration), "nanoseconds")
	}
	if s.Samples > 0 && s.SampleType != "samples" {
		line += ", " + plaintext.Plural(s.Samples, "sample")
	}
	if !s.Time.IsZero() {
		line += ", " + s.Time.Local().Format("2006-01-02 15:04:05")
	}
	return plaintext.Line(line)
}

// number is a column of numbers.
var number = terminal.Column{Right: true}

func functionTable(s *summary.Summary, most int) *terminal.Grid {
	t := &terminal.Grid{Columns: []terminal.Column{number, number, number, number, {Most: 24, Gives: true}, {}}}
	in := terminal.RulerFor(s.Total, s.Unit)
	t.Add("flat", "", "cum", "", "binary", "function")
	for _, f := range s.Functions[:shown(len(s.Functions), most)] {
		t.Add(in.Format(f.Flat), terminal.Percent(f.Flat, s.Total), in.Format(f.Cum), terminal.Percent(f.Cum, s.Total),
			terminal.Name(profile.ShortName(f.File)), plaintext.Quote(f.Name))
	}
	return t
}

func binaryTable(s *summary.Summary, most, width int) *terminal.Grid {
	t := &terminal.Grid{Columns: []terminal.Column{number, number, number, number, {Gives: true, Start: true}, {}}}
	in := terminal.RulerFor(s.Total, s.Unit)
	t.Add("flat", "", "cum", "", "identity", "binary")
	for _, b := range s.Binaries[:shown(len(s.Binaries), most)] {
		t.Add(in.Format(b.Flat), terminal.Percent(b.Flat, s.Total), in.Format(b.Cum), terminal.Percent(b.Cum, s.Total),
			cmp.Or(terminal.ShortID(b.BuildID, width), "-"), terminal.Name(cmp.Or(b.File, "[unknown]"))+claimMark(b.Claimant))
	}
	return t
}

// claimMark returns what stands behind the path of a file whose identity is a claim of others, with a blank before it.
func claimMark(claimant string) string {
	if claimant == "" {
		return ""
	}
	return " [claimed by " + claimant + "]"
}

func processTable(s *summary.Summary, most int) *terminal.Grid {
	t := &terminal.Grid{Columns: []terminal.Column{number, number, number, {}}}
	in := terminal.RulerFor(s.Total, s.Unit)
	t.Add("flat", "", "pids", "process")
	for _, p := range s.Processes[:shown(len(s.Processes), most)] {
		t.Add(in.Format(p.Flat), terminal.Percent(p.Flat, s.Total), terminal.Count(p.PIDs), plaintext.Name(cmp.Or(p.Name, "?")))
	}
	return t
}

// writeCoverage writes how much is known, and what can be done about the rest.
func writeCoverage(w io.Writer, c *profile.Coverage) {
	if c.Frames == 0 {
		fmt.Fprintln(w, "Coverage: there are no frames.")
		return
	}
	fmt.Fprintf(w, "Coverage: %s, %s identified", plaintext.Plural(c.Frames, "frame"), terminal.Percent(c.Identified, c.Frames))
	var parts []string
	if c.Identified > 0 {
		parts = append(parts, terminal.Percent(c.Proven, c.Frames)+" proven")
	}
	if c.Claimed > 0 {
		parts = append(parts, terminal.Percent(c.Claimed, c.Frames)+" claimed")
	}
	if c.FileFrames > 0 {
		parts = append(parts, terminal.Percent(c.FileIdentified, c.FileFrames)+" of those in mapped files")
	}
	if len(parts) > 0 {
		fmt.Fprintf(w, " (%s)", strings.Join(parts, ", "))
	}
	fmt.Fprintf(w, ", %s symbolized\n", terminal.Percent(c.Symbolized, c.Frames))
	t := &terminal.Grid{Columns: []terminal.Column{number, {}, {}}}
	given := map[string]bool{"": true}
	for _, g := range c.Gaps {
		t.Add("  "+terminal.Percent(g.Frames, c.Frames), "no "+string(g.Lacks), gapText(g))
		if advice := g.Advice(); !given[advice] {
			t.Add("", "", "→ "+advice)
			given[advice] = true
		}
	}
	t.Write(w, 0) // advice is for reading: better wrapped than cut
	writeStacks(w, c.Stacks)
}

// writeStacks writes how many stacks are complete, and why the others are not.
func writeStacks(w io.Writer, s *profile.Stacks) {
	if s == nil {
		return
	}
	rest := ""
	if s.KernelOnly > 0 {
		rest = "; " + plaintext.Thousands(s.KernelOnly) + " more are of the kernel alone"
	}
	fmt.Fprintf(w, "Stacks: %s, %s known to be complete%s\n", plaintext.Plural(s.Samples, "sample"), terminal.Percent(s.Complete, s.Samples), rest)
	t := &terminal.Grid{Columns: []terminal.Column{number, {}}}
	given := map[string]bool{"": true}
	for _, g := range s.Gaps {
		var names []string
		for _, b := range g.Binaries {
			names = append(names, terminal.Name(profile.ShortName(b.File)))
		}
		t.Add("  "+terminal.Percent(g.Samples, s.Samples), withNames(g.Reason.String(), names))
		if advice := g.Advice(); !given[advice] {
			t.Add("", "→ "+advice)
			given[advice] = true
		}
	}
	t.Write(w, 0)
}

// gapText says what is wrong, and in which binaries mostly.
func gapText(g profile.Gap) string {
	pseudo := profile.PseudoFile(g.Reason, "")
	var names []string
	for _, b := range g.Binaries {
		if b.File != pseudo {
			names = append(names, terminal.Name(strings.TrimPrefix(profile.ShortName(b.File), pseudo+" ")))
		}
	}
	return withNames(g.Reason.String(), names)
}

// withNames adds the first few of the binaries that something is about.
func withNames(text string, names []string) string {
	if len(names) == 0 {
		return text
	}
	if more := len(names) - terminal.MostNames; more > 0 {
		names = append(names[:terminal.MostNames], fmt.Sprintf("%d more", more))
	}
	return text + ": " + strings.Join(names, ", ")
}
