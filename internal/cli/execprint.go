package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/capture"
	"hallmark/reason"
)

// watchRecord is an event in the output for machines.
type watchRecord struct {
	Event     string    `json:"event"`
	Time      time.Time `json:"time"`
	PID       int       `json:"pid,omitempty"`
	PPID      int       `json:"ppid,omitempty"`
	Started   time.Time `json:"started,omitzero"` // with pid it names a process for good
	Name      string    `json:"name,omitempty"`
	UID       *uint32   `json:"uid,omitempty"`
	GID       *uint32   `json:"gid,omitempty"`
	EUID      *uint32   `json:"euid,omitempty"` // where it is not the uid
	EGID      *uint32   `json:"egid,omitempty"`
	Cgroup    string    `json:"cgroup,omitempty"`
	Container string    `json:"container,omitempty"`

	Program     *binaryRecord `json:"program,omitempty"`
	Interpreter *binaryRecord `json:"interpreter,omitempty"`
	Library     *binaryRecord `json:"library,omitempty"`

	File    string   `json:"file,omitempty"` // as it was given to execve
	Script  string   `json:"script,omitempty"`
	Interp  string   `json:"interp,omitempty"` // that the script names
	Args    []string `json:"args,omitempty"`
	ArgsCut bool     `json:"args_cut,omitempty"`
	// ArgsRaw are the arguments where one of them is no UTF-8, each in base64.
	ArgsRaw [][]byte `json:"args_raw,omitempty"`

	Exit     *int   `json:"exit,omitempty"`   // the exit status
	Signal   string `json:"signal,omitempty"` // that killed it
	Core     bool   `json:"core,omitempty"`   // and it left a core dump
	CPU      *int64 `json:"cpu_ns,omitempty"`
	CPUEarly bool   `json:"cpu_early,omitempty"` // nobody has waited for it yet: a little is missing
	Lived    int64  `json:"lived_ns,omitempty"`

	Lost uint64 `json:"lost,omitempty"`
}

// binaryRecord is a file that is executed.
type binaryRecord struct {
	Path    string         `json:"path,omitempty"`
	Raw     []byte         `json:"path_raw,omitempty"` // where the path is no UTF-8
	Cut     bool           `json:"path_cut,omitempty"`
	ID      buildid.ID     `json:"id,omitzero"`
	Reason  *reason.Reason `json:"reason,omitempty"` // why there is no id
	Deleted bool           `json:"deleted,omitempty"`
}

func binaryRecordOf(b *capture.Binary) *binaryRecord {
	if b == nil {
		return nil
	}
	r := &binaryRecord{Path: b.Path, Cut: b.Cut, ID: b.ID, Deleted: b.Deleted}
	if !utf8.ValidString(b.Path) {
		r.Raw = []byte(b.Path)
	}
	if b.ID.IsZero() {
		r.Reason = &b.Reason
	}
	return r
}

func watchRecordOf(ev *capture.WatchEvent) *watchRecord {
	r := &watchRecord{
		Event: ev.Kind.String(), Time: ev.Time, PID: ev.PID, PPID: ev.PPID, Started: ev.Started, Name: ev.Name,
		Cgroup: ev.Cgroup, Container: ev.Container,
		Program: binaryRecordOf(ev.Program), Interpreter: binaryRecordOf(ev.Interpreter), Library: binaryRecordOf(ev.Library),
		File: ev.File, Script: ev.Script, Interp: ev.Interp, Args: ev.Args, ArgsCut: ev.ArgsCut, Lost: ev.Lost,
	}
	for _, arg := range ev.Args {
		if !utf8.ValidString(arg) {
			r.ArgsRaw = raw(ev.Args)
			break
		}
	}
	if o := ev.Owner; o != nil {
		r.UID, r.GID = &o.UID, &o.GID
		if o.EUID != o.UID {
			r.EUID = &o.EUID
		}
		if o.EGID != o.GID {
			r.EGID = &o.EGID
		}
	}
	if end := ev.End; end != nil {
		r.addEnd(end)
	}
	return r
}

func (r *watchRecord) addEnd(end *capture.End) {
	r.Lived = int64(end.Lived)
	if end.CPU != nil {
		cpu := int64(*end.CPU)
		r.CPU, r.CPUEarly = &cpu, !end.Final
	}
	switch s := end.Status; {
	case s == nil:
	case s.Signaled():
		r.Signal, r.Core = unix.SignalName(s.Signal()), s.CoreDump()
	default:
		status := s.ExitStatus()
		r.Exit = &status
	}
}

func raw(args []string) [][]byte {
	all := make([][]byte, len(args))
	for i, arg := range args {
		all[i] = []byte(arg)
	}
	return all
}

// watchText writes events for people, a line each.
type watchText struct {
	width int  // of the terminal, 0 for none
	exits bool // there are other events than executions
	begun bool
}

func (t *watchText) write(w io.Writer, ev *capture.WatchEvent) error {
	if !t.begun {
		t.begun = true
		if _, err := fmt.Fprintln(w, t.line("TIME", "EVENT", "PID", "PPID", "UID", "IDENTITY", "PROGRAM AND ARGUMENTS")); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, t.format(ev))
	return err
}

// format returns the line of an event.
func (t *watchText) format(ev *capture.WatchEvent) string {
	now := ev.Time.Local().Format("15:04:05.000000")
	if ev.Kind == capture.Missed {
		return fmt.Sprintf("%s  %s  %s found no room", now, ev.Kind, plural(int64(ev.Lost), "event"))
	}
	uid, ppid := "-", "-"
	if ev.Owner != nil {
		uid = strconv.FormatUint(uint64(ev.Owner.EUID), 10)
	}
	if ev.PPID != 0 {
		ppid = strconv.Itoa(ev.PPID)
	}
	what, of := t.what(ev), ev.Program
	if ev.Kind == capture.Loaded {
		of = ev.Library
	}
	return t.line(now, ev.Kind.String(), strconv.Itoa(ev.PID), ppid, uid, t.identity(of), what)
}

// line lays out the columns: no line waits for another one, so they have fixed widths. A
// terminal gets what fits into it.
func (t *watchText) line(now, kind, pid, ppid, uid, id, what string) string {
	wide := 40
	if t.width > 0 {
		wide = len(shortID(strings.Repeat("0", 40), t.width))
	}
	kindWidth := 0
	if t.exits {
		kindWidth = 4
	} else {
		kind = ""
	}
	line := fmt.Sprintf("%-15s  %*s", now, -kindWidth, kind)
	if kindWidth > 0 {
		line += "  "
	}
	line += fmt.Sprintf("%7s %7s %5s  %-*s  %s", pid, ppid, uid, wide, id, what)
	if t.width > 0 {
		return shorten(line, t.width)
	}
	return line
}

func (t *watchText) identity(b *capture.Binary) string {
	switch {
	case b == nil:
		return "-"
	case b.ID.IsZero():
		return "[" + b.Reason.Code() + "]"
	}
	return shortID(b.ID.String(), t.width)
}

// what returns what an event is about.
func (t *watchText) what(ev *capture.WatchEvent) string {
	var parts []string
	switch ev.Kind {
	case capture.Executed:
		parts = append(parts, binaryText(ev.Program))
		if ev.Script != "" {
			parts = append(parts, "[script "+quoted(ev.Script)+"]")
		}
		for _, arg := range ev.Args[min(1, len(ev.Args)):] {
			parts = append(parts, quoted(arg))
		}
		if ev.ArgsCut {
			parts = append(parts, "…")
		}
	case capture.Exited:
		name := quoted(ev.Name)
		if ev.Program != nil {
			name = binaryText(ev.Program)
		}
		parts = append(parts, name, endText(ev.End))
	case capture.Loaded:
		parts = append(parts, binaryText(ev.Library))
	}
	if ev.Container != "" {
		parts = append(parts, "[container "+ev.Container[:12]+"]")
	}
	return strings.Join(parts, " ")
}

func binaryText(b *capture.Binary) string {
	text := quoted(b.Path)
	if b.Cut {
		text = "…" + text
	}
	if b.Deleted {
		text += " [deleted]"
	}
	return text
}

// endText tells how a process ended: "exit 1", "killed by SIGSEGV (core dumped)".
func endText(end *capture.End) string {
	var parts []string
	if s := end.Status; s != nil {
		parts = append(parts, statusText(*s))
	}
	if end.Lived > 0 {
		parts = append(parts, "after "+quantity(int64(end.Lived), "nanoseconds"))
	}
	if end.CPU != nil {
		parts = append(parts, "cpu "+quantity(int64(*end.CPU), "nanoseconds"))
	}
	if len(parts) == 0 {
		return "[ended]"
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func statusText(s syscall.WaitStatus) string {
	if !s.Signaled() {
		return fmt.Sprintf("exit %d", s.ExitStatus())
	}
	text := "killed by " + unix.SignalName(s.Signal())
	if unix.SignalName(s.Signal()) == "" {
		text = fmt.Sprintf("killed by signal %d", int(s.Signal()))
	}
	if s.CoreDump() {
		text += " (core dumped)"
	}
	return text
}

// quoted writes a word so that a shell would read it as one, and a terminal shows all of
// it: words come from whoever runs something here.
func quoted(s string) string {
	switch {
	case s == "":
		return "''"
	case isPlain(s) && !strings.ContainsAny(s, " '\"\\$`!*?[]{}()<>|&;~#"):
		return s
	case isPlain(s) && !strings.Contains(s, "'"):
		return "'" + s + "'"
	case isShown(s) && !strings.ContainsAny(s, " '\"\\"):
		return s
	}
	// $'…' of bash and others has the escapes of Go's strings.
	text := strconv.Quote(s)
	text = strings.ReplaceAll(text[1:len(text)-1], `\"`, `"`)
	return "$'" + strings.ReplaceAll(text, "'", `\'`) + "'"
}

// isShown reports whether a terminal shows s as it is.
func isShown(s string) bool { return utf8.ValidString(s) && printable(s) == s }
