// Package fromany reads a profile in whatever format it is: pprof's, a recording by perf, the text of 'perf
// script', folded stacks, and a message of OTLP, each of them also compressed by gzip.
//
// It looks at nothing but the bytes, so that any machine can read what another one recorded. Nothing gets names:
// they are for the caller to find, by identity. A recording by perf with copies of stacks has no callers then, as
// no unwind tables are at hand.
package fromany

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"

	pprof "github.com/google/pprof/profile"

	"hallmark/perfdata"
	"hallmark/profile"
	"hallmark/profile/compact"
	"hallmark/profile/fromperf"
	"hallmark/profile/fromtext"
	"hallmark/profile/otlp"
)

// Kind is a format of profiles.
type Kind string

// The kinds.
const (
	Pprof  Kind = "pprof"
	Perf   Kind = "perf.data"
	Script Kind = "perf script"
	Folded Kind = "folded stacks"
	OTLP   Kind = "OTLP"
)

// options bound what a profile takes. A server reads several at a time.
var options = profile.ReadOptions{BaseMemory: 192 << 20}

// maxPending is how many bytes of records of a recording by perf wait for their turn.
const maxPending = 64 << 20

// Memory returns how many bytes reading a profile of so many bytes takes at most.
func Memory(size int64) int64 { return options.Limits(size).Memory + maxPending }

// Read reads the profile in size bytes of r. It ends with ctx, and takes no more than Memory. Of a recording with
// several events, it is that of the first one with samples. A profile that is larger is profile.ErrTooLarge, and what
// is none is profile.ErrFormat or an error of its format.
func Read(ctx context.Context, r io.ReaderAt, size int64) (*compact.Profile, Kind, error) {
	in := &untilDone{ctx, r}
	p, kind, err := read(in, size)
	if ctx.Err() != nil { // which readers of damaged files take for an end of the file
		return nil, kind, context.Cause(ctx)
	}
	return p, kind, err
}

// untilDone reads until a context is done.
type untilDone struct {
	ctx context.Context
	r   io.ReaderAt
}

func (u *untilDone) ReadAt(p []byte, off int64) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.ReadAt(p, off)
}

func read(r io.ReaderAt, size int64) (*compact.Profile, Kind, error) {
	kind, isGzip := kindOf(io.NewSectionReader(r, 0, size))
	if kind == Pprof {
		p, err := compact.Read(io.NewSectionReader(r, 0, size), options)
		return p, kind, err
	}
	limits := options.Limits(size)
	if isGzip || kind == OTLP {
		data, _, err := profile.ReadData(io.NewSectionReader(r, 0, size), options)
		if err != nil {
			return nil, kind, err
		}
		r = &untilDone{r.(*untilDone).ctx, bytes.NewReader(data)}
		p, err := convert(r, int64(len(data)), kind, data, limits)
		return p, kind, err
	}
	p, err := convert(r, size, kind, nil, limits)
	return p, kind, err
}

// kindOf returns what a profile is by its first bytes: pprof's where nobody knows better, whose reader says what is
// wrong with it.
func kindOf(r io.Reader) (kind Kind, isGzip bool) {
	head := make([]byte, fromtext.HeadSize)
	n, _ := io.ReadFull(r, head)
	head = head[:n]
	if bytes.HasPrefix(head, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(bytes.NewReader(head))
		if err != nil {
			return Pprof, true
		}
		plain := make([]byte, fromtext.HeadSize)
		n, _ := io.ReadFull(z, plain)
		head, isGzip = plain[:n], true
	}
	switch {
	case perfdata.HasMagic(head):
		return Perf, isGzip
	case otlp.Detect(head):
		return OTLP, isGzip
	}
	switch fromtext.Detect(head) {
	case fromtext.Folded:
		return Folded, isGzip
	case fromtext.Script:
		return Script, isGzip
	}
	return Pprof, isGzip
}

// convert makes the profile of what is no pprof profile. OTLP is in data.
func convert(r io.ReaderAt, size int64, kind Kind, data []byte, limits profile.Limits) (*compact.Profile, error) {
	var p *pprof.Profile
	var err error
	switch kind {
	case Perf:
		p, err = fromRecording(io.NewSectionReader(r, 0, size), limits)
	case OTLP:
		p, err = fromOTLP(data, limits)
	default:
		format := fromtext.Folded
		if kind == Script {
			format = fromtext.Script
		}
		p, _, err = fromtext.Read(io.NewSectionReader(r, 0, size), format, fromtext.Options{Times: true, Memory: limits.Memory / 2})
	}
	if err != nil {
		return nil, err
	}
	if err := profile.Check(p, limits); err != nil {
		return nil, err
	}
	return compact.FromPprof(p)
}

func fromRecording(r *io.SectionReader, limits profile.Limits) (*pprof.Profile, error) {
	in, err := perfdata.NewReader(r, perfdata.ReaderOptions{MaxPending: maxPending})
	if err != nil {
		return nil, err
	}
	defer in.Close()
	p, stats, err := fromperf.Read(in, fromperf.Options{Times: true, Memory: limits.Memory / 2})
	if err != nil {
		if !errors.Is(err, profile.ErrTooLarge) {
			err = fmt.Errorf("%w: %w", profile.ErrFormat, err)
		}
		return nil, err
	}
	if stats.Damage != nil {
		p.Comments = append(p.Comments, stats.Damage.Error())
	}
	return p, nil
}

func fromOTLP(data []byte, limits profile.Limits) (*pprof.Profile, error) {
	parse := otlp.Parse
	if otlp.IsJSON(data) {
		parse = otlp.ParseJSON
	}
	m, err := parse(data, otlp.Options{MaxSize: int64(len(data)), MaxMemory: limits.Memory / 2})
	if err != nil {
		return nil, err
	}
	return m.Profile(limits)
}

// Counts returns how many samples a profile has, as its type "samples" counts them where it has one, and how many
// binaries.
func Counts(p *compact.Profile) (samples, binaries int64) {
	samples = int64(p.Samples())
	for kind, t := range p.SampleTypes() {
		if t.Type == "samples" && t.Unit == "count" {
			samples = 0
			for row := range p.Samples() {
				samples += max(0, p.Value(row, kind))
				if samples < 0 { // values are as somebody wrote them
					return 1<<63 - 1, countBinaries(p)
				}
			}
			break
		}
	}
	return samples, countBinaries(p)
}

func countBinaries(p *compact.Profile) int64 {
	seen := map[[2]string]bool{}
	for _, m := range p.Mappings() {
		key := [2]string{m.BuildID}
		if m.BuildID == "" {
			key[1] = m.File
		}
		seen[key] = true
	}
	return int64(len(seen))
}
