// Package profile holds stacks of frames whose files are known by identity.
//
// The model is pprof's (github.com/google/pprof/profile), so that every tool
// that reads pprof reads our files, and symbols can be added at any later time.
// What is ours are the conventions:
//
//   - Mapping.BuildID is the identity (buildid.ID.String), Mapping.File the path
//     to show. A mapping stands for one segment of one file, wherever and however
//     often it was mapped.
//   - Mapping.Start is the segment's virtual address, so that Location.Address is
//     a virtual address of the file and the same in every process. Where the
//     program headers are not known, addresses are file offsets. Either way
//     FileOffset finds the file offset.
//   - Location.Address is that of an instruction that was running: for the frame
//     of a caller the last byte of the call, not the return address.
//   - The kernel image is "[kernel]", in addresses as it was linked.
//   - The numeric label "timestamp" has the times at which a stack was seen: Times.
//   - A frame without identity has a mapping without BuildID whose File names the
//     reason, and the path if there is one: "[not-mapped]", "[file-gone] /bin/x".
package profile

import (
	"encoding/binary"
	"math"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/reason"
	"hallmark/symbol"
)

// Segment is a part of a file that the program headers place in memory.
type Segment struct {
	Offset addr.Offset // p_offset
	Virt   addr.Virt   // p_vaddr
	Size   uint64      // bytes in the file, p_filesz
}

// Binary is a file that code runs from.
type Binary struct {
	ID   buildid.ID // not zero
	Path string     // to show; nothing is opened
	// Segments are where the file's executable bytes belong. When they are not
	// known, addresses in the profile are file offsets.
	Segments []Segment
}

// Frame is one place in a stack.
type Frame struct {
	// Binary is the file that the code came from, nil when it has no identity
	// because of Reason.
	Binary *Binary
	Offset addr.Offset // in Binary, of the instruction
	Reason reason.Reason
	// Path is the file of a frame without Binary, if it is known to be from one.
	Path string
	// Addr is where a frame without Binary is: its absolute address, or its file
	// offset if it has a Path.
	Addr addr.Abs
	// Symbols are its functions, innermost first, as far as they are known yet.
	Symbols []symbol.Frame
}

// Labels say whose stack it was. Empty strings and zeros are left out.
type Labels struct {
	PID, TID int
	Process  string // name (comm) of the process
	Thread   string // name (comm) of the thread
	Cgroup   string // path
	// Container is the number that the container runtime gave to it.
	Container string
}

// A Builder puts stacks together to a profile. Make one with NewBuilder.
type Builder struct {
	out       *pprof.Profile
	mappings  map[mappingKey]*pprof.Mapping
	locations map[locationKey]*pprof.Location
	functions *functions
	samples   map[string]*pprof.Sample
	key       []byte
}

type mappingKey struct {
	binary buildid.ID
	start  uint64
	reason reason.Reason
	path   string
}

type locationKey struct {
	mapping *pprof.Mapping
	address uint64
	symbol  string // of generated code: the same address is another function in another process
}

// NewBuilder returns a Builder for a profile of time on CPUs, one sample of
// which was taken every period nanoseconds.
func NewBuilder(period int64) *Builder {
	out := &pprof.Profile{
		SampleType: []*pprof.ValueType{
			{Type: "samples", Unit: "count"},
			{Type: "cpu", Unit: "nanoseconds"},
		},
		PeriodType:        &pprof.ValueType{Type: "cpu", Unit: "nanoseconds"},
		Period:            period,
		DefaultSampleType: "cpu",
	}
	return &Builder{
		out:       out,
		mappings:  map[mappingKey]*pprof.Mapping{},
		locations: map[locationKey]*pprof.Location{},
		functions: functionsOf(out),
		samples:   map[string]*pprof.Sample{},
	}
}

// Add counts a stack, leaf first, that was seen count times and stands for
// nanos nanoseconds. It returns the sample that counts it.
func (b *Builder) Add(stack []Frame, labels *Labels, count, nanos int64) *pprof.Sample {
	b.key = b.key[:0]
	locations := make([]*pprof.Location, len(stack))
	for i := range stack {
		locations[i] = b.location(&stack[i])
		b.key = binary.AppendUvarint(b.key, locations[i].ID)
	}
	b.key = append(b.key, 0)
	b.key = labels.appendKey(b.key)
	s := b.samples[string(b.key)]
	if s == nil {
		s = &pprof.Sample{Location: locations, Value: []int64{0, 0}}
		labels.apply(s)
		b.samples[string(b.key)] = s
		b.out.Sample = append(b.out.Sample, s)
	}
	s.Value[0] += count
	s.Value[1] += nanos
	return s
}

// Profile returns the profile. The Builder is not to be used afterwards.
func (b *Builder) Profile() *pprof.Profile { return b.out }

func (b *Builder) location(f *Frame) *pprof.Location {
	m, address := b.place(f)
	key := locationKey{mapping: m, address: address}
	if f.Binary == nil && len(f.Symbols) > 0 {
		key.symbol = f.Symbols[0].Linkage
	}
	if l := b.locations[key]; l != nil {
		return l
	}
	l := &pprof.Location{ID: uint64(len(b.out.Location) + 1), Mapping: m, Address: address}
	if len(f.Symbols) > 0 {
		l.Line = b.functions.lines(f.Symbols)
	}
	noteSymbols(m, f.Symbols)
	b.locations[key] = l
	b.out.Location = append(b.out.Location, l)
	return l
}

// place returns the mapping of a frame and its address in it.
func (b *Builder) place(f *Frame) (*pprof.Mapping, uint64) {
	if f.Binary == nil {
		key := mappingKey{reason: f.Reason, path: f.Path}
		return b.mapping(key, pprof.Mapping{Limit: math.MaxUint64, File: PseudoFile(f.Reason, f.Path)}), uint64(f.Addr)
	}
	m := pprof.Mapping{File: f.Binary.Path, BuildID: f.Binary.ID.String()}
	for _, s := range f.Binary.Segments {
		if f.Offset >= s.Offset && uint64(f.Offset-s.Offset) < s.Size {
			m.Start, m.Limit, m.Offset = s.pages()
			break
		}
	}
	key := mappingKey{binary: f.Binary.ID, start: m.Start}
	if m.Limit == 0 { // no segment is known to hold it
		m.Limit = math.MaxInt64
		key.start = math.MaxUint64
	}
	return b.mapping(key, m), uint64(f.Offset) - m.Offset + m.Start
}

// pages returns where the whole pages of the segment begin and end, as the
// kernel maps them.
func (s *Segment) pages() (start, limit, offset uint64) {
	const page = 4096
	skew := uint64(s.Virt) % page
	start = uint64(s.Virt) - skew
	limit = (uint64(s.Virt) + s.Size + page - 1) &^ (page - 1)
	return start, limit, uint64(s.Offset) - skew
}

func (b *Builder) mapping(key mappingKey, m pprof.Mapping) *pprof.Mapping {
	if known := b.mappings[key]; known != nil {
		return known
	}
	m.ID = uint64(len(b.out.Mapping) + 1)
	b.mappings[key] = &m
	b.out.Mapping = append(b.out.Mapping, &m)
	return &m
}

func (l *Labels) appendKey(key []byte) []byte {
	key = binary.AppendVarint(key, int64(l.PID))
	key = binary.AppendVarint(key, int64(l.TID))
	for _, s := range []string{l.Process, l.Thread, l.Cgroup, l.Container} {
		key = append(key, s...)
		key = append(key, 0)
	}
	return key
}

func (l *Labels) apply(s *pprof.Sample) {
	for name, value := range map[string]string{
		"process": l.Process, "thread": l.Thread, "cgroup": l.Cgroup, "container": l.Container,
	} {
		if value != "" {
			s.Label = setLabel(s.Label, name, value)
		}
	}
	for name, value := range map[string]int{"pid": l.PID, "tid": l.TID} {
		if value != 0 {
			s.NumLabel = setLabel(s.NumLabel, name, int64(value))
		}
	}
}

func setLabel[T any](labels map[string][]T, name string, value T) map[string][]T {
	if labels == nil {
		labels = map[string][]T{}
	}
	labels[name] = []T{value}
	return labels
}

// noteSymbols sets what pprof wants to know of a mapping whose frames got symbols.
func noteSymbols(m *pprof.Mapping, frames []symbol.Frame) {
	if len(frames) == 0 {
		return
	}
	m.HasFunctions = true
	m.HasInlineFrames = m.HasInlineFrames || len(frames) > 1
	for _, f := range frames {
		m.HasFilenames = m.HasFilenames || f.File != ""
		m.HasLineNumbers = m.HasLineNumbers || f.Line != 0
	}
}
