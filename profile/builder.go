// Package profile holds stacks of frames whose files are known by identity.
//
// The model is pprof's (github.com/google/pprof/profile), so that every tool
// that reads pprof reads our files, and symbols can be added at any later time.
// What is ours are the conventions:
//
//   - Mapping.BuildID is the identity (buildid.ID.String), Mapping.File the path
//     to show. A mapping stands for one segment of one file, wherever and however
//     often it was mapped. Where files of different content claim one build ID, all but
//     one of them have their content for an identity: see Claims.
//   - Mapping.Start is the segment's virtual address, so that Location.Address is
//     a virtual address of the file and the same in every process. Where the
//     program headers are not known, addresses are file offsets. Either way
//     FileOffset finds the file offset.
//   - Location.Address is that of an instruction that was running: for the frame
//     of a caller the last byte of the call, not the return address.
//   - The kernel image is "[kernel]", in addresses as it was linked.
//   - The label "stack" says how the user's part of a stack ended: "complete", or the
//     code of the reason why frames are missing (StackEnd). The label "unwound" has the
//     ways in which its frames were found: "cfi" by call frame information, "fp" by
//     frame pointers, "signal" over a signal's frame, "regs" where there is one frame.
//   - The numeric label "timestamp" has the times at which a stack was seen: Times.
//   - The identity of a mapping whose Limit is from 1<<62 on is a claim that nobody has proven: see
//     Claimants.
//   - A frame without identity has a mapping without BuildID whose File names the
//     reason, and the path if there is one: "[not-mapped]", "[file-gone] /bin/x". One
//     reason is "content-unknown": another file keeps the build ID, and the content of
//     this one is unknown.
package profile

import (
	"math"
	"slices"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/intern"
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
	Path string     // to show, and a place to look; no proof that the file is there
	// Content is that of the file which has the identity, zero if its bytes were never had.
	// Two contents under one identity are two files.
	Content buildid.Content
	// Claim is the build ID that the file claims, where ID is its content because another
	// file claims the same one; else zero.
	Claim buildid.ID
	// Rival says that another file keeps the identity that this one claims, or none does: what
	// has the identity alone need not belong to this one.
	Rival bool
	// Apart says that it is not the same as others of its identity and content under other
	// paths: nobody knows which of them to believe what its functions are called.
	Apart bool
	// Unkept says that a file which is trusted more keeps the identity, and that the content of this one is known
	// to differ or to have changed: the file claims it, and has none in the profile. See reason.ContentUnknown.
	Unkept bool
	// Claimant is whose claim the identity is, where the content is unknown and others than root and the user who
	// recorded can have written the file; nil for all other files.
	Claimant *Claimant
	// Segments are where the file's executable bytes belong. When they are not
	// known, addresses in the profile are file offsets.
	Segments []Segment
}

// Claimed returns the identity that the file claims.
func (b *Binary) Claimed() buildid.ID {
	if b.Claim.IsZero() {
		return b.ID
	}
	return b.Claim
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
//
// Add does it in one call. A caller that has the same frames, stacks and labels many
// times numbers them once, with Location, Stack and Owner, and then has Count
// count them. Samples share what they have in common: the locations of a stack, the
// labels of an owner and the units of times are not to be changed in one of them alone.
type Builder struct {
	out       *pprof.Profile
	mappings  map[mappingKey]*pprof.Mapping
	locations map[locationKey]*pprof.Location
	functions *functions
	numbers   intern.Sequences // of the walk and the locations' IDs; they are those of stacks
	stacks    []builtStack
	owners    intern.Values[Labels]
	labels    []sampleLabels // of the owners
	labelled  map[walkedOwner]sampleLabels
	counts    intern.Values[sampleKey]
	samples   []*pprof.Sample // of the counts
	key       []uint32
	room      room
	units     timeUnits
	contents  contents
}

// Stack is the number that a Builder gave to a stack.
type Stack uint32

// Owner is the number that a Builder gave to Labels.
type Owner uint32

type sampleKey struct {
	stack Stack
	owner Owner
}

// builtStack is a stack and how it was found.
type builtStack struct {
	locations []*pprof.Location
	walk      Walk
}

// walkedOwner is what the labels of samples follow from.
type walkedOwner struct {
	owner Owner
	walk  Walk
}

// sampleLabels are Labels in the form that samples have.
type sampleLabels struct {
	text    map[string][]string
	numbers map[string][]int64
}

// room is where the parts of a profile are, many in one allocation.
type room struct {
	samples   slab[pprof.Sample]
	values    slab[int64]
	locations slab[pprof.Location]
	stacks    slab[*pprof.Location]
}

// slab hands out pieces of large slices.
type slab[T any] struct{ left []T }

const slabSize = 1024

func (s *slab[T]) take(n int) []T {
	if len(s.left) < n {
		s.left = make([]T, max(n, slabSize))
	}
	taken := s.left[:n:n]
	s.left = s.left[n:]
	return taken
}

type mappingKey struct {
	binary  buildid.ID
	content buildid.Content
	start   uint64
	reason  reason.Reason
	path    string // of a file without identity, or of unknown content
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
		labelled:  map[walkedOwner]sampleLabels{},
		contents:  newContents(),
	}
}

// Expect makes room in an empty Builder for so many different locations and samples, as far as these are
// known.
func (b *Builder) Expect(locations, samples int) {
	b.locations = make(map[locationKey]*pprof.Location, locations)
	b.numbers.Expect(samples)
	b.counts.Expect(samples)
	b.out.Location = slices.Grow(b.out.Location, locations)
	b.out.Sample = slices.Grow(b.out.Sample, samples)
	b.stacks = slices.Grow(b.stacks, samples)
	b.samples = slices.Grow(b.samples, samples)
}

// Add counts a stack, leaf first, that was seen count times and stands for
// nanos nanoseconds. It returns the sample that counts it.
func (b *Builder) Add(stack []Frame, labels *Labels, count, nanos int64) *pprof.Sample {
	locations := make([]*pprof.Location, len(stack))
	for i := range stack {
		locations[i] = b.Location(&stack[i])
	}
	return b.Count(b.Stack(locations, Walk{}), b.Owner(labels), count, nanos)
}

// Stack returns the number of the stack of these locations, leaf first, that were found
// in this way.
func (b *Builder) Stack(locations []*pprof.Location, walk Walk) Stack {
	b.key = append(b.key[:0], uint32(walk.End)<<8|uint32(walk.Methods))
	for _, l := range locations {
		b.key = append(b.key, uint32(l.ID))
	}
	n := b.numbers.Number(b.key)
	if int(n) == len(b.stacks) {
		own := b.room.stacks.take(len(locations))
		copy(own, locations)
		b.stacks = append(b.stacks, builtStack{own, walk})
	}
	return Stack(n)
}

// Owner returns the number of these labels.
func (b *Builder) Owner(l *Labels) Owner {
	n, isNew := b.owners.Number(*l)
	if isNew {
		b.labels = append(b.labels, l.ofSample())
	}
	return Owner(n)
}

// Count counts a stack that was seen count times and stands for nanos nanoseconds. It
// returns the sample that counts it, whose labels are shared with others.
func (b *Builder) Count(stack Stack, owner Owner, count, nanos int64) *pprof.Sample {
	n, isNew := b.counts.Number(sampleKey{stack, owner})
	if isNew {
		s := &b.room.samples.take(1)[0]
		labels := b.labelsOf(owner, b.stacks[stack].walk)
		*s = pprof.Sample{Location: b.stacks[stack].locations, Value: b.room.values.take(2), Label: labels.text, NumLabel: labels.numbers}
		b.samples = append(b.samples, s)
		b.out.Sample = append(b.out.Sample, s)
	}
	s := b.samples[n]
	s.Value[0] += count
	s.Value[1] += nanos
	return s
}

// Apart has what is counted from now on in samples of its own: it is of another event.
func (b *Builder) Apart() { b.counts, b.samples = intern.Values[sampleKey]{}, nil }

// labelsOf returns the labels of an owner's samples whose stacks were found in a way.
func (b *Builder) labelsOf(owner Owner, walk Walk) sampleLabels {
	key := walkedOwner{owner, walk}
	l, ok := b.labelled[key]
	if !ok {
		l = walk.label(b.labels[owner])
		b.labelled[key] = l
	}
	return l
}

// Profile returns the profile. The Builder is not to be used afterwards.
func (b *Builder) Profile() *pprof.Profile {
	b.out.Comments = append(b.out.Comments, b.contents.comments(b.out.Mapping)...)
	return b.out
}

// Location returns the location of a frame.
func (b *Builder) Location(f *Frame) *pprof.Location {
	m, address := b.place(f)
	key := locationKey{mapping: m, address: address}
	if f.Binary == nil && len(f.Symbols) > 0 {
		key.symbol = f.Symbols[0].Linkage
	}
	if l := b.locations[key]; l != nil {
		return l
	}
	l := &b.room.locations.take(1)[0]
	*l = pprof.Location{ID: uint64(len(b.out.Location) + 1), Mapping: m, Address: address}
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
	if f.Binary.Unkept {
		key := mappingKey{binary: f.Binary.ID, reason: reason.ContentUnknown, path: f.Binary.Path}
		b.contents.noteUnkept(f.Binary)
		return b.mapping(key, pprof.Mapping{Limit: math.MaxUint64, File: PseudoFile(key.reason, key.path)}), uint64(f.Offset)
	}
	if f.Binary.Claimant != nil {
		return b.claimed(f.Binary), uint64(f.Offset)
	}
	m := pprof.Mapping{File: f.Binary.Path}
	for _, s := range f.Binary.Segments {
		if f.Offset >= s.Offset && uint64(f.Offset-s.Offset) < s.Size {
			m.Start, m.Limit, m.Offset = s.pages()
			break
		}
	}
	key := mappingKey{binary: f.Binary.ID, content: f.Binary.Content, start: m.Start}
	if key.content.IsZero() || f.Binary.Apart {
		key.path = f.Binary.Path
	}
	if m.Limit == 0 { // no segment is known to hold it
		m.Limit = noLimit
		key.start = math.MaxUint64
	}
	if b.mappings[key] == nil {
		m.BuildID = b.contents.settle(f.Binary).String()
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

// ofSample returns the labels that are not empty.
func (l *Labels) ofSample() (s sampleLabels) {
	for name, value := range map[string]string{
		"process": l.Process, "thread": l.Thread, "cgroup": l.Cgroup, "container": l.Container,
	} {
		if value != "" {
			s.text = setLabel(s.text, name, value)
		}
	}
	for name, value := range map[string]int{"pid": l.PID, "tid": l.TID} {
		if value != 0 {
			s.numbers = setLabel(s.numbers, name, int64(value))
		}
	}
	return s
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
