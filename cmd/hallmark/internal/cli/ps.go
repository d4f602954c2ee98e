package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"hallmark/buildid"
	"hallmark/cmd/hallmark/internal/identity"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/debuginfo"
	"hallmark/internal/plaintext"
	"hallmark/inventory"
	"hallmark/procmap"
	"hallmark/reason"
)

const psLong = `Ps lists what runs, by identity: for each process the identity and the path of
its program, and with --libs those of its libraries.

An ID, or its first digits (at least 6), lists the processes that run this
build: as their program, or as a library. A path lists the processes that run
the file which is there now, and those that have something else mapped from
there. A NAME, without a slash, is that of a program or of a library, or its
start up to a dot: libz.so.1 is libz.so.1.3.1 too. A number that can be a
process is a process.

Exit status with an ID, a path, a name or --stale: 0 if a process was found, 1
if none was, 3 if none was found and some processes could not be looked at.

Marks behind a path:

  deleted    nothing is at that path any more
  replaced   the file at that path has another identity, or other content: an
             upgrade, and the process was not started again
  N builds   processes have different builds mapped from this path
  elsewhere  the path leads the process to another place than it leads here, as
             in a container; where the cgroup names the container, that is shown
  same build ID, different content
             another running file claims the same identity and is another build
  claimed: same build ID, content unknown
             the same, and one of the two contents is unknown

A path in two containers counts as two files. Ps compares the directories, not
the mount namespaces: a service with a /tmp of its own runs the machine's /usr.`

const psExample = `  hallmark ps                   # what runs, and what of it was replaced on disk
  hallmark ps --libs 1          # what process 1 has mapped
  hallmark ps --stale           # what should be started again after an upgrade
  hallmark ps libssl.so.3       # who has this library mapped?
  hallmark ps 5dc767c02e183bb9  # who still runs this build?
  hallmark ps /usr/lib/x86_64-linux-gnu/libc.so.6
  hallmark ps --json | jq -r 'select(.program.disk=="replaced").pid'`

type psOptions struct {
	json, libs, stale bool
}

func newPSCommand(e *verb.Env) *cobra.Command {
	var opt psOptions
	cmd := &cobra.Command{
		Use:     "ps [flags] [ID|PATH|NAME|PID]...",
		Short:   "Print what runs, by identity, and who still runs a build",
		Long:    psLong,
		Example: psExample,
		RunE:    func(_ *cobra.Command, args []string) error { return runPS(e, opt, args) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&opt.json, "json", false, "print one JSON object a line, for each process")
	flags.BoolVar(&opt.libs, "libs", false, "list libraries too")
	flags.BoolVar(&opt.stale, "stale", false, "list only programs and libraries that were deleted or replaced")
	return cmd
}

func runPS(e *verb.Env, opt psOptions, args []string) error {
	verb.CollectLate()
	want, err := wantedCode(args)
	if err != nil {
		return err
	}
	inv, err := inventory.Take(inventory.Options{PIDs: want.pids})
	if err != nil {
		return err
	}
	inv.LookAtDisk()
	inv.FindContested()
	opt.libs = opt.libs || opt.stale
	listed := want.list(inv, opt)
	w := bufio.NewWriter(e.Stdout)
	if opt.json {
		err = verb.WriteObjects(w, listed)
	} else {
		writeProcesses(w, listed, terminal.Width(e.Stdout))
	}
	if err := errors.Join(err, w.Flush()); err != nil {
		return err
	}
	identity.WriteContested(e.Stderr, contestedIn(listed))
	want.writeAbsent(e.Stderr, inv)
	writeUnseen(e.Stderr, inv.Unseen)
	if inv.Hidden {
		fmt.Fprintln(e.Stderr, "hallmark: only the processes of this container (PID namespace) are seen")
	}
	if len(listed) > 0 || len(args) == 0 && !opt.stale {
		return nil
	}
	// The exit status answers: that nothing was listed says that there is nothing only if every
	// process was looked at.
	asked := opt
	asked.stale = false
	switch {
	case opt.stale && len(want.list(inv, asked)) > 0:
		fmt.Fprintln(e.Stderr, "hallmark: no file of these processes was deleted or replaced")
	case len(args) > len(want.pids):
		fmt.Fprintln(e.Stderr, "hallmark: no such process was found")
	}
	for _, arg := range args {
		if _, err := os.Lstat(arg); errors.Is(err, os.ErrNotExist) && strings.Contains(arg, "/") {
			fmt.Fprintf(e.Stderr, "hallmark: %s: nothing is there now\n", plaintext.Name(arg))
		}
	}
	if len(inv.Unseen) > 0 {
		return verb.ExitStatus(statusUnknown)
	}
	return verb.ExitStatus(1)
}

// statusUnknown is the exit status of 'ps' where nobody knows the answer.
const statusUnknown = 3

// writeAbsent reports processes that were asked for by number and have no code.
func (w *wanted) writeAbsent(out io.Writer, inv *inventory.Inventory) {
	there := map[int]bool{}
	for _, p := range inv.Processes {
		there[p.PID] = true
	}
	for _, u := range inv.Unseen {
		there[u.PID] = true
	}
	for _, pid := range w.pids {
		if there[pid] {
			continue
		}
		why := procmap.ErrNoProcess
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
			why = procmap.ErrNoMemory
		}
		fmt.Fprintf(out, "hallmark: %v\n", &procmap.Error{PID: pid, Err: why})
		there[pid] = true
	}
}

// writeUnseen reports processes that may run what is asked for, and nobody knows.
func writeUnseen(w io.Writer, unseen []inventory.Unseen) {
	pids := map[reason.Reason][]int{}
	for _, u := range unseen {
		pids[u.Reason] = append(pids[u.Reason], u.PID)
	}
	for _, why := range slices.Sorted(maps.Keys(pids)) {
		text := why.String()
		if advice := why.Advice(); advice != "" && os.Geteuid() != 0 {
			text += ": " + advice
		}
		fmt.Fprintf(w, "hallmark: %s could not be looked at: %s\n", processesNamed(pids[why]), text)
	}
}

// processesNamed names processes where there are few, and counts them where there are many.
func processesNamed(pids []int) string {
	if len(pids) == 1 {
		return fmt.Sprintf("process %d", pids[0])
	}
	if len(pids) > maxNamed {
		return plaintext.Plural(int64(len(pids)), "process", "processes")
	}
	var list []string
	for _, pid := range pids {
		list = append(list, strconv.Itoa(pid))
	}
	return "processes " + strings.Join(list, ", ")
}

const maxNamed = 5

// wanted is what the arguments ask for; nothing of a kind means all.
type wanted struct {
	pids  []int
	ids   map[buildid.ID]bool
	heads []string // of identities
	names []string // of files
	paths map[string]bool
	// places are where the paths lead here.
	places map[inventory.DirEntry]bool
}

// maxPID is PID_MAX_LIMIT of include/linux/threads.h. Build IDs may be of digits only.
const maxPID = 1 << 22

func wantedCode(args []string) (*wanted, error) {
	w := &wanted{ids: map[buildid.ID]bool{}, paths: map[string]bool{}, places: map[inventory.DirEntry]bool{}}
	for _, arg := range args {
		pid, isPID := verb.ProcessID(arg)
		isPID = isPID && pid > 0 && pid <= maxPID
		head := identity.IsHead(arg)
		switch {
		case isPID:
			w.pids = append(w.pids, pid)
		case head:
			w.heads = append(w.heads, arg)
		case strings.Contains(arg, "/"):
			if err := w.addPath(arg); err != nil {
				return nil, err
			}
		case strings.Trim(arg, "0123456789") == "":
			return nil, verb.Usagef("%q is no identity (at least %d digits), no name and no process", arg, identity.LeastDigits)
		default:
			w.names = append(w.names, arg)
		}
	}
	return w, nil
}

// addPath wants what is at a path now, and what was.
func (w *wanted) addPath(arg string) error {
	path, err := filepath.Abs(arg)
	if err != nil {
		return err
	}
	info, err := buildid.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist): // processes may still run what was there
	case err != nil:
		return err
	default:
		if !info.ID.IsZero() {
			w.ids[info.ID] = true
		}
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
	}
	w.paths[path] = true
	if place := inventory.DirEntryHere(path); place != (inventory.DirEntry{}) {
		w.places[place] = true
	}
	return nil
}

// all reports whether every piece of code is wanted.
func (w *wanted) all() bool { return len(w.ids)+len(w.heads)+len(w.names)+len(w.paths) == 0 }

// has reports whether a piece of code is one of those that are asked for.
func (w *wanted) has(c *inventory.Code) bool {
	if w.all() || w.ids[c.ID] || w.places[c.DirEntry] || w.paths[c.Path] && !c.Elsewhere {
		return true
	}
	return slices.ContainsFunc(w.heads, func(head string) bool { return debuginfo.HasHead(c.ID, head) }) ||
		slices.ContainsFunc(w.names, func(name string) bool { return hasName(c.Path, name) })
}

// hasName reports whether a path ends in a name, or in one that goes on behind it with a dot, as
// names of libraries do with their versions.
func hasName(path, name string) bool {
	rest, ok := strings.CutPrefix(filepath.Base(path), name)
	return ok && (rest == "" || rest[0] == '.')
}

// psRecord is a process in the output.
type psRecord struct {
	PID  int    `json:"pid"`
	Name string `json:"process"`
	// Container is that of a process some of whose files are elsewhere.
	Container string       `json:"container,omitempty"`
	Program   *codeRecord  `json:"program,omitempty"`
	Libs      []codeRecord `json:"libs,omitempty"`
}

// codeRecord is a file that a process has mapped to execute.
type codeRecord struct {
	Path   string         `json:"binary"`
	ID     buildid.ID     `json:"build_id,omitzero"`
	Reason *reason.Reason `json:"reason,omitempty"` // why there is no id
	identity.Mark
	Disk   string `json:"disk"`             // what is at the path now
	Builds int    `json:"builds,omitempty"` // different ones that run from this place, if several do
	// Elsewhere says that the path is another place here.
	Elsewhere bool `json:"elsewhere,omitempty"`
}

// list returns the processes that have something that is asked for. Their program is
// always listed; libraries are where they are asked for by name, or all are.
func (w *wanted) list(inv *inventory.Inventory, opt psOptions) []psRecord {
	builds := countBuilds(inv)
	var listed []psRecord
	seen := map[codeRecord]bool{}
	programsAlone := w.all() && !opt.libs && !opt.stale
	for i := range inv.Processes {
		p := &inv.Processes[i]
		if p.Ended {
			continue
		}
		r, found := psRecord{PID: p.PID, Name: p.Name, Container: p.Container}, false
		clear(seen)
		for j := range p.Code {
			c := &p.Code[j]
			program := j == p.Program || p.Program >= 0 && c.Path == p.Code[p.Program].Path && c.ID == p.Code[p.Program].ID
			if programsAlone && !program {
				continue
			}
			record := codeRecordOf(c, builds)
			asked := w.has(c) && (!opt.stale || record.stale()) && (program || opt.libs || !w.all())
			found = found || asked
			key := record
			key.Reason = nil
			switch {
			case seen[key]:
			case program:
				r.Program = &record
			case asked:
				r.Libs = append(r.Libs, record)
			}
			seen[key] = true
		}
		if found || w.all() && !opt.stale {
			listed = append(listed, r)
		}
	}
	return listed
}

func codeRecordOf(c *inventory.Code, builds map[inventory.DirEntry]*buildsThere) codeRecord {
	r := codeRecord{Path: c.Path, ID: c.ID, Disk: c.Disk.String(), Elsewhere: c.Elsewhere}
	r.Mark = identity.MarkOf(c.Contested, c.Content)
	if c.ID.IsZero() {
		r.Reason = &c.Reason
	}
	if n := builds[c.DirEntry].count(); n > 1 {
		r.Builds = n
	}
	return r
}

// stale reports whether what runs is not what is on disk.
func (r *codeRecord) stale() bool {
	return r.Disk == inventory.DiskGone.String() || r.Disk == inventory.DiskOther.String()
}

// build is what was built: files of different content may claim one identity.
type build struct {
	id      buildid.ID
	content buildid.Content
}

// buildsThere are the builds that run from one place: nearly always one.
type buildsThere struct {
	first  build
	others map[build]bool
}

// count returns how many there are, also of nil.
func (b *buildsThere) count() int {
	if b == nil {
		return 0
	}
	return 1 + len(b.others)
}

func (b *buildsThere) add(one build) {
	if one == b.first {
		return
	}
	if b.others == nil {
		b.others = map[build]bool{}
	}
	b.others[one] = true
}

// countBuilds returns the builds that run from each place.
func countBuilds(inv *inventory.Inventory) map[inventory.DirEntry]*buildsThere {
	builds := map[inventory.DirEntry]*buildsThere{}
	for i := range inv.Processes {
		code := inv.Processes[i].Code
		for j := range code {
			c := &code[j]
			if c.ID.IsZero() || c.DirEntry == (inventory.DirEntry{}) {
				continue
			}
			one := build{id: c.ID}
			if c.Contested {
				one.content = c.Content
			}
			if known := builds[c.DirEntry]; known != nil {
				known.add(one)
			} else {
				builds[c.DirEntry] = &buildsThere{first: one}
			}
		}
	}
	return builds
}

// writeProcesses writes a line for each process, and one for each of its libraries.
func writeProcesses(w io.Writer, list []psRecord, width int) {
	if len(list) == 0 {
		return
	}
	t := &terminal.Grid{Columns: []terminal.Column{{Right: true}, {Most: 16, Gives: true}, {Gives: true, Start: true}, {}}}
	t.Add("pid", "process", "identity", "file")
	for _, r := range list {
		if r.Program == nil {
			t.Add(fmt.Sprint(r.PID), plaintext.Name(r.Name), "", "")
		} else {
			t.Add(fmt.Sprint(r.PID), plaintext.Name(r.Name), r.Program.identity(width), r.Program.where(r.Container))
		}
		for _, lib := range r.Libs {
			t.Add("", "", lib.identity(width), lib.where(r.Container))
		}
	}
	t.Write(w, width)
}

func (r *codeRecord) identity(width int) string {
	if r.Reason != nil {
		return "[" + r.Reason.Code() + "]"
	}
	return terminal.ShortID(r.ID.String(), width)
}

// shortContainer is how many digits of the number of a container are shown, as by Docker.
const shortContainer = 12

// where returns the path in a container, and what is to be known of it.
func (r *codeRecord) where(container string) string {
	text := terminal.Name(r.Path)
	if r.stale() {
		text += " [" + r.Disk + "]"
	}
	text += r.Text()
	if r.Builds > 0 {
		text += fmt.Sprintf(" [%d builds]", r.Builds)
	}
	switch {
	case r.Elsewhere && container != "":
		text += " [container " + container[:shortContainer] + "]"
	case r.Elsewhere:
		text += " [elsewhere]"
	}
	return text
}

// contestedIn returns the files of a list of processes whose identity others claim.
func contestedIn(list []psRecord) identity.Claimants {
	all := identity.Claimants{}
	for _, r := range list {
		if r.Program != nil {
			all.Add(r.Program.ID, r.Program.Mark, r.Program.Path)
		}
		for _, lib := range r.Libs {
			all.Add(lib.ID, lib.Mark, lib.Path)
		}
	}
	return all
}
