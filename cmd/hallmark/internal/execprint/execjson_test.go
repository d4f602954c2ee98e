package execprint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/execwatch"
	"hallmark/internal/plaintext"
	"hallmark/reason"
)

// watchRecord is an event in the output for machines, for encoding/json.
type watchRecord struct {
	Version   int       `json:"version"`
	Event     string    `json:"event"`
	Time      time.Time `json:"time"`
	PID       int       `json:"pid,omitempty"`
	PPID      int       `json:"ppid,omitempty"`
	Started   time.Time `json:"started,omitzero"` // with pid it names a process for good
	Name      string    `json:"process,omitempty"`
	UID       *uint32   `json:"uid,omitempty"`
	GID       *uint32   `json:"gid,omitempty"`
	EUID      *uint32   `json:"euid,omitempty"` // where it is not the uid
	EGID      *uint32   `json:"egid,omitempty"`
	Cgroup    string    `json:"cgroup,omitempty"`
	Container string    `json:"container,omitempty"`

	Program     *binaryRecord `json:"program,omitempty"`
	Interpreter *binaryRecord `json:"interpreter,omitempty"`
	Library     *binaryRecord `json:"library,omitempty"`

	File    string   `json:"exec_path,omitempty"` // as it was given to execve
	Script  string   `json:"script,omitempty"`
	Interp  string   `json:"script_interpreter,omitempty"` // that the script names
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
	Path      string          `json:"binary,omitempty"`
	Raw       []byte          `json:"binary_raw,omitempty"` // where the path is no UTF-8
	Cut       bool            `json:"binary_cut,omitempty"`
	ID        buildid.ID      `json:"build_id,omitzero"`
	Reason    *reason.Reason  `json:"reason,omitempty"` // why there is no id
	Contested bool            `json:"contested,omitempty"`
	Different bool            `json:"different,omitempty"`
	Content   buildid.Content `json:"content,omitzero"`
	Proof     string          `json:"proof,omitempty"`
	Deleted   bool            `json:"deleted,omitempty"`
	Elsewhere bool            `json:"elsewhere,omitempty"`
}

func binaryRecordOf(b *execwatch.Binary) *binaryRecord {
	if b == nil {
		return nil
	}
	proof := "proven"
	switch {
	case b.ID.IsZero():
		proof = ""
	case b.Different:
		proof = "contested"
	case b.Content.IsZero():
		proof = "claimed"
	}
	r := &binaryRecord{Proof: proof, Path: b.Path, Cut: b.Cut, ID: b.ID, Contested: b.Contested, Different: b.Different, Content: b.Content, Deleted: b.Deleted, Elsewhere: b.Elsewhere}
	if !utf8.ValidString(b.Path) {
		r.Raw = []byte(b.Path)
	}
	if b.ID.IsZero() {
		r.Reason = &b.Reason
	}
	return r
}

func watchRecordOf(ev *execwatch.Event) *watchRecord {
	r := &watchRecord{
		Version: 2, Event: ev.Kind.String(), Time: ev.Time, PID: ev.PID, PPID: ev.PPID, Started: ev.Started, Name: ev.Name,
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
	if o := ev.Credentials; o != nil {
		r.UID, r.GID = &o.UID, &o.GID
		if o.EUID != o.UID {
			r.EUID = &o.EUID
		}
		if o.EGID != o.GID {
			r.EGID = &o.EGID
		}
	}
	if end := ev.Exit; end != nil {
		r.addEnd(end)
	}
	return r
}

func (r *watchRecord) addEnd(end *execwatch.Exit) {
	r.Lived = int64(end.Lived)
	if end.CPU != nil {
		cpu := int64(*end.CPU)
		r.CPU, r.CPUEarly = &cpu, !end.Final
	}
	switch s := end.Status; {
	case s == nil:
	case s.Signaled():
		r.Signal, r.Core = unix.SignalName(s.Signal()), s.CoreDump()
		if r.Signal == "" {
			r.Signal = fmt.Sprintf("signal %d", int(s.Signal()))
		}
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

// oddTexts are those that JSON cannot have as they are, or that others write in other ways.
var oddTexts = []string{
	"plain", "", " ", "a b", `"`, `\`, "<>&'", "\x00", "\a\b\f\n\r\t\v\x1b\x1f", "\x7f", "é", "\u2028\u2029", "\ufffd",
	"\xff", "a\xc3", "\xed\xa0\x80", "\U0010ffff", strings.Repeat("long ", 100),
}

func mustID(t *testing.T, text string) buildid.ID {
	t.Helper()
	id, err := buildid.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// watchEvents are events with everything that may be in them.
func watchEvents(t *testing.T) []*execwatch.Event {
	at := time.Unix(1700000000, 123456789)
	program := &execwatch.Binary{Path: "/usr/bin/cat", ID: mustID(t, "15dfff3239aa7c3b16a71e6b2e3b6e4009dab998")}
	cpu := 3 * time.Millisecond
	var none time.Duration
	events := []*execwatch.Event{
		{Kind: execwatch.Executed, Time: at, PID: 1, PPID: 0, Name: "cat", Program: program, Args: []string{"cat"}},
		{Kind: execwatch.Executed, Time: at.UTC(), PID: math.MaxInt32, PPID: 7, Started: at, Program: program, Interpreter: program,
			Credentials: &execwatch.Credentials{UID: math.MaxUint32, GID: 2, EUID: 3, EGID: 4}, Cgroup: "/a", Container: "b", File: "f", Script: "s",
			Interp: "i", Args: oddTexts, ArgsCut: true},
		{Kind: execwatch.Executed, Time: at.Truncate(time.Second), Credentials: &execwatch.Credentials{}, Program: &execwatch.Binary{Deleted: true, Elsewhere: true, Reason: reason.FileWritten}, Args: []string{}},
		{Kind: execwatch.Exited, Time: at, Program: program, Exit: &execwatch.Exit{}},
		{Kind: execwatch.Exited, Time: at, Exit: &execwatch.Exit{CPU: &cpu, Lived: time.Second}},
		{Kind: execwatch.Exited, Time: at, Exit: &execwatch.Exit{CPU: &none, Final: true}},
		{Kind: execwatch.Loaded, Time: at, Library: &execwatch.Binary{Path: "/lib/x", Cut: true, ID: mustID(t, `go:a"b\c`)}},
		{Kind: execwatch.Loaded, Time: at, Library: &execwatch.Binary{ID: mustID(t, "htl:00112233445566778899aabbccddeeff")}},
		{Kind: execwatch.Missed, Time: at, Lost: math.MaxInt64},
	}
	for _, status := range []syscall.WaitStatus{0, 1 << 8, 255 << 8, 9, 11 | 0x80, 35} {
		events = append(events, &execwatch.Event{Kind: execwatch.Exited, Time: at, Exit: &execwatch.Exit{Status: &status}})
	}
	for _, text := range oddTexts {
		events = append(events, &execwatch.Event{Kind: execwatch.Executed, Time: at, Name: text, Program: &execwatch.Binary{Path: text}, Args: []string{text}})
	}
	return events
}

// TestWatchJSON compares with encoding/json.
func TestWatchJSON(t *testing.T) {
	for _, ev := range watchEvents(t) {
		var want bytes.Buffer
		twin := json.NewEncoder(plaintext.JSON(&want))
		twin.SetEscapeHTML(false)
		if err := twin.Encode(watchRecordOf(ev)); err != nil {
			t.Fatal(err)
		}
		const before = "before\n"
		if got := string(AppendJSON([]byte(before), ev)); got != before+want.String() {
			t.Errorf("written:\n%s\nby encoding/json:\n%s", got, want.String())
		}
	}
}

// BenchmarkWatchJSON says what a usual event costs.
func BenchmarkWatchJSON(b *testing.B) {
	id, err := buildid.Parse("15dfff3239aa7c3b16a71e6b2e3b6e4009dab998")
	if err != nil {
		b.Fatal(err)
	}
	ev := &execwatch.Event{
		Kind: execwatch.Executed, Time: time.Now(), PID: 12345, PPID: 1234, Started: time.Now(), Name: "cat", Credentials: &execwatch.Credentials{},
		Cgroup: "/system.slice/ssh.service", Program: &execwatch.Binary{Path: "/usr/bin/cat", ID: id},
		Interpreter: &execwatch.Binary{Path: "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", ID: id},
		File:        "/usr/bin/cat", Args: []string{"cat", "/etc/passwd"},
	}
	var line []byte
	for b.Loop() {
		line = AppendJSON(line[:0], ev)
	}
}
