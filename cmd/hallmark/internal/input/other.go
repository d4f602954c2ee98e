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
	"hallmark/profile/otlp"
)

// otherInput is a profile that is neither pprof's nor a recording by perf: folded stacks, what perf script
// prints, or a message of OTLP.
type otherInput struct {
	name   string
	format fromtext.Format // None for OTLP
	from   io.Reader
	size   int64 // of the file, -1 where nobody knows
	read   *Counted
	close  func()
}

// Counted counts the bytes that are read of R, compressed as they are.
type Counted struct {
	R io.Reader
	N int64
}

// Read implements io.Reader.
func (c *Counted) Read(p []byte) (int, error) {
	n, err := c.R.Read(p)
	c.N += int64(n)
	return n, err
}

// findOther opens such a profile in the file called name, or in rest if that is not nil; gzip
// is seen through. It returns nil where there is none: then rest is as it was, or has nothing
// less.
func findOther(name string, rest *io.Reader) (*otherInput, error) {
	t := &otherInput{name: name, size: -1, close: func() {}}
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
	t.read = &Counted{R: from}
	buffered := bufio.NewReaderSize(t.read, 1<<16)
	t.from = buffered
	head, _ := buffered.Peek(fromtext.HeadSize)
	isOTLP := otlp.Detect(head)
	if bytes.HasPrefix(head, perffile.GzipMagic) {
		inflated, err := gzip.NewReader(bytes.NewReader(head))
		if err == nil {
			plain := make([]byte, fromtext.HeadSize)
			n, _ := io.ReadFull(inflated, plain)
			t.format, isOTLP = fromtext.Detect(plain[:n]), otlp.Detect(plain[:n])
		}
	} else {
		t.format = fromtext.Detect(head)
	}
	if t.format == fromtext.None && !isOTLP {
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

// convertOther makes the profile of it.
func (in *Reader) convertOther(t *otherInput, o profile.ReadOptions) ([]*pprof.Profile, error) {
	switch {
	case t.format == fromtext.None:
		return in.convertOTLP(t, o)
	case in.Event == EveryEvent:
		return nil, verb.Usagef("--event all is for perf.data files, and %s is %v: name one event", perffile.InputName(t.name), t.format)
	case in.Event != "" && t.format != fromtext.Script:
		return nil, verb.Usagef("--event is for recordings by perf, and %s is %v", perffile.InputName(t.name), t.format)
	}
	in.limits = o.Limits(t.size)
	text := fromtext.Options{Event: in.Event, Times: in.Times, MaxSize: o.MaxSize, Memory: in.recordingMemory()}
	if in.Differences {
		text.Base = &in.Base
	}
	p, _, err := fromtext.Read(t.from, t.format, text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", perffile.InputName(t.name), err)
	}
	return []*pprof.Profile{p}, nil
}

// convertOTLP makes the profile of a message of OTLP.
func (in *Reader) convertOTLP(t *otherInput, o profile.ReadOptions) ([]*pprof.Profile, error) {
	if err := in.forRecordings(t.name); err != nil {
		return nil, err
	}
	o.InFile = func() int64 { return t.read.N }
	data, limits, err := profile.ReadData(t.from, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", perffile.InputName(t.name), err)
	}
	in.limits = limits
	parse := otlp.Parse
	if otlp.IsJSON(data) {
		parse = otlp.ParseJSON
	}
	m, err := parse(data, otlp.Options{MaxSize: int64(len(data)), MaxMemory: in.limits.Memory})
	var p *pprof.Profile
	if err == nil {
		p, err = m.Profile(in.limits)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", perffile.InputName(t.name), err)
	}
	return []*pprof.Profile{p}, nil
}

// forRecordings refuses flags that are for recordings by perf, for a profile.
func (in *Reader) forRecordings(name string) error {
	if in.Event != "" {
		return verb.Usagef("--event is for recordings by perf, and %s is a profile: use --sample-type", perffile.InputName(name))
	}
	return nil
}
