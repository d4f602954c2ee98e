// Package toperf writes a profile as a perf.data file, which perf reads with the same
// counts: perf report, perf script, perf buildid-list.
//
// The package makes up the facts that a profile does not have, so that everything fits together:
//
//   - Each file is mapped at one address, the same in every process, where nothing
//     else of the profile is; the kernel's image where it was linked to run. Addresses
//     of generated code stay what they are.
//   - Every count of a stack is a sample. Where there are more than Options.MaxSamples,
//     each stands for several: periods add up to the same total, and stacks keep their
//     share.
//   - Samples that have no time (profile.Times) are spread over the duration of the
//     profile, in its order.
//   - Processes without a number have one above all that the kernel gives.
//
// Files whose identity is none that perf reads from them (a hash of their content, the build ID
// of Go's toolchain) have none in the recording: perf then takes symbols from what is at their
// path. With another one it would look for a file that has it, and find none. See
// Options.EveryIdentity.
//
// perf looks up symbols itself, by the build IDs: names that the profile has are not in
// the file, but for those of generated code, which are in place of its library
// (perfdata.GeneratedName), and in the kernel as perf has them. Nor are how stacks were
// walked, and reasons beside those that a missing mapping reports.
package toperf

import (
	"cmp"
	"io"
	"math"
	"slices"

	pprof "github.com/google/pprof/profile"

	"hallmark/perfdata"
	"hallmark/profile"
)

// Options say what is written.
type Options struct {
	// SampleType is the type of value that periods are: the profile's default if it is
	// empty.
	SampleType string
	// Info is what the recording says of the machine. Build IDs, clock and times are filled in, and
	// the architecture where it is empty.
	Info perfdata.Info
	// MaxSamples is how many samples are written at most, DefaultMaxSamples if it is 0,
	// but for one of each stack.
	MaxSamples int64
	// EveryIdentity gives files that have no GNU build ID what stands for their identity
	// (buildid.ID.GNUForm). This project's readers know them by it, and perf takes no symbols
	// from them.
	EveryIdentity bool
}

// DefaultMaxSamples takes perf a few seconds to read, and 100 MB of memory to write.
const DefaultMaxSamples = 4 << 20

// Write writes p: as a file where w can seek, and is at its start, else as the stream
// that perf record writes into a pipe. A difference of two profiles gives
// profile.ErrNegative.
func Write(w io.Writer, p *pprof.Profile, o Options) error {
	index, err := profile.SampleIndex(p, o.SampleType)
	if err != nil {
		return err
	}
	moments, err := momentsOf(p, index, cmp.Or(o.MaxSamples, DefaultMaxSamples))
	if err != nil {
		return err
	}
	out, err := perfdata.NewWriter(w, perfdata.WriterOptions{Pipe: !canSeek(w), InOrder: true})
	if err != nil {
		return err
	}
	s := newScript(p, out, o.EveryIdentity)
	out.Info = o.Info
	out.Info.Arch = cmp.Or(o.Info.Arch, archOf(p))
	out.Info.BuildIDs = s.layout.buildIDs()
	out.Info.ClockResolution = 1
	if len(moments) > 0 && p.TimeNanos != 0 {
		first := uint64(moments[0].time)
		out.Info.Clock = &perfdata.ClockData{ClockID: clockRealtime, Wall: first, Time: first}
	}
	event := eventOf(p, p.SampleType[index], s.hasCgroups(p))
	if p.TimeNanos == 0 { // the times count from no known moment
		event.Attr.Flags &^= perfdata.AttrUseClockID
		event.Attr.ClockID, out.Info.ClockResolution = 0, 0
	}
	if err := out.AddEvent(event); err != nil {
		return err
	}
	if err := s.run(moments); err != nil {
		return err
	}
	return out.Close()
}

// canSeek reports whether w is a file; a pipe has the method and cannot.
func canSeek(w io.Writer) bool {
	s, ok := w.(io.WriteSeeker)
	if !ok {
		return false
	}
	_, err := s.Seek(0, io.SeekCurrent)
	return err == nil
}

// moment is a sample to be written.
type moment struct {
	time   int64 // ns since 1970
	sample int   // index
	period int64
}

// momentsOf lays out samples in time.
func momentsOf(p *pprof.Profile, index int, most int64) ([]moment, error) {
	count := slices.IndexFunc(p.SampleType, func(t *pprof.ValueType) bool { return t.Unit == "count" })
	var total int64
	for _, s := range p.Sample {
		if s.Value[index] < 0 || count >= 0 && s.Value[count] < 0 {
			return nil, profile.ErrNegative
		}
		if total += countOf(s, count, index); total < 0 {
			total = math.MaxInt64 / 2
		}
	}
	scale := total/most + 1
	scaled := func(s *pprof.Sample) int64 {
		n := countOf(s, count, index)
		if scale > 1 {
			n = n/scale + min(n%scale, 1)
		}
		return n
	}
	var moments int64 // at most most, and one for each sample
	for _, s := range p.Sample {
		moments += scaled(s)
	}
	// There may be millions: a list that grows would be there twice.
	all := make([]moment, 0, moments)
	timed := false
	for i, s := range p.Sample {
		n := scaled(s)
		times := profile.Times(s)
		timed = timed || len(times) > 0
		all = appendMoments(all, i, n, s.Value[index], times)
	}
	spread(all, p, timed)
	return all, nil
}

// countOf returns how often a stack was seen: once where the profile counts no samples.
func countOf(s *pprof.Sample, count, index int) int64 {
	switch {
	case s.Value[index] == 0:
		return 0
	case count >= 0 && count != index:
		return min(max(s.Value[count], 1), s.Value[index])
	case count >= 0:
		return s.Value[count]
	}
	return 1
}

// appendMoments divides a weight among n samples.
func appendMoments(all []moment, sample int, n, weight int64, times []int64) []moment {
	for k := range n {
		m := moment{sample: sample, period: weight / (n - k), time: noTime}
		weight -= m.period
		if k < int64(len(times)) {
			m.time = times[k]
		}
		all = append(all, m)
	}
	return all
}

// noTime stands for a time that is not known.
const noTime = math.MinInt64

// spread gives a time to those that have none, and sorts by time.
func spread(all []moment, p *pprof.Profile, timed bool) {
	start := max(p.TimeNanos, 0)
	if start == 0 {
		start = 1e9 // 0 is no time in a recording
	}
	duration := max(p.DurationNanos, 0)
	steps := float64(max(len(all)-1, 1))
	for i := range all {
		if m := &all[i]; m.time == noTime {
			m.time = start + int64(float64(duration)*(float64(i)/steps))
		}
	}
	if n := len(all); n > 1 && !timed {
		all[n-1].time = start + duration
	}
	slices.SortStableFunc(all, func(a, b moment) int { return cmp.Compare(a.time, b.time) })
}
