package symbolize

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/debuginfo"
	"hallmark/symbol"
)

// A Filter gives functions and lines to the frames in text. The zero value uses what
// is on this machine, and only where the text reports build IDs.
type Filter struct {
	// Library has the symbols. Nil means the zero debuginfo.Library.
	Library *debuginfo.Library

	// Binaries are files that the text is about. One of them answers for a frame with
	// its build ID, wherever it is now, and for a frame without a build ID if the
	// text's file has its name.
	Binaries []string

	// TrustPaths lets the file that is at a path now answer for frames that have the
	// path and no build ID. It may be another file than the one that ran.
	TrustPaths bool

	// Replace replaces the names that text of perf script and of sanitizers has
	// already, also where they contradict.
	Replace bool

	// Lines adds source lines to text of perf script, as perf does with -F +srcline.
	// Other formats have them always.
	Lines bool

	// Folded says that each line is a stack of folded frames and its count.
	Folded bool

	// Found, if not nil, is called for every frame that was looked up. What it gets
	// holds until it returns.
	Found func(Frame)
}

// Frame is a frame in text, and what is known of it.
type Frame struct {
	Line    int64        // number of the line in the text, from 1
	Module  string       // the file's name, as in the text
	ID      buildid.ID   // as in the text, or that of the file which answered
	Virt    *addr.Virt   // address in the file, if the text has it
	Offset  *addr.Offset // offset in the file, if the text has it
	Trusted bool         // the file was taken on trust, for its name
	symbol.Result
}

// maxLine is the length from which on a line is passed on without being looked at.
const maxLine = 1 << 20

// Copy copies the text in r to w and gives functions and lines to its frames. All
// other text stays as it is, byte for byte. All complete lines are written before
// Copy waits for more, so that it can be part of a pipe. ctx bounds how long symbols
// are searched for, and not how long text is copied.
//
// The Summary is that of what was copied, also with an error, which is one of
// reading or writing.
func (f *Filter) Copy(ctx context.Context, w io.Writer, r io.Reader) (*Summary, error) {
	t := newText(ctx, f)
	defer t.resolver.close()
	in := bufio.NewReaderSize(r, maxLine)
	out := bufio.NewWriterSize(w, 1<<16)
	err := t.copy(out, in)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if flushed := out.Flush(); err == nil {
		err = flushed
	}
	return t.summary.finish(), err
}

// text is a text that is being copied.
type text struct {
	resolver *resolver
	summary  *tally
	dialects []dialect
}

// A dialect knows one way in which programs write frames.
type dialect interface {
	// rewrite returns what a line becomes, and whether it is of this dialect. Lines
	// have no newline at their end.
	rewrite(line string) (lines []string, ok bool)
}

func newText(ctx context.Context, f *Filter) *text {
	s := newTally()
	r := newResolver(ctx, f, s)
	t := &text{resolver: r, summary: s}
	if f.Folded {
		t.dialects = []dialect{&folded{r}}
		return t
	}
	t.dialects = []dialect{
		&markup{resolver: r},
		&android{r},
		&coredump{resolver: r},
		&sanitizer{resolver: r, replace: f.Replace},
		&glibc{resolver: r},
		&segfault{r},
		&kernel{resolver: r},
		&gdb{resolver: r},
		&bpf{resolver: r},
		newPerf(r, f),
		&identified{r},
	}
	return t
}

// copy copies until reading or writing fails; the end of the text is io.EOF.
func (t *text) copy(out *bufio.Writer, in *bufio.Reader) error {
	inside := false // of a line that is too long
	for {
		if !holdsLine(in) {
			if err := out.Flush(); err != nil {
				return err
			}
		}
		line, err := in.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		if long || inside {
			out.Write(line)
		} else {
			t.line(out, line)
		}
		inside = long
		switch {
		case err == io.EOF:
			return err
		case err != nil && !long:
			return fmt.Errorf("reading text: %w", err)
		}
		if !long {
			t.resolver.number++
		}
	}
}

// holdsLine reports whether the next line can be read without waiting.
func holdsLine(in *bufio.Reader) bool {
	ready, _ := in.Peek(in.Buffered())
	return bytes.IndexByte(ready, '\n') >= 0
}

// line writes what a line becomes. A failure to write shows when out is flushed.
func (t *text) line(out *bufio.Writer, line []byte) {
	content := bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	end := line[len(content):]
	text := string(content)
	for _, d := range t.dialects {
		lines, ok := d.rewrite(text)
		if !ok {
			continue
		}
		separator := "\n"
		if len(end) > 0 {
			separator = string(end)
		}
		out.WriteString(strings.Join(lines, separator))
		out.Write(end)
		return
	}
	out.Write(line)
}
