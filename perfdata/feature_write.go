package perfdata

import "slices"

// featureData is a feature section.
type featureData struct {
	number Feature
	data   []byte
}

// features returns the sections of what Info has, in the order of their numbers.
func (w *Writer) features() []featureData {
	i := &w.Info
	var all []featureData
	add := func(f Feature, has bool, fill func(b *featureBuilder)) {
		if !has {
			return
		}
		b := featureBuilder{builder{byteOrder: w.own.order}}
		fill(&b)
		all = append(all, featureData{f, b.buf})
	}
	add(FeatureBuildID, len(i.BuildIDs) > 0, func(b *featureBuilder) { b.buf = w.buildIDs() })
	for _, f := range []Feature{FeatureHostname, FeatureOSRelease, FeatureVersion, FeatureArch} {
		add(f, *i.text(f) != "", func(b *featureBuilder) { b.text(*i.text(f)) })
	}
	add(FeatureCPUs, i.CPUsAvailable > 0, func(b *featureBuilder) { b.u32(i.CPUsAvailable, i.CPUsOnline) })
	for _, f := range []Feature{FeatureCPUDesc, FeatureCPUID} {
		add(f, *i.text(f) != "", func(b *featureBuilder) { b.text(*i.text(f)) })
	}
	add(FeatureTotalMemory, i.TotalMemory > 0, func(b *featureBuilder) { b.u64(i.TotalMemory) })
	add(FeatureCmdline, len(i.Cmdline) > 0, func(b *featureBuilder) {
		b.u32(uint32(len(i.Cmdline)))
		for _, arg := range i.Cmdline {
			b.text(arg)
		}
	})
	named := func(e *Event) bool { return e.Name != "" }
	// Without names perf makes some of the attributes; empty ones it takes as they are.
	add(FeatureEventDesc, slices.ContainsFunc(w.events, named), func(b *featureBuilder) { b.events(w.events, w.opts.BigEndian) })
	add(FeaturePMUs, len(i.PMUs) > 0, func(b *featureBuilder) {
		b.u32(uint32(len(i.PMUs)))
		for _, p := range i.PMUs {
			b.u32(p.Type)
			b.text(p.Name)
		}
	})
	add(FeatureGroups, len(i.Groups) > 0, func(b *featureBuilder) {
		b.u32(uint32(len(i.Groups)))
		for _, g := range i.Groups {
			b.text(g.Name)
			b.u32(g.Leader, g.Members)
		}
	})
	add(FeatureSampleTime, i.LastSample > 0, func(b *featureBuilder) { b.u64(i.FirstSample, i.LastSample) })
	add(FeatureClockID, i.ClockResolution > 0, func(b *featureBuilder) { b.u64(i.ClockResolution) })
	add(FeatureCompressed, i.Compression != nil && w.opts.Compress, func(b *featureBuilder) {
		c := i.Compression
		b.u32(c.Version, c.Type, c.Level, c.Ratio, c.MmapLen)
	})
	add(FeatureClockData, i.Clock != nil, func(b *featureBuilder) {
		b.u32(1, i.Clock.ClockID)
		b.u64(i.Clock.Wall, i.Clock.Time)
	})
	return all
}

// buildIDs returns one record behind the other. An entry that cannot be one, with an ID or a
// name that is too long, is left out.
func (w *Writer) buildIDs() []byte {
	var data []byte
	for i := range w.Info.BuildIDs {
		// The error is of this record only.
		data, _ = w.own.Append(data, &w.Info.BuildIDs[i])
	}
	return data
}

type featureBuilder struct{ builder }

// text appends a string as do_write_string of perf does: its length, with the NUL and
// filled up to a multiple of 64, and the bytes.
func (b *featureBuilder) text(s string) {
	n := (len(s) + 1 + 63) &^ 63
	b.u32(uint32(n))
	b.fixed(s, n)
}

func (b *featureBuilder) events(events []*Event, big bool) {
	size := 0
	for _, e := range events {
		size = max(size, e.Attr.size())
	}
	b.u32(uint32(len(events)), uint32(size))
	for _, e := range events {
		b.attr(e.Attr, size, big)
		b.u32(uint32(len(e.IDs)))
		b.text(e.Name)
		b.u64(e.IDs...)
	}
}
