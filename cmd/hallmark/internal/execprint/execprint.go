// Package execprint prints executions and ends of processes, as text or JSON, and selects those that
// somebody wants to see.
package execprint

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/cmd/hallmark/internal/identity"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/execwatch"
	"hallmark/internal/plaintext"
)

// Text writes events for people, a line each. A narrow terminal has no columns for parents and
// users.
type Text struct {
	Width int  // of the terminal, 0 for none
	Exits bool // there are other events than executions
	begun bool
}

// Append appends the line of an event, and the heads of the columns before the first one.
func (t *Text) Append(b []byte, ev *execwatch.Event) []byte {
	if !t.begun {
		t.begun = true
		b = t.line(b, "TIME", "EVENT", "PID", "PPID", "UID", "IDENTITY", "PROGRAM AND ARGUMENTS", "")
	}
	var clock [len(clockFormat)]byte
	now := string(ev.Time.Local().AppendFormat(clock[:0], t.clockFormat()))
	if ev.Kind == execwatch.Missed {
		return fmt.Appendf(b, "%s  %s  %s found no room\n", now, ev.Kind, plaintext.Plural(int64(ev.Lost), "event"))
	}
	uid, ppid := "-", "-"
	if ev.Credentials != nil {
		uid = strconv.FormatUint(uint64(ev.Credentials.EUID), 10)
	}
	if ev.PPID != 0 {
		ppid = strconv.Itoa(ev.PPID)
	}
	of := ev.Program
	if ev.Kind == execwatch.Loaded {
		of = ev.Library
	}
	program, rest := t.what(ev)
	return t.line(b, now, ev.Kind.String(), strconv.Itoa(ev.PID), ppid, uid, t.identity(of), program, rest)
}

const clockFormat = "15:04:05.000000"

func (t *Text) clockFormat() string {
	if t.isNarrow() {
		return clockFormat[:len("15:04:05.000")]
	}
	return clockFormat
}

func (t *Text) isNarrow() bool { return t.Width > 0 && t.Width < terminal.NarrowWidth }

// line lays out the columns: no line waits for another one, so they have fixed widths. Of the
// last one, a program and what else there is, a terminal gets what fits into it.
func (t *Text) line(b []byte, now, kind, pid, ppid, uid, id, program, rest string) []byte {
	start := len(b)
	b = append(appendLeft(b, now, len(t.clockFormat())), "  "...)
	if t.Exits {
		b = append(appendLeft(b, kind, 4), "  "...)
	}
	b = appendRight(b, pid, 7)
	if !t.isNarrow() {
		b = append(appendRight(append(b, ' '), ppid, 7), ' ')
		b = appendRight(b, uid, 5)
	}
	b = append(b, "  "...)
	b = append(appendLeft(b, id, idWidth(t.Width)), "  "...)
	if t.Width > 0 {
		const least = 20 // in a terminal that is too narrow, lines are broken
		return append(append(b, fitted(program, rest, max(least, t.Width-utf8.RuneCount(b[start:])))...), '\n')
	}
	return append(append(b, strings.TrimSuffix(program+" "+rest, " ")...), '\n')
}

// fitted returns a program and what stands behind it in n characters. The start of a path is cut
// first, of which the end is the name, and then the end of the rest.
func fitted(program, rest string, n int) string {
	const least = 8
	room := n
	if rest != "" {
		room = max(n/3, n-1-utf8.RuneCountInString(rest), least)
	}
	if runes := []rune(program); len(runes) > room {
		program = "…" + string(runes[len(runes)-room+1:])
	}
	text := []rune(strings.TrimSuffix(program+" "+rest, " "))
	if len(text) > n {
		text = append(text[:n-1], '…')
	}
	return string(text)
}

// idWidth returns how wide the identities are that shortID makes for a terminal, of SHA-1 as
// most are.
func idWidth(width int) int {
	const longest = "0123456789012345678901234567890123456789"
	return utf8.RuneCountInString(terminal.ShortID(longest, width))
}

// appendLeft appends s and fills up with blanks, appendRight the other way round.
func appendLeft(b []byte, s string, width int) []byte {
	return appendBlanks(append(b, s...), width-utf8.RuneCountInString(s))
}

func appendRight(b []byte, s string, width int) []byte {
	return append(appendBlanks(b, width-utf8.RuneCountInString(s)), s...)
}

func appendBlanks(b []byte, n int) []byte {
	for ; n > 0; n-- {
		b = append(b, ' ')
	}
	return b
}

func (t *Text) identity(b *execwatch.Binary) string {
	switch {
	case b == nil:
		return "-"
	case b.ID.IsZero():
		return "[" + b.Reason.Code() + "]"
	}
	return terminal.ShortID(b.ID.String(), t.Width)
}

// what returns the program or library that an event is about, and what there is to say of it.
func (t *Text) what(ev *execwatch.Event) (program, rest string) {
	var parts []string
	switch ev.Kind {
	case execwatch.Executed:
		program = binaryText(ev.Program)
		if ev.Script != "" {
			parts = append(parts, "[script "+terminal.Quoted(ev.Script)+"]")
		}
		for _, arg := range ev.Args[min(1, len(ev.Args)):] {
			parts = append(parts, terminal.Quoted(arg))
		}
		if ev.ArgsCut {
			parts = append(parts, "…")
		}
	case execwatch.Exited:
		program = "-" // it ran before
		if ev.Program != nil {
			program = binaryText(ev.Program)
		} else if ev.Name != "" {
			program = terminal.Quoted(ev.Name)
		}
		parts = append(parts, endText(ev.Exit))
	case execwatch.Loaded:
		program = binaryText(ev.Library)
	}
	if ev.Container != "" {
		parts = append(parts, "[container "+ev.Container[:min(12, len(ev.Container))]+"]")
	}
	return program, strings.Join(parts, " ")
}

func binaryText(b *execwatch.Binary) string {
	text := terminal.Quoted(b.Path)
	if b.Cut {
		text = "…" + text
	}
	if b.Deleted {
		text += " [deleted]"
	}
	if b.Elsewhere {
		text += " [elsewhere]"
	}
	content := b.Content
	if !b.Different {
		content = buildid.Content{} // nobody knows whether it is another one
	}
	return text + identity.MarkOf(b.Contested, content).Text()
}

// endText says how a process ended: "exit 1", "killed by SIGSEGV (core dumped)".
func endText(end *execwatch.Exit) string {
	var parts []string
	if s := end.Status; s != nil {
		parts = append(parts, statusText(*s))
	}
	if end.Lived > 0 {
		parts = append(parts, "after "+terminal.Quantity(int64(end.Lived), "nanoseconds"))
	}
	if end.CPU != nil {
		parts = append(parts, "cpu "+terminal.Quantity(int64(*end.CPU), "nanoseconds"))
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
	text := "killed by " + signalName(s.Signal())
	if s.CoreDump() {
		text += " (core dumped)"
	}
	return text
}

// signalName returns the name of a signal. Those for real time have none.
func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}
