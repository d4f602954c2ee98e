package execprint

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"hallmark/buildid"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/execwatch"
	"hallmark/internal/plaintext"
	"hallmark/profile"
)

// AppendJSON appends an event in the form for machines, a JSON object and a line feed:
// what encoding/json makes of the watchRecord of the tests. It is written by hand because
// there may be thousands of events in a second, and by reflection each took four times as long.
func AppendJSON(b []byte, ev *execwatch.Event) []byte {
	o := object{append(b, verb.JSONStart...)}
	o.text("event", ev.Kind.String())
	o.time("time", ev.Time)
	o.number("pid", int64(ev.PID))
	o.number("ppid", int64(ev.PPID))
	if !ev.Started.IsZero() { // with pid it names a process for good
		o.time("started", ev.Started)
	}
	o.text("process", ev.Name)
	o.owner(ev.Credentials)
	o.text("cgroup", ev.Cgroup)
	o.text("container", ev.Container)
	o.binary("program", ev.Program)
	o.binary("interpreter", ev.Interpreter)
	o.binary("library", ev.Library)
	o.text("exec_path", ev.File) // as it was given to execve
	o.text("script", ev.Script)
	o.text("script_interpreter", ev.Interp) // that the script names
	o.args(ev.Args, ev.ArgsCut)
	o.end(ev.Exit)
	o.number("lost", int64(ev.Lost))
	return append(o.b, "}\n"...)
}

// object writes the members of a JSON object. Empty members are left out.
type object struct{ b []byte }

// key begins a member.
func (o *object) key(name string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(o.b, '"')
	o.b = append(o.b, name...)
	o.b = append(o.b, `":`...)
}

func (o *object) text(name, value string) {
	if value != "" {
		o.key(name)
		o.b = appendJSONText(o.b, value)
	}
}

func (o *object) number(name string, value int64) {
	if value != 0 {
		o.count(name, value)
	}
}

// count writes a number that may be 0.
func (o *object) count(name string, value int64) {
	o.key(name)
	o.b = strconv.AppendInt(o.b, value, 10)
}

func (o *object) flag(name string, value bool) {
	if value {
		o.key(name)
		o.b = append(o.b, "true"...)
	}
}

func (o *object) time(name string, t time.Time) {
	o.key(name)
	o.b = append(o.b, '"')
	o.b = t.AppendFormat(o.b, time.RFC3339Nano)
	o.b = append(o.b, '"')
}

// owner writes effective IDs only where they are not the real ones.
func (o *object) owner(of *execwatch.Credentials) {
	if of == nil {
		return
	}
	o.count("uid", int64(of.UID))
	o.count("gid", int64(of.GID))
	if of.EUID != of.UID {
		o.count("euid", int64(of.EUID))
	}
	if of.EGID != of.GID {
		o.count("egid", int64(of.EGID))
	}
}

// binary writes a file that is executed. Where its path is no UTF-8, it is there in base64
// as well.
func (o *object) binary(name string, file *execwatch.Binary) {
	if file == nil {
		return
	}
	o.key(name)
	o.b = append(o.b, '{')
	o.text("binary", file.Path)
	if !utf8.ValidString(file.Path) {
		o.key("binary_raw")
		o.b = appendBase64(o.b, file.Path)
	}
	o.flag("binary_cut", file.Cut)
	if file.ID.IsZero() {
		o.text("reason", file.Reason.Code()) // why there is no identity
	} else {
		o.id(file.ID)
	}
	o.flag("contested", file.Contested)
	o.flag("different", file.Different)
	o.content(file.Content)
	o.text("proof", proofOf(file))
	o.flag("deleted", file.Deleted)
	o.flag("elsewhere", file.Elsewhere)
	o.b = append(o.b, '}')
}

// proofOf returns how far the identity of a file is known to be that of its code, "" where there is none.
func proofOf(file *execwatch.Binary) string {
	switch {
	case file.ID.IsZero():
		return ""
	case file.Different:
		return profile.Contested.String()
	case file.Content.IsZero():
		return profile.Claimed.String()
	}
	return profile.Proven.String()
}

func (o *object) id(id buildid.ID) {
	if id.Kind() == buildid.Go { // which may have quotes in it
		o.text("build_id", id.String())
		return
	}
	o.key("build_id")
	o.b = append(o.b, '"')
	o.b, _ = id.AppendText(o.b) // never fails
	o.b = append(o.b, '"')
}

func (o *object) content(c buildid.Content) {
	if c.IsZero() {
		return
	}
	o.key("content")
	o.b = append(o.b, '"')
	o.b, _ = c.AppendText(o.b) // never fails
	o.b = append(o.b, '"')
}

// args writes the arguments. Where one of them is no UTF-8, all are there in base64 as well.
func (o *object) args(args []string, cut bool) {
	if len(args) > 0 {
		o.key("args")
		o.list(args, appendJSONText)
	}
	o.flag("args_cut", cut)
	for _, arg := range args {
		if !utf8.ValidString(arg) {
			o.key("args_raw")
			o.list(args, appendBase64)
			return
		}
	}
}

func (o *object) list(texts []string, appendText func([]byte, string) []byte) {
	for i, text := range texts {
		o.b = appendText(append(o.b, "[,"[min(i, 1)]), text)
	}
	o.b = append(o.b, ']')
}

// end writes how a process ended: with an exit status, or killed by a signal, which may have
// left a core dump.
func (o *object) end(end *execwatch.Exit) {
	if end == nil {
		return
	}
	switch s := end.Status; {
	case s == nil:
	case s.Signaled():
		o.text("signal", signalName(s.Signal()))
		o.flag("core", s.CoreDump())
	default:
		o.count("exit", int64(s.ExitStatus()))
	}
	if end.CPU != nil {
		o.count("cpu_ns", int64(*end.CPU))
		o.flag("cpu_early", !end.Final) // nobody has waited for it yet: a little is missing
	}
	o.number("lived_ns", int64(end.Lived))
}

func appendBase64(b []byte, s string) []byte {
	b = base64.StdEncoding.AppendEncode(append(b, '"'), []byte(s))
	return append(b, '"')
}

// appendJSONText appends a string of JSON. A string that is not plain is left to encoding/json.
func appendJSONText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return appendOddText(b, s)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

func appendOddText(b []byte, s string) []byte {
	var text bytes.Buffer
	in := json.NewEncoder(plaintext.JSON(&text))
	in.SetEscapeHTML(false)
	if err := in.Encode(s); err != nil {
		panic(err) // a string is never refused
	}
	return append(b, bytes.TrimSuffix(text.Bytes(), []byte{'\n'})...)
}
