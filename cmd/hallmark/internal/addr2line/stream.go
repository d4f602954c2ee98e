package addr2line

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"hallmark/internal/plaintext"
)

// output collects what is written until it is worth a system call or somebody waits
// for it. Its owner appends to buf.
type output struct {
	w          io.Writer
	isTerminal bool
	buf        []byte
	err        error // the first one
}

// name returns a name that a file has as it is printed: with the bytes that the originals
// print, which peers read. But the end of a line ends an answer, and a name with one would
// answer what was asked next, maybe of another file. A terminal gets plain text.
func (o *output) name(s string) string {
	switch {
	case o.isTerminal:
		return plaintext.Line(s)
	case strings.ContainsAny(s, "\n\r"):
		return strings.NewReplacer("\n", "?", "\r", "?").Replace(s)
	}
	return s
}

// full is when output is written although nobody waits for it.
const full = 64 << 10

// done says that an answer is complete.
func (o *output) done() error {
	if len(o.buf) < full {
		return o.err
	}
	return o.flush()
}

// flush writes what was collected.
func (o *output) flush() error {
	if len(o.buf) > 0 && o.err == nil {
		_, o.err = o.w.Write(o.buf)
	}
	o.buf = o.buf[:0]
	return o.err
}

// lines reads lines as fgets does: one that is too long is several. Whenever it is
// about to wait for input it flushes the output, for whoever waits for an answer
// before he asks the next thing.
type lines struct {
	r          io.Reader
	out        *output
	longest    int // bytes of a line at most, with its newline
	buf        []byte
	start, end int // of what was read and not returned
	err        error
}

func newLines(r io.Reader, out *output, longest int) *lines {
	return &lines{r: r, out: out, longest: longest, buf: make([]byte, 64<<10)}
}

// next returns the next line without its newline, or false after the last one. It is
// valid until the next call.
func (l *lines) next() ([]byte, bool) {
	for {
		have := l.buf[l.start:min(l.end, l.start+l.longest)]
		if i := bytes.IndexByte(have, '\n'); i >= 0 {
			l.start += i + 1
			return have[:i], true
		}
		if len(have) == l.longest || l.err != nil && len(have) > 0 {
			l.start += len(have)
			return have, true
		}
		if l.err != nil || l.out.flush() != nil {
			return nil, false
		}
		l.fill()
	}
}

// fill reads more behind what is left.
func (l *lines) fill() {
	l.end = copy(l.buf, l.buf[l.start:l.end])
	l.start = 0
	n, err := l.r.Read(l.buf[l.end:])
	l.end += n
	l.err = err
}

// failed returns the error that ended the input before its end, if any.
func (l *lines) failed() error {
	if errors.Is(l.err, io.EOF) {
		return nil
	}
	return l.err
}
