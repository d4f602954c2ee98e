package input

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"

	pprof "github.com/google/pprof/profile"

	"hallmark/cmd/hallmark/internal/perffile"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/profile"
	"hallmark/profile/fromtext"
)

// textInput is a profile as text: folded stacks, or what perf script prints.
type textInput struct {
	name   string
	format fromtext.Format
	from   io.Reader
	size   int64 // of the file, -1 where nobody knows
	close  func()
}

// findText opens a profile as text in the file called name, or in rest if that is not nil; gzip
// is seen through. It returns nil where there is none: then rest is as it was, or has nothing
// less.
func findText(name string, rest *io.Reader) (*textInput, error) {
	t := &textInput{name: name, size: -1, close: func() {}}
	from := *rest
	if from == nil {
		f, err := os.Open(name)
		if err != nil {
			return nil, nil // whoever reads profiles says so
		}
		t.close = func() { f.Close() }
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			t.size = info.Size()
		}
		from = f
	}
	buffered := bufio.NewReaderSize(from, 1<<16)
	t.from = buffered
	head, _ := buffered.Peek(fromtext.HeadSize)
	if bytes.HasPrefix(head, perffile.GzipMagic) {
		inflated, err := gzip.NewReader(bytes.NewReader(head))
		if err == nil {
			plain := make([]byte, fromtext.HeadSize)
			n, _ := io.ReadFull(inflated, plain)
			t.format = fromtext.Detect(plain[:n])
		}
	} else {
		t.format = fromtext.Detect(head)
	}
	if t.format == fromtext.None {
		if *rest != nil {
			*rest = buffered
		}
		t.close()
		return nil, nil
	}
	if bytes.HasPrefix(head, perffile.GzipMagic) {
		z, err := gzip.NewReader(buffered)
		if err != nil {
			t.close()
			return nil, fmt.Errorf("%s: %w", perffile.InputName(name), err)
		}
		t.from = z
	}
	return t, nil
}

// convertText makes the profile of text.
func (in *Reader) convertText(t *textInput, o profile.ReadOptions) ([]*pprof.Profile, error) {
	switch {
	case in.Event == EveryEvent:
		return nil, verb.Usagef("--event all is for perf.data files, and %s is %v: name one event", perffile.InputName(t.name), t.format)
	case in.Event != "" && t.format != fromtext.Script:
		return nil, verb.Usagef("--event is for recordings by perf, and %s is %v", perffile.InputName(t.name), t.format)
	case in.trust:
		return nil, verb.Usagef("--trust-paths is for perf.data files, and %s is %v", perffile.InputName(t.name), t.format)
	}
	in.limits = o.Limits(t.size)
	p, _, err := fromtext.Read(t.from, t.format, fromtext.Options{Event: in.Event, Times: in.Times, MaxSize: o.MaxSize, Memory: in.recordingMemory()})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", perffile.InputName(t.name), err)
	}
	return []*pprof.Profile{p}, nil
}
