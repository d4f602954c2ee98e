package otlp

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"

	pprof "github.com/google/pprof/profile"

	"hallmark/buildid"
	"hallmark/profile"
)

// FromProfile returns a profile as a message: a resource for each process, and a profile for each type
// of values in it. The times of samples (profile.Times) are with the values that are counts. A process
// has no profile of a type of which it has no value.
func FromProfile(p *pprof.Profile) (*Message, error) {
	e := newEncoder(p)
	resources := map[owner]*otlp.ResourceProfiles{}
	profiles := map[profileKey]*otlp.Profile{}
	in := &collector.ExportProfilesServiceRequest{Dictionary: e.d.ProfilesDictionary}
	for _, s := range p.Sample {
		o := ownerOf(s)
		r := resources[o]
		if r == nil {
			r = &otlp.ResourceProfiles{Resource: o.resource(), ScopeProfiles: []*otlp.ScopeProfiles{e.scope()}}
			resources[o] = r
			in.ResourceProfiles = append(in.ResourceProfiles, r)
		}
		stack, attributes := e.stack(s.Location), e.labels(s)
		isAllZero := !slices.ContainsFunc(s.Value, func(v int64) bool { return v != 0 })
		for column, v := range s.Value {
			if v == 0 && (!isAllZero || column > 0) {
				continue
			}
			k := profileKey{o, column}
			out := profiles[k]
			if out == nil {
				out = e.profile(column)
				profiles[k] = out
				r.ScopeProfiles[0].Profiles = append(r.ScopeProfiles[0].Profiles, out)
			}
			out.Samples = append(out.Samples, e.samples(s, column, stack, attributes)...)
		}
	}
	if len(in.ResourceProfiles) == 0 {
		in.ResourceProfiles = []*otlp.ResourceProfiles{{ScopeProfiles: []*otlp.ScopeProfiles{e.scope()}}}
	}
	first := in.ResourceProfiles[0].ScopeProfiles[0]
	for column := range p.SampleType { // types without a value
		if !e.used[column] {
			first.Profiles = append(first.Profiles, e.profile(column))
		}
	}
	for _, r := range in.ResourceProfiles {
		e.order(r.ScopeProfiles[0])
	}
	if e.tooMany {
		return nil, fmt.Errorf("%w: a table of OTLP has at most %d entries", profile.ErrTooLarge, math.MaxInt32)
	}
	return checked(in)
}

type profileKey struct {
	owner  owner
	column int
}

// owner is what samples of one resource have in common.
type owner struct {
	pid                        int64
	process, cgroup, container string
}

func ownerOf(s *pprof.Sample) (o owner) {
	first := func(key string) string {
		if all := s.Label[key]; len(all) > 0 {
			return all[0]
		}
		return ""
	}
	if all := s.NumLabel["pid"]; len(all) > 0 {
		o.pid = all[0]
	}
	o.process, o.cgroup, o.container = first("process"), first("cgroup"), first("container")
	return o
}

func (o owner) resource() *resource.Resource {
	r := new(resource.Resource)
	if o.pid != 0 {
		r.Attributes = append(r.Attributes, keyValue(pidKey, intValue(o.pid)))
	}
	for _, a := range []struct{ key, value string }{{processKey, o.process}, {cgroupKey, o.cgroup}, {containerKey, o.container}} {
		if a.value != "" {
			r.Attributes = append(r.Attributes, keyValue(a.key, textValue(a.value)))
		}
	}
	return r
}

// isOfOwner reports whether a label is an attribute of the resource.
func isOfOwner(key string) bool { return key == "process" || key == "cgroup" || key == "container" }

// encoder makes a message of a profile.
type encoder struct {
	p       *pprof.Profile
	d       dictionary
	columns map[*otlp.Profile]int
	used    map[int]bool // columns of which there is a profile
	tooMany bool

	strings    map[string]int32
	attributes map[string]int32
	mappings   map[*pprof.Mapping]int32
	locations  map[*pprof.Location]int32
	functions  map[*pprof.Function]int32
	stacks     map[string]int32
	key        []byte

	contents map[*pprof.Mapping]buildid.Content
	about    []int32 // attributes of each profile
	counts   int     // the column of counts, -1 for none
}

func newEncoder(p *pprof.Profile) *encoder {
	e := &encoder{
		p: p, columns: map[*otlp.Profile]int{}, used: map[int]bool{},
		d: dictionary{&otlp.ProfilesDictionary{
			MappingTable: []*otlp.Mapping{{}}, LocationTable: []*otlp.Location{{}}, FunctionTable: []*otlp.Function{{}}, StringTable: []string{""},
			AttributeTable: []*otlp.KeyValueAndUnit{{}}, StackTable: []*otlp.Stack{{}},
			// Some decoders want identifiers of their full length.
			LinkTable: []*otlp.Link{{TraceId: make([]byte, 16), SpanId: make([]byte, 8)}},
		}},
		strings: map[string]int32{"": 0}, attributes: map[string]int32{}, mappings: map[*pprof.Mapping]int32{}, locations: map[*pprof.Location]int32{},
		functions: map[*pprof.Function]int32{}, stacks: map[string]int32{"": 0},
		contents: profile.Contents(p),
		counts:   slices.IndexFunc(p.SampleType, func(t *pprof.ValueType) bool { return t.Unit == "count" }),
	}
	var comments []*common.AnyValue
	for _, c := range p.Comments {
		comments = append(comments, textValue(c))
	}
	if len(comments) > 0 {
		e.about = append(e.about, e.attribute(commentKey, arrayValue(comments), ""))
	}
	for _, a := range []struct{ key, value string }{{docURLKey, p.DocURL}, {dropFramesKey, p.DropFrames}, {keepFramesKey, p.KeepFrames}} {
		if a.value != "" {
			e.about = append(e.about, e.attribute(a.key, textValue(a.value), ""))
		}
	}
	return e
}

// add appends to a table and returns the index of what was appended.
func add[T any](e *encoder, table *[]T, v T) int32 {
	if len(*table) == math.MaxInt32 {
		e.tooMany = true
		return 0
	}
	*table = append(*table, v)
	return int32(len(*table) - 1)
}

func (e *encoder) string(s string) int32 {
	i, ok := e.strings[s]
	if !ok {
		clean := valid(s)
		if i, ok = e.strings[clean]; !ok {
			i = add(e, &e.d.StringTable, clean)
			e.strings[clean] = i
		}
		e.strings[s] = i
	}
	return i
}

// attribute returns the index of an attribute, which is there once.
func (e *encoder) attribute(key string, v *common.AnyValue, unit string) int32 {
	a := &otlp.KeyValueAndUnit{KeyStrindex: e.string(key), Value: v, UnitStrindex: e.string(unit)}
	k := fmt.Sprintf("%d %d %s", a.KeyStrindex, a.UnitStrindex, keyOf(v))
	i, ok := e.attributes[k]
	if !ok {
		i = add(e, &e.d.AttributeTable, a)
		e.attributes[k] = i
	}
	return i
}

// keyOf returns a text that another value does not have.
func keyOf(v *common.AnyValue) string {
	switch v := v.GetValue().(type) {
	case *common.AnyValue_StringValue:
		return strconv.Quote(v.StringValue)
	case *common.AnyValue_IntValue:
		return strconv.FormatInt(v.IntValue, 10)
	case *common.AnyValue_BoolValue:
		return strconv.FormatBool(v.BoolValue)
	case *common.AnyValue_ArrayValue:
		var all strings.Builder
		for _, one := range v.ArrayValue.GetValues() {
			all.WriteString(keyOf(one))
			all.WriteByte(',')
		}
		return "[" + all.String()
	}
	return ""
}

func (e *encoder) scope() *otlp.ScopeProfiles {
	s := &otlp.ScopeProfiles{Scope: &common.InstrumentationScope{Name: "hallmark"}}
	if e.p.DefaultSampleType != "" {
		s.Scope.Attributes = append(s.Scope.Attributes, keyValue(defaultKey, textValue(e.p.DefaultSampleType)))
	}
	return s
}

func (e *encoder) valueType(t *pprof.ValueType) *otlp.ValueType {
	if t == nil {
		return nil
	}
	return &otlp.ValueType{TypeStrindex: e.string(t.Type), UnitStrindex: e.string(t.Unit)}
}

// order has the profiles in the order of the types, and notes which of pprof's types they are.
func (e *encoder) order(s *otlp.ScopeProfiles) {
	slices.SortStableFunc(s.Profiles, func(a, b *otlp.Profile) int { return cmp.Compare(e.columns[a], e.columns[b]) })
	var order []*common.AnyValue
	for _, p := range s.Profiles {
		order = append(order, intValue(int64(e.columns[p])))
	}
	s.Scope.Attributes = append(s.Scope.Attributes, keyValue(orderKey, arrayValue(order)))
}

// profile returns a profile without samples for a type of values.
func (e *encoder) profile(column int) *otlp.Profile {
	p := &otlp.Profile{
		SampleType: e.valueType(e.p.SampleType[column]), PeriodType: e.valueType(e.p.PeriodType), Period: e.p.Period,
		TimeUnixNano: uint64(max(0, e.p.TimeNanos)), DurationNano: uint64(max(0, e.p.DurationNanos)), AttributeIndices: e.about,
	}
	e.columns[p], e.used[column] = column, true
	return p
}

// samples returns the samples of one type of values that a sample is. Counts have the times at which
// they were counted; those of which there is no time are a sample of their own.
func (e *encoder) samples(s *pprof.Sample, column int, stack int32, attributes []int32) []*otlp.Sample {
	v, times := s.Value[column], profile.Times(s)
	if column != e.counts || len(times) == 0 || int64(len(times)) > v || slices.Min(times) < 0 {
		return []*otlp.Sample{{StackIndex: stack, AttributeIndices: attributes, Values: []int64{v}}}
	}
	timed := &otlp.Sample{StackIndex: stack, AttributeIndices: attributes}
	for _, t := range times {
		timed.TimestampsUnixNano = append(timed.TimestampsUnixNano, uint64(t))
	}
	if rest := v - int64(len(times)); rest > 0 {
		return []*otlp.Sample{timed, {StackIndex: stack, AttributeIndices: attributes, Values: []int64{rest}}}
	}
	return []*otlp.Sample{timed}
}

func (e *encoder) stack(locations []*pprof.Location) int32 {
	e.key = e.key[:0]
	for _, l := range locations {
		e.key = binary.AppendUvarint(e.key, uint64(e.location(l)))
	}
	i, ok := e.stacks[string(e.key)]
	if !ok {
		s := &otlp.Stack{LocationIndices: make([]int32, 0, len(locations))}
		for _, l := range locations {
			s.LocationIndices = append(s.LocationIndices, e.location(l))
		}
		i = add(e, &e.d.StackTable, s)
		e.stacks[string(e.key)] = i
	}
	return i
}

func (e *encoder) location(l *pprof.Location) int32 {
	if i, ok := e.locations[l]; ok {
		return i
	}
	out := &otlp.Location{Address: l.Address, MappingIndex: e.mapping(l.Mapping)}
	switch c := (profile.Call{Location: l}); {
	case c.Kernel():
		out.AttributeIndices = append(out.AttributeIndices, e.attribute(frameTypeKey, textValue(kernelFrame), ""))
	case l.Mapping != nil && l.Mapping.BuildID != "":
		out.AttributeIndices = append(out.AttributeIndices, e.attribute(frameTypeKey, textValue(nativeFrame), ""))
	}
	if l.IsFolded {
		out.AttributeIndices = append(out.AttributeIndices, e.attribute(foldedKey, &common.AnyValue{Value: &common.AnyValue_BoolValue{BoolValue: true}}, ""))
	}
	for _, line := range l.Line {
		out.Lines = append(out.Lines, &otlp.Line{FunctionIndex: e.function(line.Function), Line: line.Line, Column: line.Column})
	}
	i := add(e, &e.d.LocationTable, out)
	e.locations[l] = i
	return i
}

func (e *encoder) mapping(m *pprof.Mapping) int32 {
	if m == nil {
		return 0
	}
	if i, ok := e.mappings[m]; ok {
		return i
	}
	out := &otlp.Mapping{MemoryStart: m.Start, MemoryLimit: m.Limit, FileOffset: m.Offset, FilenameStrindex: e.string(m.File)}
	if id, ok := profile.Identity(m); ok {
		if m.Limit == 0 { // not known: the file offset of an address is the same with any
			out.MemoryLimit = math.MaxInt64
		}
		key, text := identityKey, id.String()
		switch id.Kind() {
		case buildid.GNU:
			if !profile.IsClaimed(m) { // others would name its code by it
				key = gnuKey
			}
		case buildid.Go:
			key, text = goKey, string(id.Bytes())
		case buildid.HTL:
			key, text = htlKey, fmt.Sprintf("%x", id.Bytes())
		}
		out.AttributeIndices = append(out.AttributeIndices, e.attribute(key, textValue(text), ""))
		if c := e.contents[m]; !c.IsZero() && id.Kind() != buildid.ByContent {
			out.AttributeIndices = append(out.AttributeIndices, e.attribute(contentKey, textValue(c.String()), ""))
		}
	}
	i := add(e, &e.d.MappingTable, out)
	e.mappings[m] = i
	return i
}

func (e *encoder) function(f *pprof.Function) int32 {
	if f == nil {
		return 0
	}
	i, ok := e.functions[f]
	if !ok {
		i = add(e, &e.d.FunctionTable, &otlp.Function{
			NameStrindex: e.string(f.Name), SystemNameStrindex: e.string(f.SystemName), FilenameStrindex: e.string(f.Filename), StartLine: f.StartLine,
		})
		e.functions[f] = i
	}
	return i
}

// attributeNames are what OpenTelemetry calls what our labels say of samples.
var attributeNames = map[string]string{"thread": threadKey, "tid": tidKey}

// labels returns the attributes of a sample, each key once: a label of texts comes before one of numbers.
func (e *encoder) labels(s *pprof.Sample) (indices []int32) {
	used := map[string]bool{}
	add := func(key string, v *common.AnyValue, unit string) {
		if own := attributeNames[key]; own != "" {
			key = own
		}
		if isOfFile(key) { // no sample has it, and readers take it for the mark of an earlier protocol
			key = "sample." + key
		}
		if key = valid(key); !used[key] {
			used[key] = true
			indices = append(indices, e.attribute(key, v, unit))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Label)) {
		if values := s.Label[key]; len(values) > 1 || len(values) == 1 && !isOfOwner(key) {
			add(key, listOf(values, textValue), "")
		}
	}
	times := profile.Times(s)
	for _, key := range slices.Sorted(maps.Keys(s.NumLabel)) {
		values, units := s.NumLabel[key], s.NumUnit[key]
		if len(values) == 0 || len(values) == 1 && key == "pid" || key == "timestamp" && times != nil {
			continue
		}
		unit := ""
		if len(units) > 0 {
			unit = units[0]
		}
		add(key, listOf(values, intValue), unit)
	}
	return indices
}

// listOf returns one value as itself, and several as a list.
func listOf[T any](values []T, value func(T) *common.AnyValue) *common.AnyValue {
	if len(values) == 1 {
		return value(values[0])
	}
	var all []*common.AnyValue
	for _, v := range values {
		all = append(all, value(v))
	}
	return arrayValue(all)
}
