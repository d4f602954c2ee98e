// Package compact holds profiles in little memory: a profile of a million stacks takes less
// than three times its uncompressed file, where github.com/google/pprof/profile takes about
// ten times that.
//
// A Profile does not change once it is made, so that several goroutines may look at it. Its
// parts are those of pprof, with the conventions of package profile:
//
//   - Samples are rows: a stack, a value of each type, labels, and times (profile.Times).
//   - Stacks are a tree of their common beginnings, outermost frame first. A node of the tree
//     is a run of frames without a branch and without the end of a stack, except at its end.
//   - Places are mappings, locations and functions. Symbols are added to these, and a Profile
//     with other symbols shares the stacks.
//
// Trees, tables and differences of a profile are in package profile/query.
package compact

import (
	"slices"
	"time"

	pprof "github.com/google/pprof/profile"

	"hallmark/profile"
	"hallmark/reason"
)

// Profile is an immutable profile. All methods may be called by several goroutines. The
// slices that they return must not be changed.
type Profile struct {
	head
	*samples
	*places
}

// head is what a profile says of itself.
type head struct {
	types       []ValueType
	defaultType string
	periodType  ValueType
	period      int64
	time        int64 // nanoseconds since 1970
	duration    time.Duration
	dropFrames  string
	keepFrames  string
	docURL      string
	limits      profile.Limits
}

// ValueType is what a value counts.
type ValueType struct{ Type, Unit string }

// samples are the rows, and their stacks.
type samples struct {
	values  []column    // by type
	owner   vec[uint32] // of each row: its set of labels
	sets    labelSets
	numbers numbers
	node    []uint32 // of each row: the end of its stack
	tree    Tree
}

// places are what addresses mean.
type places struct {
	mappings  []*pprof.Mapping
	functions []Function
	locations []Location
	lines     []Line // of all locations
	comments  []string
	misses    map[uint32]reason.Reason // by location: why there is no symbol
}

// Function is a function of the profile.
type Function struct {
	Name       string
	SystemName string // the linkage name
	Filename   string
	StartLine  int64
}

// Location is a place of code.
type Location struct {
	Address uint64 // as in pprof: see profile.FileOffset
	mapping uint32 // number + 1, 0 for none
	line    uint32 // the first one of its lines
	end     uint32 // behind the last one
	folded  bool
}

// Line is one function at a location.
type Line struct {
	function uint32 // number + 1
	Line     int64
	Column   int64
}

// Function returns the number of the function.
func (l *Line) Function() int { return int(l.function) - 1 }

// Mapping returns the mapping of a location, nil for none.
func (p *places) Mapping(l *Location) *pprof.Mapping {
	if l.mapping == 0 {
		return nil
	}
	return p.mappings[l.mapping-1]
}

// Lines returns the functions at a location, those that are inlined first.
func (p *places) Lines(l *Location) []Line { return p.lines[l.line:l.end] }

// Location returns the location of a number.
func (p *places) Location(n uint32) *Location { return &p.locations[n] }

// Locations returns how many locations there are.
func (p *places) Locations() int { return len(p.locations) }

// Mappings returns the mappings.
func (p *places) Mappings() []*pprof.Mapping { return p.mappings }

// Functions returns the functions.
func (p *places) Functions() []Function { return p.functions }

// Comments returns the comments, those for machines included.
func (p *places) Comments() []string { return p.comments }

// Notes returns the comments for people.
func (p *places) Notes() []string {
	return slices.DeleteFunc(slices.Clone(p.comments), profile.IsContentComment)
}

// Miss returns why a location has no symbol. It is reason.NotLookedUp where nobody looked.
func (p *places) Miss(location uint32) reason.Reason {
	if why, ok := p.misses[location]; ok {
		return why
	}
	return reason.NotLookedUp
}

// SampleTypes returns what the values of samples count.
func (h *head) SampleTypes() []ValueType { return h.types }

// PeriodType returns what Period counts.
func (h *head) PeriodType() ValueType { return h.periodType }

// Period returns how much there was of PeriodType between two samples.
func (h *head) Period() int64 { return h.period }

// Time returns when the profile begins, the zero time where it does not say that.
func (h *head) Time() time.Time {
	if h.time == 0 {
		return time.Time{}
	}
	return time.Unix(0, h.time).UTC()
}

// Duration returns how long the profile was taken, 0 where it is not known.
func (h *head) Duration() time.Duration { return h.duration }

// SampleType returns the number of the first of the named types of samples that there is, as
// profile.SampleIndex does. The name "" is the profile's own choice.
func (h *head) SampleType(names ...string) (int, error) {
	return profile.TypeIndex(len(h.types), func(i int) string { return h.types[i].Type }, h.defaultType, names...)
}

// Samples returns how many rows there are.
func (s *samples) Samples() int { return len(s.node) }

// Stacks returns the stacks.
func (s *samples) Stacks() *Tree { return &s.tree }

// Value returns the value of a type in a row.
func (s *samples) Value(row, kind int) int64 { return s.values[kind].at(row) }

// Node returns the node of the tree of stacks at whose end the stack of a row ends.
func (s *samples) Node(row int) uint32 { return s.node[row] }

// MappingNumber returns the number of a location's mapping + 1, 0 for none.
func (p *places) MappingNumber(l *Location) int { return int(l.mapping) }
