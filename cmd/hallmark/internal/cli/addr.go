package cli

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/cmd/hallmark/internal/advice"
	"hallmark/cmd/hallmark/internal/identity"
	"hallmark/cmd/hallmark/internal/lookupprint"
	"hallmark/cmd/hallmark/internal/symbolsource"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/patience"
	"hallmark/internal/plaintext"
	"hallmark/procmap/live"
	"hallmark/reason"
)

const addrLong = `Addr prints what is at addresses of a running process, one a line: the address,
the identity of the file, the offset in it, the function, the source file and
line where they are known, the name of the file. Calls that were inlined have
lines of their own below, up to the function that is really there.

Addresses are hexadecimal, with 0x or without. The address - stands for those on
standard input, separated by blanks or newlines. A return address is behind its
call: subtract 1 before you ask.

A file that claims the identity of another one which was asked for, and has
other content, is marked so.

A page of a file that the process has rewritten in its memory is not the file's
any more: [rewritten] stands in place of the identity. Some programs put a copy
of their code over the file's mapping. Addr marks a copied page [rewritten] if
it differs from the file's. A page that is the same has the identity, marked
"(inferred)".

A reason in brackets stands in place of an answer that is not known. Standard
error has advice on it. The status is 1 if no address has an identity or a name.`

const addrExample = `  hallmark addr 4711 7f5aa8d65123 7f5aa8d65200
  awk '{print $1}' stacks | hallmark addr --json 4711 -`

func newAddrCommand(e *verb.Env) *cobra.Command {
	asJSON, splitUnits := false, ""
	var server symbolsource.Server
	cmd := &cobra.Command{
		Use:     "addr [flags] PID ADDR...",
		Short:   "Print file, offset and function of addresses of a process",
		Long:    addrLong,
		Example: addrExample,
		Args:    verb.Takes("PID", "ADDR..."),
		RunE: func(_ *cobra.Command, args []string) error {
			pid, err := processArgument(args[0])
			if err != nil {
				return err
			}
			return runAddr(e, asJSON, splitUnits, &server, pid, args[1:])
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	symbolsource.PackageFlag(cmd.Flags(), &splitUnits)
	server.AddFlags(cmd.Flags(), "take functions and lines from the symbol server")
	return cmd
}

func runAddr(e *verb.Env, asJSON bool, splitUnits string, server *symbolsource.Server, pid int, args []string) error {
	addrs, err := parseAddresses(args)
	if err != nil {
		return verb.Usage(err)
	}
	if err := symbolsource.CheckPackage(splitUnits); err != nil {
		return err
	}
	var p *live.Process
	err = patience.Look(pid, func() (err error) {
		p, err = live.Open(pid)
		return err
	})
	if err != nil {
		return advice.OnError(err)
	}
	defer p.Close()
	p.Patiently = func(look func() error) error { return patience.Look(pid, look) }
	a := &addrPrinter{env: e, json: asJSON, process: p, gaps: advice.Gaps{}, contested: identity.Claimants{}, unlooked: map[string]bool{}}
	report := func(line string) { fmt.Fprintf(e.Stderr, "hallmark: %s\n", plaintext.Line(line)) }
	if err := server.SetRemote(p.Library(), report); err != nil {
		return err
	}
	finder := &p.Library().Finder
	finder.Differ = func(_ buildid.ID, paths [2]string) {
		fmt.Fprintf(e.Stderr, "hallmark: %s\n", symbolsource.DifferentText(paths))
	}
	if splitUnits != "" {
		finder.Package = splitUnits
		finder.Trace = symbolsource.RefusedPackage(splitUnits, report)
	}
	if err := a.print(addrs); err != nil {
		return err
	}
	for _, arg := range args {
		if arg == "-" {
			if err := a.printAll(e.Stdin); err != nil {
				return err
			}
		}
	}
	identity.WriteContested(e.Stderr, a.contested)
	writeUnlooked(e.Stderr, a.unlooked)
	a.gaps.Write(e.Stderr)
	if !a.found && len(a.gaps) > 0 {
		return verb.ExitStatus(1)
	}
	return nil
}

// parseAddresses reads the arguments that are addresses.
func parseAddresses(args []string) ([]addr.Abs, error) {
	var addrs []addr.Abs
	for _, arg := range args {
		if arg == "-" {
			continue
		}
		a, err := parseAddress(arg)
		if err != nil {
			return nil, err
		}
		addrs = append(addrs, a)
	}
	return addrs, nil
}

func parseAddress(s string) (addr.Abs, error) {
	digits := strings.TrimPrefix(strings.TrimPrefix(s, "0x"), "0X")
	n, err := strconv.ParseUint(digits, 16, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%q is beyond 64 bits", s)
	case err != nil:
		return 0, fmt.Errorf("%q is not a hexadecimal address", s)
	}
	return addr.Abs(n), nil
}

// addrPrinter looks up addresses and prints what it finds.
type addrPrinter struct {
	env       *verb.Env
	json      bool
	process   *live.Process
	gaps      advice.Gaps
	found     bool // an address has an identity or a name
	contested identity.Claimants
	unlooked  map[string]bool // why nobody knows whether pages were rewritten
}

// batch is how many addresses of standard input are looked up together.
const batch = 10000

// printAll prints the addresses in r.
func (p *addrPrinter) printAll(r io.Reader) error {
	words := bufio.NewScanner(r)
	words.Split(bufio.ScanWords)
	var addrs []addr.Abs
	for words.Scan() {
		a, err := parseAddress(words.Text())
		if err != nil { // what was asked before has its answer
			return cmp.Or(p.print(addrs), err)
		}
		if addrs = append(addrs, a); len(addrs) == batch {
			if err := p.print(addrs); err != nil {
				return err
			}
			addrs = addrs[:0]
		}
	}
	if err := words.Err(); err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	return p.print(addrs)
}

// print prints a batch.
func (p *addrPrinter) print(addrs []addr.Abs) error {
	places, err := p.process.Lookup(addrs)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(p.env.Stdout)
	for _, place := range places {
		p.contested.Add(place.Identity.ID, identity.MarkOf(place.Contested, place.Content), place.Name)
		p.gaps.Add(place.Identity.Reason)
		p.found = p.found || !place.Identity.ID.IsZero() || len(place.Symbol.Frames) > 0
		if place.Unlooked != nil {
			p.unlooked[place.Unlooked.Error()] = true
		}
		if place.Symbol.Reason != reason.NoIdentity {
			p.gaps.Add(place.Symbol.Reason)
		}
	}
	if p.json {
		err = writePlaces(w, places)
	} else {
		width := terminal.Width(p.env.Stdout)
		placeTable(places, width).Write(w, width)
	}
	if err != nil {
		return err
	}
	return w.Flush()
}

// placeRecord is one object of output.
type placeRecord struct {
	Address  addr.Abs                  `json:"address"`
	Hex      string                    `json:"address_hex"` // for those that numbers of JavaScript have no room for
	Name     string                    `json:"binary,omitempty"`
	ID       buildid.ID                `json:"build_id,omitzero"`
	Offset   *addr.Offset              `json:"offset,omitempty"` // none where no file is mapped
	Inferred bool                      `json:"inferred,omitempty"`
	Reason   *reason.Reason            `json:"reason,omitempty"`        // why there is no id
	Frames   []lookupprint.FrameRecord `json:"frames,omitempty"`        // innermost first
	Source   string                    `json:"symbol_source,omitempty"` // of the frames
	Missing  *reason.Reason            `json:"symbol_reason,omitempty"`
	// Unlooked is why nobody knows whether the process has rewritten the page.
	Unlooked string `json:"rewritten_unknown,omitempty"`
	identity.Mark
}

func writePlaces(w io.Writer, places []live.Location) error {
	out := verb.NewObjectWriter(w)
	for _, place := range places {
		if err := out.Write(placeOf(place)); err != nil {
			return err
		}
	}
	return nil
}

func placeOf(place live.Location) placeRecord {
	r := placeRecord{
		Address: place.Addr, Hex: place.Addr.String(), Name: place.Name,
		ID: place.Identity.ID, Inferred: place.Identity.Inferred,
		Mark: identity.MarkOf(place.Contested, place.Content),
	}
	if place.InFile {
		r.Offset = &place.Offset
	}
	if place.Unlooked != nil {
		r.Unlooked = place.Unlooked.Error()
	}
	if r.ID.IsZero() {
		r.Reason = &place.Identity.Reason
	}
	if len(place.Symbol.Frames) == 0 {
		r.Missing = &place.Symbol.Reason
		return r
	}
	r.Source = place.Symbol.Source.String()
	r.Frames = lookupprint.FrameRecords(place.Symbol.Frames)
	return r
}

func placeTable(places []live.Location, width int) *terminal.Grid {
	t := &terminal.Grid{Columns: []terminal.Column{{}, {}, {}, {Gives: true}, {Gives: true}, {}}}
	for _, place := range places {
		offset := "-"
		if place.InFile {
			offset = place.Offset.String()
		}
		name := ""
		if place.Name != "" {
			name = terminal.Name(place.Name)
		}
		if place.Identity.Inferred {
			name += " (inferred)"
		}
		name += identity.MarkOf(place.Contested, place.Content).Text()
		row := []string{place.Addr.String(), identityCell(place.Identity, width), offset}
		frames := place.Symbol.Frames
		if len(frames) == 0 {
			t.Add(append(row, "["+place.Symbol.Reason.Code()+"]", "-", name)...)
			continue
		}
		for i, f := range frames {
			if i > 0 {
				row, name = []string{"", "", ""}, ""
			}
			t.Add(append(row, cmp.Or(plaintext.Quote(f.Func), lookupprint.NoFunction), sourceCell(f.File, f.Line), name)...)
		}
	}
	return t
}

// sourceCell returns what stands for a line of source in a table.
func sourceCell(file string, line int) string {
	switch {
	case file == "":
		return "-"
	case line == 0:
		return plaintext.Name(file)
	default:
		return fmt.Sprintf("%s:%d", plaintext.Name(file), line)
	}
}
