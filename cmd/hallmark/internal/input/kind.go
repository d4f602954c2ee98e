package input

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"hallmark/internal/plaintext"
	"hallmark/internal/regular"
	"hallmark/perfdata"
	"hallmark/profile"
	"hallmark/profile/fromtext"
	"hallmark/profile/otlp"
	"hallmark/symbol"
	"hallmark/unwind"
)

// fileKinds are what files are taken for by their first bytes, and which verbs read them.
var fileKinds = []struct{ magic, kind string }{
	{"\x7fELF", "an ELF file ('hallmark lookup' and 'hallmark id' read it)"},
	{"PERFILE2", "a perf.data file ('hallmark report' reads it)"},
	{"2ELIFREP", "a perf.data file ('hallmark report' reads it)"}, // of the other byte order
	{"hallmark", "an index ('hallmark index --dump' reads it)"},
	{"\x1f\x8b", "compressed by gzip, as profiles are ('hallmark report' reads those)"},
	{"\x28\xb5\x2f\xfd", "compressed by zstd"},
	{"\xfd7zXZ\x00", "compressed by xz"},
	{"!<arch>\n", "an archive"},
	{"PK\x03\x04", "an archive"},
}

const speedscopeKind = "a profile for speedscope, which Hallmark writes and does not read"

// scriptKind is what perf script prints if it is asked for too little.
const scriptKind = "text of perf script whose samples lack the command, the thread, the time or the event (perf script -F comm,pid,tid,time,period,event,ip,sym,dso prints all that is read)"

// headSize is how many bytes of a file are looked at to find out its kind.
const headSize = fromtext.HeadSize

// kindOf returns in words what a file with these first bytes is, "" if nobody knows.
func kindOf(head []byte) string {
	for _, k := range fileKinds {
		if bytes.HasPrefix(head, []byte(k.magic)) {
			return k.kind
		}
	}
	switch {
	case len(head) == 0:
		return "an empty file"
	case !isPlainText(head):
		return ""
	case otlp.Detect(head):
		return "a profile in OTLP"
	case bytes.Contains(head, []byte("speedscope.app")):
		return speedscopeKind
	case fromtext.LacksSamples(head):
		return scriptKind
	}
	return "text"
}

// isPlainText reports whether the first bytes of a file are text: UTF-8 without control characters,
// but for a character that is cut.
func isPlainText(head []byte) bool {
	for len(head) > 0 {
		r, n := utf8.DecodeRune(head)
		switch {
		case r == utf8.RuneError && n == 1:
			return !utf8.FullRune(head)
		case r < ' ' && !strings.ContainsRune("\t\n\r\f\x1b", r):
			return false
		}
		head = head[n:]
	}
	return true
}

// DescribeKind makes the error for an input that is no such thing as a verb reads say which kind of file
// it is. Other errors stay as they are.
func DescribeKind(name string, err error) error {
	wanted := ""
	switch {
	case errors.Is(err, profile.ErrFormat), errors.Is(err, profile.ErrTooLarge):
		wanted = "profile"
	case errors.Is(err, perfdata.ErrNotPerfData):
		wanted = "perf.data file"
	case errors.Is(err, symbol.ErrNotELF), errors.Is(err, unwind.ErrNotELF):
		wanted = "ELF file"
	case errors.Is(err, symbol.ErrNotIndex):
		wanted = "index"
	default:
		return err
	}
	if name == "-" { // standard input, of which the head is gone
		return err
	}
	head, isDir := headOf(name)
	kind := kindOf(head)
	switch {
	case isDir && wanted != "perf.data file": // perf records into directories
		return &os.PathError{Op: "read", Path: name, Err: unix.EISDIR}
	case head == nil, kind == "", strings.Contains(kind, wanted) && kind != speedscopeKind:
		return err // a damaged one, or of another version
	case errors.Is(err, profile.ErrTooLarge) && (!strings.HasPrefix(kind, "text") || isOldProfile(head) || fromtext.Detect(head) != fromtext.None):
		return err // of what may be a profile
	}
	article := "a"
	if wanted != "profile" && wanted != "perf.data file" {
		article = "an"
	}
	return fmt.Errorf("%s: not %s %s, but %s", plaintext.Name(name), article, wanted, kind)
}

// isOldProfile reports whether text may be a profile in one of the formats that pprof had before.
func isOldProfile(head []byte) bool {
	for _, first := range []string{"heap profile:", "goroutine profile:", "threadcreate profile:", "--- "} {
		if bytes.HasPrefix(head, []byte(first)) {
			return true
		}
	}
	return false
}

// headOf returns the first bytes of a regular file, nil of anything else.
func headOf(name string) (head []byte, isDir bool) {
	f, err := regular.Open(name)
	if err != nil {
		info, err := os.Stat(name)
		return nil, err == nil && info.IsDir()
	}
	defer f.Close()
	head = make([]byte, headSize)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, false
	}
	return head[:n], false
}
