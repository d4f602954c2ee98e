package otlp

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"

	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"

	pprof "github.com/google/pprof/profile"

	"hallmark/profile"
	"hallmark/reason"
)

// Profile returns all profiles of the message as one, which has a value for each type of values. Samples
// of one stack, with the same attributes, are one sample. The attributes of resources and samples become
// labels; those of a resource only up to 64. The error is profile.ErrTooLarge, wrapped.
func (m *Message) Profile(l profile.Limits) (*pprof.Profile, error) {
	d := dictionary{m.in.GetDictionary()}
	c := &converter{
		d: d, left: l.Memory,
		out:       &pprof.Profile{},
		mappings:  map[mappingKey]*pprof.Mapping{},
		locations: make([]*pprof.Location, len(d.GetLocationTable())),
		functions: make([]*pprof.Function, len(d.GetFunctionTable())),
		stacks:    make([][]*pprof.Location, max(1, len(d.GetStackTable()))),
		types:     map[valueType]int{},
		samples:   map[sampleKey]*sample{},
		labels:    map[string]*labels{},
		comments:  map[string]bool{},
	}
	for i, r := range m.in.GetResourceProfiles() {
		resource := d.firstAttributes(r.GetResource().GetAttributes())
		for _, s := range r.GetScopeProfiles() {
			order := c.scope(s.GetScope())
			for j, p := range s.GetProfiles() {
				c.original = math.MaxInt64
				if j < len(order) {
					c.original = order[j]
				}
				if err := c.profile(i, resource, p); err != nil {
					return nil, err
				}
			}
		}
	}
	if err := c.finish(); err != nil {
		return nil, err
	}
	if err := profile.Check(c.out, l); err != nil {
		return nil, err
	}
	if err := c.out.CheckValid(); err != nil {
		return nil, formatf("%w", err)
	}
	return c.out, nil
}

// maxResource is how many attributes of a resource become labels: each sample has all of them.
const maxResource = 64

func (d dictionary) firstAttributes(all []*common.KeyValue) (first []attribute) {
	for a := range d.direct(all) {
		if len(first) == maxResource {
			break
		}
		first = append(first, a)
	}
	return first
}

// converter makes a profile of a message.
type converter struct {
	d    dictionary
	left int64 // bytes of memory that the profile may still take

	out       *pprof.Profile
	mappings  map[mappingKey]*pprof.Mapping
	locations []*pprof.Location // by index, nil until they are needed
	functions []*pprof.Function
	stacks    [][]*pprof.Location
	types     map[valueType]int
	samples   map[sampleKey]*sample
	order     []*sample
	labels    map[string]*labels
	comments  map[string]bool
	key       []byte
	end       uint64 // of the profiles so far, nanoseconds since 1970
	original  int64  // which of pprof's types the profile is, as far as it says
	originals []int64
}

type (
	valueType struct{ kind, unit string }

	// mappingKey is a mapping of the message, in which the frames of the kernel are apart, and those
	// that have no address in the file.
	mappingKey struct {
		index    int32
		isKernel bool
		why      reason.Reason
	}

	sampleKey struct {
		stack  int32
		labels *labels
	}

	// labels are those of a resource and a sample together.
	labels struct {
		text    map[string][]string
		numbers map[string][]int64
		units   map[string][]string
	}

	sample struct {
		stack  []*pprof.Location
		labels *labels
		values []int64
		times  []int64
		timed  int // the type whose times these are
	}
)

// Bytes of memory of what the profile has.
const (
	sampleCost   = 400
	labelCost    = 100
	locationCost = 300
	frameCost    = 8
	valueCost    = 3 * 8
	timeCost     = 3 * 8
)

func (c *converter) take(n int64) error {
	if c.left -= n; c.left < 0 {
		return fmt.Errorf("%w: as a profile the message takes too much memory", profile.ErrTooLarge)
	}
	return nil
}

// scope takes up what a scope says of pprof, and returns which types of pprof's its profiles are.
func (c *converter) scope(s *common.InstrumentationScope) (order []int64) {
	for a := range c.d.direct(s.GetAttributes()) {
		switch a.key {
		case defaultKey:
			if text, ok := c.d.string(a.value); ok && c.out.DefaultSampleType == "" {
				c.out.DefaultSampleType = text
			}
		case orderKey:
			_, order = c.d.label(a.value)
		}
	}
	return order
}

// profile adds the samples of a profile, and what it says of all of them.
func (c *converter) profile(number int, resource []attribute, p *otlp.Profile) error {
	c.about(p)
	t := valueType{c.d.text(p.GetSampleType().GetTypeStrindex()), c.d.text(p.GetSampleType().GetUnitStrindex())}
	column, ok := c.types[t]
	if !ok {
		if len(p.GetSamples()) == 0 && t == (valueType{}) {
			return nil
		}
		column = len(c.types)
		c.types[t] = column
		c.originals = append(c.originals, c.original)
		c.out.SampleType = append(c.out.SampleType, &pprof.ValueType{Type: t.kind, Unit: t.unit})
	}
	for _, in := range p.GetSamples() {
		s, err := c.sample(number, resource, in)
		if err != nil {
			return err
		}
		if need := column + 1 - len(s.values); need > 0 {
			if err := c.take(int64(need) * valueCost); err != nil {
				return err
			}
			s.values = append(s.values, make([]int64, need)...)
		}
		for _, v := range in.GetValues() {
			s.values[column] += v
		}
		times := in.GetTimestampsUnixNano()
		if len(in.GetValues()) == 0 {
			s.values[column] += int64(len(times))
		}
		// Several types of values have the same times.
		if len(times) == 0 || len(s.times) > 0 && s.timed != column {
			continue
		}
		if err := c.take(int64(len(times)) * timeCost); err != nil {
			return err
		}
		s.timed = column
		for _, at := range times {
			s.times = append(s.times, int64(min(at, math.MaxInt64)))
		}
	}
	return nil
}

// about takes up what a profile says of all its samples.
func (c *converter) about(p *otlp.Profile) {
	if t := p.GetTimeUnixNano(); t != 0 {
		if c.out.TimeNanos == 0 || t < uint64(c.out.TimeNanos) {
			c.out.TimeNanos = int64(min(t, math.MaxInt64))
		}
		c.end = max(c.end, t+min(p.GetDurationNano(), math.MaxUint64-t))
	} else {
		c.out.DurationNanos = max(c.out.DurationNanos, int64(min(p.GetDurationNano(), math.MaxInt64)))
	}
	if t := p.GetPeriodType(); t != nil && c.out.PeriodType == nil {
		c.out.PeriodType = &pprof.ValueType{Type: c.d.text(t.GetTypeStrindex()), Unit: c.d.text(t.GetUnitStrindex())}
		c.out.Period = p.GetPeriod()
	}
	for a := range c.d.attributes(p.GetAttributeIndices()) {
		texts, _ := c.d.label(a.value)
		text := strings.Join(texts, "")
		switch a.key {
		case commentKey:
			for _, text := range texts {
				if !c.comments[text] {
					c.comments[text] = true
					c.out.Comments = append(c.out.Comments, text)
				}
			}
		case docURLKey:
			c.out.DocURL = text
		case dropFramesKey:
			c.out.DropFrames = text
		case keepFramesKey:
			c.out.KeepFrames = text
		}
	}
}

// sample returns the sample that has the stack, the attributes and the resource of another one.
func (c *converter) sample(number int, resource []attribute, in *otlp.Sample) (*sample, error) {
	l, err := c.labelsOf(number, resource, in)
	if err != nil {
		return nil, err
	}
	k := sampleKey{in.GetStackIndex(), l}
	s := c.samples[k]
	if s != nil {
		return s, nil
	}
	stack, err := c.stack(in.GetStackIndex())
	if err != nil {
		return nil, err
	}
	s = &sample{stack: stack, labels: l}
	c.samples[k] = s
	c.order = append(c.order, s)
	return s, c.take(sampleCost)
}

// labelsOf returns the labels of a sample. Those of the sample win over those of its resource.
func (c *converter) labelsOf(number int, resource []attribute, in *otlp.Sample) (*labels, error) {
	indices := slices.Clone(in.GetAttributeIndices())
	slices.Sort(indices)
	c.key = binary.AppendUvarint(c.key[:0], uint64(number))
	c.key = binary.AppendUvarint(c.key, uint64(in.GetLinkIndex()))
	for _, i := range indices {
		c.key = binary.AppendUvarint(c.key, uint64(i))
	}
	l := c.labels[string(c.key)]
	if l != nil {
		return l, nil
	}
	l = &labels{text: map[string][]string{}, numbers: map[string][]int64{}, units: map[string][]string{}}
	c.labels[string(c.key)] = l
	for _, a := range resource {
		if err := c.addLabel(l, a); err != nil {
			return nil, err
		}
	}
	for a := range c.d.attributes(indices) {
		if err := c.addLabel(l, a); err != nil {
			return nil, err
		}
	}
	if link := at(c.d.GetLinkTable(), in.GetLinkIndex()); link != nil && in.GetLinkIndex() != 0 {
		l.text["trace_id"], l.text["span_id"] = []string{hex.EncodeToString(link.GetTraceId())}, []string{hex.EncodeToString(link.GetSpanId())}
	}
	return l, c.take(sampleCost + int64(len(c.key)))
}

// labelNames are what our profiles call what attributes say.
var labelNames = map[string]string{
	pidKey: "pid", tidKey: "tid", processKey: "process", threadKey: "thread", cgroupKey: "cgroup", containerKey: "container",
}

func (c *converter) addLabel(l *labels, a attribute) error {
	texts, numbers := c.d.label(a.value)
	key := a.key
	if own := labelNames[key]; own != "" {
		key = own
	}
	if len(texts) > 0 {
		l.text[key] = texts
	}
	if len(numbers) > 0 {
		if key == "timestamp" { // not those of package profile
			key = "attribute timestamp"
		}
		l.numbers[key] = numbers
		delete(l.units, key)
		if a.unit != "" {
			l.units[key] = slices.Repeat([]string{a.unit}, len(numbers))
		}
	}
	return c.take(labelCost + valueCost*int64(len(texts)+len(numbers)))
}

func (c *converter) stack(i int32) ([]*pprof.Location, error) {
	if c.stacks[i] != nil {
		return c.stacks[i], nil
	}
	indices := at(c.d.GetStackTable(), i).GetLocationIndices()
	if err := c.take(frameCost * int64(len(indices))); err != nil {
		return nil, err
	}
	stack := make([]*pprof.Location, 0, len(indices))
	for _, l := range indices {
		if l == 0 {
			continue
		}
		location, err := c.location(l)
		if err != nil {
			return nil, err
		}
		stack = append(stack, location)
	}
	c.stacks[i] = stack
	return stack, nil
}

func (c *converter) location(i int32) (*pprof.Location, error) {
	if c.locations[i] != nil {
		return c.locations[i], nil
	}
	in := c.d.LocationTable[i]
	if err := c.take(locationCost + int64(len(in.GetLines()))*locationCost); err != nil {
		return nil, err
	}
	l := &pprof.Location{ID: uint64(len(c.out.Location) + 1), Address: in.GetAddress()}
	for a := range c.d.attributes(in.GetAttributeIndices()) {
		if a.key == foldedKey {
			l.IsFolded = a.value.GetBoolValue()
		}
	}
	if in.GetMappingIndex() != 0 {
		l.Mapping = c.mapping(in)
	}
	for _, line := range in.GetLines() {
		l.Line = append(l.Line, pprof.Line{Function: c.function(line.GetFunctionIndex()), Line: line.GetLine(), Column: line.GetColumn()})
	}
	noteLines(l)
	c.locations[i] = l
	c.out.Location = append(c.out.Location, l)
	return l, nil
}

// noteLines sets what pprof wants to know of a mapping with functions.
func noteLines(l *pprof.Location) {
	m := l.Mapping
	if m == nil {
		return
	}
	m.HasInlineFrames = m.HasInlineFrames || len(l.Line) > 1
	for _, line := range l.Line {
		m.HasFunctions = m.HasFunctions || line.Function != nil
		m.HasFilenames = m.HasFilenames || line.Function != nil && line.Function.Filename != ""
		m.HasLineNumbers = m.HasLineNumbers || line.Line != 0
	}
}

// isWithin reports whether an address is in the range of its mapping, so that it has a file offset.
func isWithin(m *otlp.Mapping, address uint64) bool {
	return address >= m.GetMemoryStart() && address < m.GetMemoryLimit()
}

func (c *converter) mapping(l *otlp.Location) *pprof.Mapping {
	in, kind := c.d.MappingTable[l.GetMappingIndex()], c.d.frameType(l)
	k := mappingKey{index: l.GetMappingIndex(), isKernel: kind == kernelFrame}
	f := c.d.file(in)
	switch {
	case f.id.IsZero():
	case !isNative(kind):
		k.why = reason.Anonymous
	case !isWithin(in, l.GetAddress()): // a file offset would be a guess, and its function another one
		k.why = reason.NotMapped
	}
	if m := c.mappings[k]; m != nil {
		return m
	}
	m := &pprof.Mapping{
		ID: uint64(len(c.out.Mapping) + 1), Start: in.GetMemoryStart(), Limit: in.GetMemoryLimit(), Offset: in.GetFileOffset(),
		File: c.d.text(in.GetFilenameStrindex()), BuildID: f.id.String(),
	}
	if k.isKernel && !strings.HasPrefix(m.File, "[") {
		m.File = "[" + m.File + "]"
		if m.File == "[vmlinux]" || m.File == "[]" {
			m.File = "[kernel]"
		}
	}
	if k.why != reason.None {
		m.Start, m.Limit, m.Offset, m.BuildID, m.File = 0, math.MaxUint64, 0, "", profile.PseudoFile(k.why, m.File)
	}
	c.mappings[k] = m
	c.out.Mapping = append(c.out.Mapping, m)
	return m
}

func (c *converter) function(i int32) *pprof.Function {
	if i == 0 || int(i) >= len(c.functions) {
		return nil
	}
	if c.functions[i] == nil {
		in := c.d.FunctionTable[i]
		c.functions[i] = &pprof.Function{
			ID: uint64(len(c.out.Function) + 1), Name: c.d.text(in.GetNameStrindex()), SystemName: c.d.text(in.GetSystemNameStrindex()),
			Filename: c.d.text(in.GetFilenameStrindex()), StartLine: in.GetStartLine(),
		}
		c.out.Function = append(c.out.Function, c.functions[i])
	}
	return c.functions[i]
}

// finish puts the samples into the profile, with a value for each type.
func (c *converter) finish() error {
	if c.end > uint64(c.out.TimeNanos) && c.out.TimeNanos != 0 {
		c.out.DurationNanos = int64(min(c.end-uint64(c.out.TimeNanos), math.MaxInt64))
	}
	if len(c.types) == 0 {
		c.out.SampleType = []*pprof.ValueType{{Type: "samples", Unit: "count"}}
		return nil
	}
	columns := make([]int, len(c.types))
	for i := range columns {
		columns[i] = i
	}
	slices.SortStableFunc(columns, func(a, b int) int { return cmp.Compare(c.originals[a], c.originals[b]) })
	types := slices.Clone(c.out.SampleType)
	for i, column := range columns {
		c.out.SampleType[i] = types[column]
	}
	for _, s := range c.order {
		if err := c.take(int64(len(c.types)) * valueCost); err != nil {
			return err
		}
		out := &pprof.Sample{Location: s.stack, Value: make([]int64, len(columns))}
		for i, column := range columns {
			if column < len(s.values) {
				out.Value[i] = s.values[column]
			}
		}
		out.Label, out.NumLabel, out.NumUnit = s.labels.text, s.labels.numbers, s.labels.units
		profile.AddTimes(out, s.times)
		c.out.Sample = append(c.out.Sample, out)
	}
	return nil
}
