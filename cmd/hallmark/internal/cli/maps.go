package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/cmd/hallmark/internal/advice"
	"hallmark/cmd/hallmark/internal/identity"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/contested"
	"hallmark/internal/patience"
	"hallmark/internal/plaintext"
	"hallmark/procmap"
	"hallmark/reason"
)

const mapsLong = `Maps prints the executable mappings of a process with the identity of the file
behind each, one a line: addresses, permissions, file offset, identity, name.

In place of an identity stands the reason why there is none, in brackets; what
can be done about it is printed on standard error. A file system that does not
answer is not waited for: its files are [file-unresponsive]. Code that a program
copied to memory of its own, as those do that want it in huge pages, has the
file and the offset that it was copied from, marked "(inferred)". Each page of
it is compared with the file.

A file that claims the identity of another one which is mapped, and has other
content, is marked so. Pages of a file that the process has rewritten in its
memory are not the file's any more: "[rewritten 3 pages]" counts them, and pages
of such copies that differ.

With --all every mapping is printed, as the kernel writes it in /proc/PID/maps,
byte for byte; or with --json as an object, of which the executable ones have an
identity.`

const mapsExample = `  hallmark maps 1                      # what process 1 has mapped to execute
  hallmark maps --all $$               # as cat /proc/$$/maps
  hallmark maps --json $$ | jq -r .build_id  # one JSON object a line`

type mapsOptions struct {
	json, all bool
	method    procmap.Method
}

func newMapsCommand(e *verb.Env) *cobra.Command {
	var opt mapsOptions
	cmd := &cobra.Command{
		Use:     "maps [flags] PID",
		Short:   "Print what a process has mapped, with identities",
		Long:    mapsLong,
		Example: mapsExample,
		Args:    verb.Takes("PID"),
		RunE: func(_ *cobra.Command, args []string) error {
			pid, err := processArgument(args[0])
			if err != nil {
				return err
			}
			return runMaps(e, opt, pid)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opt.json, "json", false, "print one JSON object a line")
	flags.BoolVar(&opt.all, "all", false, "print every mapping, as the kernel writes it")
	flags.TextVar(&opt.method, "method", procmap.Auto, "how to ask the kernel, a `METHOD`: auto, query (PROCMAP_QUERY) or text")
	verb.CompleteValues(cmd, "method", "auto", "query", "text")
	return cmd
}

// processArgument reads the ID of a process.
func processArgument(arg string) (int, error) {
	pid, ok := verb.ProcessID(arg)
	if !ok || pid == 0 {
		return 0, verb.Usage(verb.NotProcessID(arg))
	}
	return pid, nil
}

func runMaps(e *verb.Env, opt mapsOptions, pid int) error {
	var p *procmap.Process
	var list []procmap.VMA
	err := patience.Look(pid, func() (err error) {
		if p, err = procmap.OpenOptions(pid, procmap.Options{Method: opt.method}); err == nil {
			list, err = p.All()
		}
		return err
	})
	if err != nil {
		return advice.OnError(err)
	}
	defer p.Close()
	w := bufio.NewWriter(e.Stdout)
	if opt.all && !opt.json {
		writeText(w, list, terminal.Width(e.Stdout) > 0)
		return w.Flush()
	}
	gaps := advice.Gaps{}
	var records []mapRecord
	for _, v := range list {
		if v.Perm&procmap.Exec == 0 && !opt.all {
			continue
		}
		r, err := recordPatiently(p, v)
		if err != nil {
			return err
		}
		records = append(records, r)
	}
	if err := countRewritten(p, records); err != nil {
		return err
	}
	unlooked := map[string]bool{}
	for _, r := range records {
		gaps.Add(r.identity.Reason)
		if r.Unlooked != "" {
			unlooked[r.Unlooked] = true
		}
	}
	all := findContested(p, records)
	if opt.json {
		err = verb.WriteObjects(w, records)
	} else {
		writeMaps(w, records, terminal.Width(e.Stdout))
	}
	if err := errors.Join(err, w.Flush()); err != nil {
		return err
	}
	identity.WriteContested(e.Stderr, all)
	writeUnlooked(e.Stderr, unlooked)
	gaps.Write(e.Stderr)
	return nil
}

// findContested marks the records of files whose identity others claim that are mapped, and
// returns these files.
func findContested(p *procmap.Process, records []mapRecord) identity.Claimants {
	mappings := make([]contested.Mapping, len(records))
	for i, r := range records {
		mappings[i] = contested.Mapping{VMA: r.vma, ID: r.ID}
	}
	all := identity.Claimants{}
	for i, found := range contested.FindMapped(p, mappings, contested.Limits{}) {
		r := &records[i]
		r.Mark = identity.MarkOf(found.IsContested(), found.Content)
		all.Add(r.ID, r.Mark, r.vma.Path())
	}
	return all
}

// countRewritten counts the pages of each executable mapping that the process has rewritten.
func countRewritten(p *procmap.Process, records []mapRecord) error {
	type look struct {
		pages int
		err   error
	}
	vmas := make([]procmap.VMA, len(records))
	for i, r := range records {
		vmas[i] = r.vma
	}
	done := make(chan []look, 1)
	err := patience.Look(p.PID(), func() error {
		looks := make([]look, len(vmas))
		for i, v := range vmas {
			if v.Perm&procmap.Exec != 0 {
				looks[i].pages, looks[i].err = rewrittenPages(p, v)
			}
		}
		done <- looks
		return nil
	})
	var looks []look
	if err == nil {
		looks = <-done
	} else {
		looks = slices.Repeat([]look{{err: err}}, len(records))
	}
	for i, l := range looks {
		r := &records[i]
		switch {
		case r.vma.Perm&procmap.Exec == 0:
		case errors.Is(l.err, os.ErrProcessDone):
			return l.err
		case l.err != nil:
			r.Unlooked = l.err.Error()
		}
		r.Rewritten = l.pages
		r.withdraw(l.err)
	}
	return nil
}

// withdraw takes its identity from memory of no file in which no page is known to be as in the file,
// or that nobody could look at because of err.
func (r *mapRecord) withdraw(err error) {
	switch {
	case !r.identity.Inferred:
		return
	case err != nil:
		r.identity = procmap.Identity{Reason: reason.FileUnresponsive}
	case r.Rewritten == int(r.End-r.Start)/os.Getpagesize():
		r.identity = procmap.Identity{Reason: reason.Rewritten}
	default:
		return
	}
	r.ID, r.Reason, r.Door = buildid.ID{}, &r.identity.Reason, nil
}

func rewrittenPages(p *procmap.Process, v procmap.VMA) (n int, err error) {
	found, err := p.Rewritten(v)
	for _, pages := range found {
		n += pages.Count()
	}
	return n, err
}

// writeUnlooked reports that nobody knows whether pages were rewritten, once for each reason.
func writeUnlooked(w io.Writer, whys map[string]bool) {
	for _, why := range slices.Sorted(maps.Keys(whys)) {
		fmt.Fprintf(w, "hallmark: nobody knows which pages of files the process has rewritten: %s\n", plaintext.Line(why))
	}
}

// rewrittenText returns the mark of a mapping of which so many pages were rewritten.
func rewrittenText(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" [rewritten %s]", plaintext.Plural(int64(n), "page"))
}

// writeText writes VMAs as /proc/PID/maps has them, and as plain text to a terminal. w
// remembers its errors.
func writeText(w *bufio.Writer, list []procmap.VMA, toTerminal bool) {
	for _, v := range list {
		line, _ := v.AppendText(w.AvailableBuffer())
		if toTerminal {
			line = []byte(plaintext.Line(string(line)))
		}
		w.Write(append(line, '\n'))
	}
}

// mapRecord is one object of output.
type mapRecord struct {
	Start    addr.Abs       `json:"start"`
	End      addr.Abs       `json:"end"`
	StartHex string         `json:"start_hex"`
	EndHex   string         `json:"end_hex"`
	Perm     string         `json:"perm"`
	Offset   addr.Offset    `json:"offset"`
	Dev      string         `json:"dev"`
	Inode    uint64         `json:"inode"`
	Name     string         `json:"name"`             // as the kernel has it
	Binary   string         `json:"binary,omitempty"` // path of the file
	Kind     procmap.Kind   `json:"kind"`
	ID       buildid.ID     `json:"build_id,omitzero"`
	Reason   *reason.Reason `json:"reason,omitempty"` // why there is no id; only of what is executable
	Door     *procmap.Door  `json:"door,omitempty"`   // how the id was learned
	Inferred *inferred      `json:"inferred_from,omitempty"`
	// Rewritten counts the pages that the process has rewritten in its memory.
	Rewritten int `json:"rewritten,omitempty"`
	// Unlooked is why nobody knows them.
	Unlooked string `json:"rewritten_unknown,omitempty"`
	identity.Mark

	vma      procmap.VMA
	identity procmap.Identity
}

// inferred is where code was copied from.
type inferred struct {
	Name   string      `json:"binary"`
	Offset addr.Offset `json:"offset"`
}

// recordPatiently is recordOf for a process that may let nobody look at it: code of which the identity
// was not had in time has none.
func recordPatiently(p *procmap.Process, v procmap.VMA) (mapRecord, error) {
	answer := make(chan mapRecord, 1)
	err := patience.Look(p.PID(), func() error {
		r, err := recordOf(p, v)
		answer <- r
		return err
	})
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		r := bareRecord(v)
		r.identity.Reason = reason.FileUnresponsive
		r.Reason = &r.identity.Reason
		return r, nil
	case err != nil:
		return mapRecord{}, err
	}
	return <-answer, nil
}

// bareRecord has of a mapping what its VMA says.
func bareRecord(v procmap.VMA) mapRecord {
	return mapRecord{
		Start: v.Start, End: v.End, StartHex: v.Start.String(), EndHex: v.End.String(), Perm: v.Perm.String(), Offset: v.Offset,
		Dev: v.Dev.String(), Inode: v.Inode, Name: v.Name, Binary: v.Path(), Kind: v.Kind(), vma: v,
	}
}

func recordOf(p *procmap.Process, v procmap.VMA) (mapRecord, error) {
	r := bareRecord(v)
	if v.Perm&procmap.Exec == 0 {
		return r, nil
	}
	id, err := p.Identity(v)
	if err != nil {
		return r, err
	}
	r.ID, r.identity = id.ID, id
	if id.ID.IsZero() {
		r.Reason = &id.Reason
	} else {
		r.Door = &id.Door
	}
	if !id.Inferred {
		return r, nil
	}
	origin, ok, err := p.Origin(v)
	if ok {
		r.Inferred = &inferred{Name: origin.Path(), Offset: origin.Offset}
	}
	return r, err
}

func writeMaps(w io.Writer, records []mapRecord, width int) {
	t := &terminal.Grid{Columns: make([]terminal.Column, 5)}
	for _, r := range records {
		name, offset := "", r.Offset
		if r.Inferred != nil {
			name, offset = terminal.Name(r.Inferred.Name)+" (inferred)", r.Inferred.Offset
		} else if r.Name != "" {
			name = terminal.Name(r.Name)
		}
		name += rewrittenText(r.Rewritten) + r.Text()
		t.Add(fmt.Sprintf("%x-%x", uint64(r.vma.Start), uint64(r.vma.End)), r.Perm, offset.String(),
			identityCell(r.identity, width), name)
	}
	t.Write(w, width)
}

// identityCell returns what stands for an identity in a table.
func identityCell(id procmap.Identity, width int) string {
	if id.ID.IsZero() {
		return "[" + id.Reason.Code() + "]"
	}
	return terminal.ShortID(id.ID.String(), width)
}
