// Package query answers questions about one profile, or about two that are compared: trees
// that are cut to what can be seen, tables, callers and callees, coverage, and what happened
// when.
//
// A [Set] has the profiles and the names of everything in them. [Set.Select] chooses stacks by
// a [Filter]; a [Selection] answers all questions about these. Neither changes, so that several
// goroutines may ask at the same time.
//
// "Flat" is what was counted in the thing itself, "cum" also what it called. A function that is
// on a stack several times counts once. The figures are those of package profile/summary and of
// 'go tool pprof -top'.
//
// Two profiles have their functions in common by name: a function of a binary is the same in
// another build of that binary, whose identity differs. A program that one of them lacks is
// compared with the one of the other that has most of its functions (Binary.BaseFile).
package query

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	pprof "github.com/google/pprof/profile"

	"hallmark/buildid"
	"hallmark/profile"
	"hallmark/profile/compact"
	"hallmark/reason"
)

// Set is one profile, or two that are compared.
type Set struct {
	sides    []*side // the profile, and its base
	frames   []Frame
	binaries []Binary
	sources  []string // source files, "" first
	byKey    map[string]int
	labels   []LabelKey
}

// side is one of the profiles.
type side struct {
	p       *compact.Profile
	chains  [2]*chains // by Unknown
	binary  []int      // by number of the mapping + 1: number of the binary
	proofs  map[*pprof.Mapping]profile.Proof
	reasons []reason.Reason // by location: why it has no identity or no symbol

	wholes struct { // of a set, whose units do not change
		mu sync.Mutex
		of map[int]wholeSum // by type
	}
	first struct {
		once sync.Once
		time int64
	}
}

// chains are the frames of each location, the outermost first.
type chains struct {
	start   []uint32
	frames  []int32
	sources []uint32 // of each frame: in Set.sources
	lines   []int64
}

func (c *chains) add(frame int32, source uint32, line int64) {
	c.frames, c.sources, c.lines = append(c.frames, frame), append(c.sources, source), append(c.lines, line)
}

func (c *chains) of(location uint32) []int32 {
	return c.frames[c.start[location]:c.start[location+1]]
}

// Unknown says how code without a symbol is shown.
type Unknown int

// Ways of showing code without a symbol.
const (
	ByOffset Unknown = iota // each file offset is a frame
	ByBinary                // all code of a binary is one frame, as 'hallmark report' counts it
)

// Kind is what kind of code a frame is.
type Kind string

// Kinds of code.
const (
	Kernel      Kind = "kernel"
	Native      Kind = "native"
	Go          Kind = "go"
	Interpreted Kind = "interpreted"
	Generated   Kind = "generated"
	NoCode      Kind = "unknown"
)

// Frame is a function of a binary, or a place of one without a symbol.
type Frame struct {
	Name    string // "[libc.so.6+0x9a1d0]" or "[not-mapped]" where it has none
	Key     string // 16 hexadecimal digits, the same for the same function in every profile
	Unnamed bool   // it has no symbol
	Reason  string // why it has none, or its file no identity; "" where all is known
	Advice  string // what helps, "" if nothing
	Kind    Kind
	Binary  int    // in Set.Binaries
	Source  string // source file; "" if unknown, and where functions of several files have this name
	Line    int64  // where the function starts in it, 0 if unknown
}

// Binary is what code runs from: a file, the kernel, or nothing that has an identity.
type Binary struct {
	File      string // Mapping.File
	Name      string // by which people know it
	BuildID   string // "" for none
	Content   string // hash of the code, if it is known
	Claims    string // the build ID that the file claims, where BuildID is its content instead
	Contested bool   // files of different content claim it
	Proof     profile.Proof
	Claimant  *profile.Claimant // whose claim the identity is, nil for root's and that of the user who recorded
	Reason    string            // why there is no identity, "" where there is one
	Advice    string
	Kernel    bool

	// BaseBuildID is the identity of the build in the base, where that is another one.
	BaseBuildID string
	// BaseFile is the file of the base that the functions are compared with, where its path and name are others.
	BaseFile string

	isGo bool
}

// LabelKey is a label that samples have.
type LabelKey struct {
	Key     string
	Numeric bool
	Values  int // how many different ones there are
}

// New returns the set of a profile and of the base that it is compared with, nil for none.
func New(p, base *compact.Profile) *Set {
	s := &Set{byKey: map[string]int{}, sources: []string{""}}
	n := &namer{set: s, frames: map[frameKey]int32{}, binaries: map[binaryKey]int{}, sources: map[string]uint32{"": 0}, several: map[int32]bool{}}
	all := []*compact.Profile{p}
	if base != nil {
		all = append(all, base)
	}
	for i, p := range all {
		s.sides = append(s.sides, &side{p: p})
		n.addBinaries(s.sides[i], i > 0)
	}
	for _, side := range s.sides {
		n.noteGo(side)
	}
	for _, side := range s.sides {
		n.own = len(s.frames)
		side.chains[ByOffset] = n.chainsOf(side, ByOffset)
		side.chains[ByBinary] = n.chainsOf(side, ByBinary)
	}
	s.labels = labelKeys(s.sides)
	return s
}

// Profile returns the profile.
func (s *Set) Profile() *compact.Profile { return s.sides[0].p }

// Base returns what the profile is compared with, nil for nothing.
func (s *Set) Base() *compact.Profile {
	if !s.HasBase() {
		return nil
	}
	return s.sides[1].p
}

// HasBase reports whether two profiles are compared.
func (s *Set) HasBase() bool { return len(s.sides) > 1 }

// Frames returns all frames by their numbers, which are the same for the same profiles.
func (s *Set) Frames() []Frame { return s.frames }

// Binaries returns all binaries by their numbers.
func (s *Set) Binaries() []Binary { return s.binaries }

// FrameByKey returns the number of the frame that has this key.
func (s *Set) FrameByKey(key string) (int, bool) {
	n, ok := s.byKey[key]
	return n, ok
}

// Version names the numbers of all functions and binaries: sets with the same have the same things by these numbers.
func (s *Set) Version() string {
	h := sha256.New()
	for i := range s.frames {
		fmt.Fprintf(h, "%s\x00", s.frames[i].Key)
	}
	for i := range s.binaries {
		b := &s.binaries[i]
		fmt.Fprintf(h, "%q %q %q\x00", b.File, b.BuildID, b.Content)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// LabelKeys returns the labels that samples have, by name.
func (s *Set) LabelKeys() []LabelKey { return s.labels }

// binaryKey distinguishes binaries as package summary does: by identity and content; by the path
// where either is unknown.
type binaryKey struct {
	file, buildID, content string
	claimant               profile.Claimant
}

// claimantOf returns whose claim the identity of a file is, the zero value where it is no claim of others.
func claimantOf(file *profile.Binary) profile.Claimant {
	if file.Claimant == nil {
		return profile.Claimant{}
	}
	return *file.Claimant
}

type frameKey struct {
	name    string
	binary  int
	unnamed bool
}

// namer gives numbers to frames and binaries.
type namer struct {
	set      *Set
	frames   map[frameKey]int32
	binaries map[binaryKey]int
	sources  map[string]uint32
	own      int            // frames that were there before those of the profile at hand
	several  map[int32]bool // frames that are in several source files
}

// addBinaries gives numbers to the binaries of a profile. Those of a base are the profile's if
// they are other builds of these.
func (n *namer) addBinaries(side *side, isBase bool) {
	shell := &pprof.Profile{Mapping: side.p.Mappings(), Comments: side.p.Comments()}
	known, contested, unkept := profile.Binaries(shell), profile.ContestedIDs(shell), profile.Unkept(shell)
	side.binary, side.proofs = make([]int, len(shell.Mapping)+1), profile.Proofs(shell)
	own := len(n.set.binaries)
	others := n.otherBuilds(isBase, shell.Mapping)
	keyOf := func(m *pprof.Mapping) binaryKey {
		file := known[m]
		k := binaryKey{buildID: m.BuildID, content: file.Content.String()}
		if k.content == "" {
			k.file, k.claimant = m.File, claimantOf(&file)
		}
		return k
	}
	programs := map[binaryKey]int{}
	if isBase {
		programs = n.otherPrograms(side, keyOf, others)
	}
	add := func(m *pprof.Mapping) int {
		k := binaryKey{}
		b := Binary{Name: profile.ShortName("")}
		if m != nil {
			file := known[m]
			k = keyOf(m)
			b = describe(m, file, contested, unkept)
			if m.BuildID != "" {
				b.Proof = side.proofs[m]
			}
		} else {
			b.Reason, b.Advice = reason.NotRecorded.String(), reason.NotRecorded.Advice()
		}
		at, ok := n.binaries[k]
		if !ok && isBase && m != nil {
			if at, ok = others(m); ok && at < own {
				if m.BuildID != n.set.binaries[at].BuildID {
					n.set.binaries[at].BaseBuildID = m.BuildID
				}
			}
		}
		if !ok {
			if at, ok = programs[k]; ok {
				n.set.binaries[at].BaseBuildID, n.set.binaries[at].BaseFile = m.BuildID, m.File
			}
		}
		if !ok {
			at = len(n.set.binaries)
			n.set.binaries = append(n.set.binaries, b)
		}
		n.binaries[k] = at
		return at
	}
	for i, m := range shell.Mapping {
		side.binary[i+1] = add(m)
	}
	for i := range side.p.Locations() {
		if side.p.Mapping(side.p.Location(uint32(i))) == nil {
			side.binary[0] = add(nil)
			break
		}
	}
}

// otherBuilds returns what finds the profile's build of a binary of the base: that of its path, or that of its name. On
// both sides it is the only one. A build that both have is no other one. A file without an identity is that of its
// path.
func (n *namer) otherBuilds(isBase bool, mappings []*pprof.Mapping) func(*pprof.Mapping) (int, bool) {
	if !isBase {
		return nil
	}
	both := map[string]bool{"": true}
	byPath, byName := map[string]int{}, map[string]int{} // in the base
	seen := map[[2]string]bool{}
	for i, m := range mappings {
		both[m.BuildID] = true
		if k := [2]string{m.File, m.BuildID}; !seen[k] {
			seen[k] = true
			once(byPath, m.File, i)
			once(byName, profile.ShortName(m.File), i)
		}
	}
	ownPath, ownName := map[string]int{}, map[string]int{}
	for i, b := range n.set.binaries {
		if !both[b.BuildID] || b.BuildID == "" && strings.HasPrefix(b.File, "/") {
			once(ownPath, b.File, i)
			once(ownName, b.Name, i)
		}
	}
	return func(m *pprof.Mapping) (int, bool) {
		if m.BuildID == "" && !strings.HasPrefix(m.File, "/") {
			return 0, false
		}
		if at, ok := ownPath[m.File]; ok {
			return at, at >= 0 && byPath[m.File] >= 0
		}
		name := profile.ShortName(m.File)
		at, ok := ownName[name]
		ok = ok && at >= 0 && byName[name] >= 0 && m.BuildID != "" && n.set.binaries[at].BuildID != ""
		return at, ok
	}
}

// otherPrograms returns which binaries of the base are compared by function with one of the profile that has another
// name. Neither has a counterpart, and two functions at least, and half of those that were seen in the one with fewer,
// have the same names. Each is the only one for the other.
func (n *namer) otherPrograms(base *side, keyOf func(*pprof.Mapping) binaryKey, others func(*pprof.Mapping) (int, bool)) map[binaryKey]int {
	left, taken := make([]*binaryKey, len(base.p.Mappings())+1), map[int]bool{}
	for i, m := range base.p.Mappings() {
		k := keyOf(m)
		at, ok := n.binaries[k]
		if !ok {
			at, ok = others(m)
		}
		if ok {
			taken[at] = true
		} else if strings.HasPrefix(m.File, "/") {
			left[i+1] = &k
		}
	}
	before := functionsBy(base, func(mapping int) *binaryKey { return left[mapping] })
	now := functionsBy(n.set.sides[0], func(mapping int) *int {
		at := n.set.sides[0].binary[mapping]
		if taken[at] || !strings.HasPrefix(n.set.binaries[at].File, "/") {
			return nil
		}
		return &at
	})
	found, back := map[binaryKey]int{}, map[int]int{}
	for k, names := range before {
		for at, own := range now {
			common := 0
			for name := range names {
				if own[name] {
					common++
				}
			}
			if common < 2 || 2*common < min(len(names), len(own)) {
				continue
			}
			if _, several := found[k]; several {
				at = -1
			}
			found[k] = at
			back[at]++
		}
	}
	for k, at := range found {
		if at < 0 || back[at] > 1 {
			delete(found, k)
		}
	}
	return found
}

// functionsBy returns the names of the functions of what a mapping, by its number, is of. Those that each program has,
// or each one of Go, say nothing.
func functionsBy[K comparable](s *side, of func(mapping int) *K) map[K]map[string]bool {
	all := map[K]map[string]bool{}
	for i := range s.p.Locations() {
		l := s.p.Location(uint32(i))
		k := of(s.mappingNumber(l))
		if k == nil {
			continue
		}
		for _, line := range s.p.Lines(l) {
			f := &s.p.Functions()[line.Function()]
			name := cmp.Or(f.Name, f.SystemName)
			if name == "" || name == "_start" || strings.HasPrefix(name, "runtime.") || profile.IsUnnamed(&pprof.Function{SystemName: f.SystemName}) {
				continue
			}
			if all[*k] == nil {
				all[*k] = map[string]bool{}
			}
			all[*k][name] = true
		}
	}
	return all
}

// once notes a number by a name, -1 where several have it.
func once(by map[string]int, name string, n int) {
	if _, ok := by[name]; ok {
		n = -1
	}
	by[name] = n
}

func describe(m *pprof.Mapping, file profile.Binary, contested map[buildid.ID]bool, unkept map[*pprof.Mapping]buildid.ID) Binary {
	b := Binary{File: m.File, Name: profile.ShortName(m.File), BuildID: m.BuildID, Content: file.Content.String()}
	if why := profile.ReasonOf(m); why != reason.None {
		b.Reason, b.Advice = why.String(), why.Advice()
	}
	b.Claimant = file.Claimant
	b.Kernel = profile.Call{Location: &pprof.Location{Mapping: m}}.Kernel()
	if shown, _ := profile.Identity(m); shown != file.ID {
		b.Claims = file.ID.String()
	}
	b.Contested = contested[file.ID]
	if claimed, ok := unkept[m]; ok {
		b.Claims, b.Contested = claimed.String(), true
	}
	return b
}

// noteGo finds the binaries that the Go toolchain made: their functions are in its sources.
func (n *namer) noteGo(side *side) {
	p := side.p
	for i := range p.Locations() {
		l := p.Location(uint32(i))
		for _, line := range p.Lines(l) {
			if f := &p.Functions()[line.Function()]; strings.HasSuffix(f.Filename, ".go") && side.mappingNumber(l) > 0 {
				n.set.binaries[side.binary[side.mappingNumber(l)]].isGo = true
			}
		}
	}
}

func (s *side) mappingNumber(l *compact.Location) int { return s.p.MappingNumber(l) }

func (s *side) binaryOf(location uint32) int {
	return s.binary[s.mappingNumber(s.p.Location(location))]
}

// chainsOf returns the frames of all locations.
func (n *namer) chainsOf(side *side, unknown Unknown) *chains {
	p := side.p
	c := &chains{start: make([]uint32, 1, p.Locations()+1)}
	if side.reasons == nil {
		side.reasons = make([]reason.Reason, p.Locations())
	}
	for i := range p.Locations() {
		at := uint32(i)
		l := p.Location(at)
		lines := p.Lines(l)
		named := false
		for j := len(lines) - 1; j >= 0; j-- {
			f := &p.Functions()[lines[j].Function()]
			if f.Name == "" && f.SystemName == "" {
				continue
			}
			own := &pprof.Function{Name: f.Name, SystemName: f.SystemName}
			named = named || !profile.IsUnnamed(own)
		}
		side.reasons[i] = missing(p.Mapping(l), named, p.Miss(at))
		for j := len(lines) - 1; j >= 0; j-- {
			source := n.source(p.Functions()[lines[j].Function()].Filename)
			c.add(n.frame(side, at, &lines[j], unknown), source, lines[j].Line)
		}
		if len(lines) == 0 {
			c.add(n.frame(side, at, nil, unknown), 0, 0)
		}
		c.start = append(c.start, uint32(len(c.frames)))
	}
	return c
}

// source returns the number of a source file.
func (n *namer) source(name string) uint32 {
	number, ok := n.sources[name]
	if !ok {
		number = uint32(len(n.set.sources))
		n.set.sources, n.sources[name] = append(n.set.sources, name), number
	}
	return number
}

// missing returns why a location has no identity, or else no symbol.
func missing(m *pprof.Mapping, named bool, miss reason.Reason) reason.Reason {
	why := profile.ReasonOf(m)
	if why == reason.Anonymous && named {
		return reason.None
	}
	if why == reason.Anonymous {
		return reason.NoPerfMap
	}
	if why == reason.None && !named {
		return miss
	}
	return why
}

// frame returns the number of the frame of a line, nil where the location has none.
func (n *namer) frame(side *side, at uint32, line *compact.Line, unknown Unknown) int32 {
	p := side.p
	l := p.Location(at)
	binary := side.binaryOf(at)
	var f *compact.Function
	if line != nil {
		if f = &p.Functions()[line.Function()]; f.Name == "" && f.SystemName == "" {
			f = nil
		}
	}
	k := frameKey{binary: binary, unnamed: f == nil}
	switch {
	case f != nil:
		k.name = cmp.Or(f.Name, f.SystemName)
	case unknown == ByBinary:
		k.name = profile.UnknownName(p.Mapping(l))
	default:
		k.name = profile.Call{Location: &pprof.Location{Mapping: p.Mapping(l), Address: l.Address}}.Name()
	}
	if have, ok := n.frames[k]; ok {
		if f != nil && f.Filename != "" && int(have) >= n.own && !n.several[have] {
			n.foundIn(have, f)
		}
		return have
	}
	frame := Frame{Name: k.name, Unnamed: f == nil, Binary: binary}
	if f != nil {
		frame.Unnamed = profile.IsUnnamed(&pprof.Function{SystemName: f.SystemName})
		frame.Source, frame.Line = f.Filename, f.StartLine
	}
	why := side.reasons[at]
	if why != reason.None {
		frame.Reason, frame.Advice = why.String(), why.Advice()
	}
	frame.Kind = n.kind(p.Mapping(l), &frame)
	number := len(n.set.frames)
	frame.Key = n.key(&frame, number)
	n.set.frames = append(n.set.frames, frame)
	n.frames[k] = int32(number)
	return int32(number)
}

// foundIn notes where a function is that was found elsewhere before.
func (n *namer) foundIn(frame int32, f *compact.Function) {
	known := &n.set.frames[frame]
	switch known.Source {
	case f.Filename:
	case "":
		known.Source, known.Line = f.Filename, f.StartLine
	default:
		known.Source, known.Line = "", 0
		n.several[frame] = true
	}
}

// key returns the key of a frame: of its name and that of its binary, and of the identity too
// where these are not enough.
func (n *namer) key(f *Frame, number int) string {
	b := &n.set.binaries[f.Binary]
	parts := f.Name + "\x00" + b.Name
	for _, more := range []string{"", b.BuildID, b.Content, b.File, strconv.Itoa(number)} {
		parts += "\x00" + more
		h := fnv.New64a()
		h.Write([]byte(parts))
		key := strconv.FormatUint(h.Sum64()|1<<63, 16)
		if _, taken := n.set.byKey[key]; !taken {
			n.set.byKey[key] = number
			return key
		}
	}
	return ""
}

// kind returns what kind of code a frame is.
func (n *namer) kind(m *pprof.Mapping, f *Frame) Kind {
	b := &n.set.binaries[f.Binary]
	switch filepath.Ext(f.Source) {
	case ".py", ".rb", ".php", ".pl", ".lua", ".js", ".ts":
		return Interpreted
	case ".go":
		return Go
	}
	switch {
	case m == nil && f.Unnamed:
		return NoCode
	case b.Kernel:
		return Kernel
	case profile.ReasonOf(m) == reason.Anonymous && m != nil:
		return Generated
	case b.isGo:
		return Go
	case m != nil && m.File == "" && f.Unnamed:
		return NoCode
	case m != nil && m.BuildID == "" && f.Unnamed && strings.HasPrefix(m.File, "["):
		return NoCode
	}
	return Native
}

// labelKeys returns the labels that samples have.
func labelKeys(sides []*side) []LabelKey {
	values := map[string]map[string]bool{}
	numeric := map[string]bool{}
	for _, s := range sides {
		for set := range s.p.LabelSets() {
			for _, l := range s.p.LabelSet(uint32(set)) {
				if values[l.Key] == nil {
					values[l.Key], numeric[l.Key] = map[string]bool{}, true
				}
				values[l.Key][l.Value()] = true
				numeric[l.Key] = numeric[l.Key] && !l.IsText
			}
		}
	}
	keys := make([]LabelKey, 0, len(values))
	for _, k := range sortedKeys(values) {
		keys = append(keys, LabelKey{k, numeric[k], len(values[k])})
	}
	return keys
}
