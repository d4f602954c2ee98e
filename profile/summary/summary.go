// Package summary adds a profile up: which functions, binaries and processes it
// was about, and how much of it is known.
//
// "Flat" is what was counted in the thing itself, "cum" also what was counted in
// everything that it called. A function that is on a stack several times counts
// once. The figures are those of 'go tool pprof -top', but for functions of the
// same name in different binaries, which are kept apart.
package summary

import (
	"cmp"
	"slices"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"hallmark/buildid"
	"hallmark/profile"
)

// Summary is what a profile says in short. Its form in JSON is stable: fields
// are added, and neither renamed nor removed.
type Summary struct {
	SampleType string        `json:"sample_type"` // what the values count: "cpu", "inuse_space" …
	Unit       string        `json:"unit"`        // of all values: "nanoseconds", "bytes", "count" …
	Total      int64         `json:"total"`       // sum of all samples' values
	Samples    int64         `json:"samples"`     // number of samples, 0 where the profile does not count them
	Time       time.Time     `json:"time,omitzero"`
	Duration   time.Duration `json:"duration_ns"`        // 0 when not known
	Comments   []string      `json:"comments,omitempty"` // those for people

	Functions []Function       `json:"functions"` // by falling flat value, or as Options say
	Binaries  []Binary         `json:"binaries"`  // by falling flat value
	Processes []Process        `json:"processes"` // by falling value; none where the profile names none
	Coverage  profile.Coverage `json:"coverage"`
}

// Function is a function of one binary. The code of a binary that has no
// symbols is one function, profile.UnknownName, unless profile.NameStarts named it.
type Function struct {
	Name    string `json:"function,omitempty"`
	Unnamed bool   `json:"unnamed,omitempty"`     // it has no symbol: Name is where the function starts, or UnknownName
	Source  string `json:"source_file,omitempty"` // source file, "" also where functions of several files have the name
	File    string `json:"binary,omitempty"`      // the binary's Mapping.File
	BuildID string `json:"build_id,omitempty"`
	Content string `json:"content,omitempty"` // hash of the binary's code, if it is known
	Flat    int64  `json:"flat"`
	Cum     int64  `json:"cum"`
}

// Binary is everything that ran from one file, or without one for one reason.
type Binary struct {
	File    string `json:"binary,omitempty"` // Mapping.File, empty where the profile does not have it
	BuildID string `json:"build_id,omitempty"`
	Content string `json:"content,omitempty"` // hash of the code, if it is known
	// Claims is the build ID that the file claims, where BuildID is its content instead.
	// Contested says that files of different content claim it. A file of unknown content has no
	// BuildID where another one keeps what it claims.
	Claims    string `json:"claims,omitempty"`
	Contested bool   `json:"contested,omitempty"`
	// Proof is how far the identity is known to be that of the code which ran: "proven", "claimed" or "contested";
	// "" where there is none. Claimant is whose claim it is, if not root's or that of the user who recorded.
	Proof    string `json:"proof,omitempty"`
	Claimant string `json:"claimant,omitempty"`
	Flat     int64  `json:"flat"`
	Cum      int64  `json:"cum"`
}

// Process is all processes of one name.
type Process struct {
	Name string `json:"process"`
	PIDs int    `json:"pids"` // how many there were, 0 where the profile has no numbers of processes
	Flat int64  `json:"flat"`
}

// Options select what is added up.
type Options struct {
	SampleType string         // sample type to add up; empty means the profile's default
	Misses     profile.Misses // from profile.Symbolize, for the coverage
	ByCum      bool           // sort functions by falling cum rather than flat value
}

// New adds up p. The error is that p does not have the sample type.
func New(p *pprof.Profile, o Options) (*Summary, error) {
	index, err := profile.SampleIndex(p, o.SampleType)
	if err != nil {
		return nil, err
	}
	if err := checkSums(p, index); err != nil {
		return nil, err
	}
	t := newTally(p)
	counting := &pprof.Profile{SampleType: p.SampleType, Mapping: p.Mapping, Location: p.Location, Function: p.Function, Comments: p.Comments}
	for _, s := range p.Sample {
		t.add(s, s.Value[index])
		if s.Value[index] != 0 {
			counting.Sample = append(counting.Sample, s)
		}
	}
	sum := &Summary{
		SampleType: p.SampleType[index].Type,
		Unit:       p.SampleType[index].Unit,
		Total:      t.total,
		Samples:    sampleCount(counting),
		Duration:   time.Duration(p.DurationNanos),
		Comments:   profile.Notes(p),
		Functions:  t.sortedFunctions(o.ByCum),
		Binaries:   t.sortedBinaries(),
		Processes:  t.sortedProcesses(),
		Coverage:   profile.MeasureCoverage(counting, o.Misses),
	}
	if p.TimeNanos != 0 {
		sum.Time = time.Unix(0, p.TimeNanos).UTC()
	}
	return sum, nil
}

// checkSums returns an error where what is added up does not fit into 64 bits.
func checkSums(p *pprof.Profile, index int) error {
	var values, frames profile.Magnitude
	count, err := profile.SampleIndex(p, "samples")
	for _, s := range p.Sample {
		values.Add(s.Value[index], 1)
		n := int64(1)
		if err == nil {
			n = s.Value[count]
		}
		frames.Add(n, uint64(max(1, len(s.Location))))
	}
	return cmp.Or(values.Err(p.SampleType[index].Type), frames.Err("frames"))
}

func sampleCount(p *pprof.Profile) int64 {
	index, err := profile.SampleIndex(p, "samples")
	if err != nil {
		return 0
	}
	var n int64
	for _, s := range p.Sample {
		n += s.Value[index]
	}
	return n
}

// functionKey distinguishes functions.
type functionKey struct {
	name   string
	binary binaryKey
}

// mappedFunction is a function of a profile in one of its mappings, nil for code without one.
type mappedFunction struct {
	function *pprof.Function
	mapping  *pprof.Mapping
}

// binaryKey distinguishes binaries: by identity and content; by the path where either is
// unknown.
type binaryKey struct {
	file, buildID, content string
	claimant               profile.Claimant // of a file whose identity others claim
}

func (t *tally) keyOf(m *pprof.Mapping) binaryKey {
	if m == nil {
		return binaryKey{}
	}
	k := binaryKey{buildID: m.BuildID, content: t.contentOf(m)}
	if k.content == "" {
		k.file = m.File
	}
	if c := t.known[m].Claimant; c != nil {
		k.claimant = *c
	}
	return k
}

func (t *tally) contentOf(m *pprof.Mapping) string {
	b := t.known[m]
	return b.Content.String()
}

// pidKey distinguishes processes of one name.
type pidKey struct {
	name string
	pid  int64
}

// tally adds samples up.
type tally struct {
	total     int64
	functions map[functionKey]*counted[Function]
	inMapping map[mappedFunction]*counted[Function] // the same, by pointers
	several   map[*counted[Function]]bool           // are in several source files
	binaries  map[binaryKey]*counted[Binary]
	processes map[string]*Process
	pids      map[pidKey]bool

	known     map[*pprof.Mapping]profile.Binary
	contested map[buildid.ID]bool
	unkept    map[*pprof.Mapping]buildid.ID
	proofs    map[*pprof.Mapping]profile.Proof

	places *profile.PerLocation[place]
	sample int // number of the sample at hand
}

// place is what a location counts for.
type place struct {
	functions []*counted[Function] // leaf first
	binary    *counted[Binary]
}

// counted is a line of the summary, and the last sample that counted for it.
type counted[T any] struct {
	line   T
	sample int
}

// first reports whether the sample of a number counts for the line for the first time.
func (c *counted[T]) first(sample int) bool {
	is := c.sample != sample
	c.sample = sample
	return is
}

func newTally(p *pprof.Profile) *tally {
	return &tally{
		functions: map[functionKey]*counted[Function]{},
		inMapping: map[mappedFunction]*counted[Function]{},
		several:   map[*counted[Function]]bool{},
		binaries:  map[binaryKey]*counted[Binary]{},
		processes: map[string]*Process{},
		pids:      map[pidKey]bool{},
		known:     profile.Binaries(p),
		contested: profile.ContestedIDs(p),
		unkept:    profile.Unkept(p),
		proofs:    profile.Proofs(p),
		places:    profile.NewPerLocation[place](p),
	}
}

func (t *tally) add(s *pprof.Sample, value int64) {
	if value == 0 {
		return
	}
	t.total += max(value, -value)
	t.addProcess(s, value)
	t.sample++
	for i, l := range s.Location {
		at := t.place(l)
		if i == 0 {
			at.functions[0].line.Flat += value
			at.binary.line.Flat += value
		}
		for _, f := range at.functions {
			if f.first(t.sample) {
				f.line.Cum += value
			}
		}
		if at.binary.first(t.sample) {
			at.binary.line.Cum += value
		}
	}
}

// place returns what a location counts for.
func (t *tally) place(l *pprof.Location) *place {
	at := t.places.At(l)
	if at.binary == nil {
		at.binary = t.binary(l.Mapping)
		for c := range profile.CallsAt(l) {
			at.functions = append(at.functions, t.function(c))
		}
	}
	return at
}

func (t *tally) addProcess(s *pprof.Sample, value int64) {
	name, pid := profile.Process(s)
	if name == "" && pid == 0 {
		return
	}
	p := t.processes[name]
	if p == nil {
		p = &Process{Name: name}
		t.processes[name] = p
	}
	p.Flat += value
	isKnown := pid != 0 || strings.HasPrefix(name, "swapper") // the idle process, whose number is 0
	if k := (pidKey{name, pid}); isKnown && !t.pids[k] {
		t.pids[k] = true
		p.PIDs++
	}
}

func (t *tally) function(c profile.Call) *counted[Function] {
	at := mappedFunction{c.Function, c.Location.Mapping}
	f := t.inMapping[at]
	if f == nil {
		f = t.newFunction(c)
		t.inMapping[at] = f
	}
	return f
}

// newFunction returns what counts for a function that a mapping has not had before.
func (t *tally) newFunction(c profile.Call) *counted[Function] {
	k := functionKey{name: profile.UnknownName(c.Location.Mapping), binary: t.keyOf(c.Location.Mapping)}
	unnamed := c.Function == nil || profile.IsUnnamed(c.Function)
	if c.Function != nil {
		k.name = c.Name()
	}
	f := t.functions[k]
	if f == nil {
		f = &counted[Function]{line: Function{Name: k.name, Unnamed: unnamed}}
		if m := c.Location.Mapping; m != nil {
			f.line.File, f.line.BuildID, f.line.Content = m.File, m.BuildID, k.binary.content
		}
		t.functions[k] = f
	}
	if c.Function != nil {
		t.foundIn(f, c.Function.Filename)
	}
	return f
}

// foundIn notes in which source file a function is, which is none where functions of several files have its name.
func (t *tally) foundIn(f *counted[Function], source string) {
	switch {
	case source == "" || source == f.line.Source || t.several[f]:
	case f.line.Source == "":
		f.line.Source = source
	default:
		f.line.Source = ""
		t.several[f] = true
	}
}

func (t *tally) binary(m *pprof.Mapping) *counted[Binary] {
	k := t.keyOf(m)
	b := t.binaries[k]
	if b == nil {
		b = &counted[Binary]{}
		if m != nil {
			b.line.File, b.line.BuildID, b.line.Content = m.File, m.BuildID, k.content
			claimed := t.known[m].ID
			if shown, _ := profile.Identity(m); shown != claimed {
				b.line.Claims = claimed.String()
			}
			b.line.Contested = t.contested[claimed]
			if claimed, isUnkept := t.unkept[m]; isUnkept {
				b.line.Claims, b.line.Contested = claimed.String(), true
			}
			if m.BuildID != "" {
				b.line.Proof = t.proofs[m].String()
			}
			if c := t.known[m].Claimant; c != nil {
				b.line.Claimant = c.String()
			}
		}
		t.binaries[k] = b
	}
	return b
}

func (t *tally) sortedFunctions(byCum bool) []Function {
	return sorted(linesOf(t.functions), func(a, b Function) int {
		flat, cum := cmp.Compare(b.Flat, a.Flat), cmp.Compare(b.Cum, a.Cum)
		if byCum {
			flat, cum = cum, flat
		}
		return cmp.Or(flat, cum, cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.File, b.File), cmp.Compare(a.BuildID, b.BuildID), cmp.Compare(a.Content, b.Content))
	})
}

func (t *tally) sortedBinaries() []Binary {
	return sorted(linesOf(t.binaries), func(a, b Binary) int {
		return cmp.Or(cmp.Compare(b.Flat, a.Flat), cmp.Compare(b.Cum, a.Cum),
			cmp.Compare(a.File, b.File), cmp.Compare(a.BuildID, b.BuildID), cmp.Compare(a.Content, b.Content))
	})
}

func (t *tally) sortedProcesses() []Process {
	all := make([]Process, 0, len(t.processes))
	for _, p := range t.processes {
		all = append(all, *p)
	}
	return sorted(all, func(a, b Process) int {
		return cmp.Or(cmp.Compare(b.Flat, a.Flat), cmp.Compare(a.Name, b.Name))
	})
}

// linesOf returns what was counted.
func linesOf[K comparable, T any](m map[K]*counted[T]) []T {
	lines := make([]T, 0, len(m))
	for _, c := range m {
		lines = append(lines, c.line)
	}
	return lines
}

func sorted[T any](lines []T, compare func(a, b T) int) []T {
	slices.SortFunc(lines, compare)
	return lines
}
