package profile

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"hallmark/reason"
)

// Coverage says how much of a profile is known. It counts frames: each location
// of each sample's stack, as often as the sample was taken; in a profile that does
// not count samples, once.
type Coverage struct {
	Frames     int64 `json:"frame_count"`
	Identified int64 `json:"identified"` // have the identity of their file: Proven and Claimed together
	Proven     int64 `json:"proven"`     // have one that is known to be that of the code which ran
	Claimed    int64 `json:"claimed"`    // have one that their file only claims
	Symbolized int64 `json:"symbolized"` // have a function's name

	// The same for the frames in mappings of files in processes, which leaves out
	// the kernel, generated code and addresses that no mapping holds.
	FileFrames     int64 `json:"file_frames"`
	FileIdentified int64 `json:"file_identified"`

	// Gaps are the frames that lack their identity, their symbol or the proof of the identity, by
	// reason, the largest first, and those without proof last. A frame without identity is in no
	// other gap.
	Gaps []Gap `json:"gaps"`

	// Stacks says how many stacks are complete, nil where the profile does not say.
	Stacks *Stacks `json:"stacks,omitempty"`
}

// Gap is the frames that lack something for the same reason.
type Gap struct {
	Lacks    Lack
	Reason   reason.Reason
	Frames   int64
	Binaries []BinaryGap // where these frames are, the most first

	// Fitting is what helps in this case, where Reason.Advice does not fit it.
	Fitting string
}

// Advice says what can be done about the gap, "" if nothing. No package has debug symbols of what
// the kernel maps, such as [vdso].
func (g *Gap) Advice() string {
	isFile := func(b BinaryGap) bool { return !strings.HasPrefix(b.File, "[") }
	if g.Reason == reason.NoSymbol && len(g.Binaries) > 0 && !slices.ContainsFunc(g.Binaries, isFile) {
		return g.Fitting
	}
	return cmp.Or(g.Fitting, g.Reason.Advice())
}

// MarshalJSON writes the reason as its code, its text and its advice.
func (g Gap) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Lacks    Lack          `json:"lacks"`
		Reason   reason.Reason `json:"reason"`
		Text     string        `json:"text"`
		Advice   string        `json:"advice,omitempty"`
		Frames   int64         `json:"frame_count"`
		Binaries []BinaryGap   `json:"binaries"`
	}{g.Lacks, g.Reason, g.Reason.String(), g.Advice(), g.Frames, g.Binaries})
}

// BinaryGap is the part of a Gap in one binary.
type BinaryGap struct {
	File    string `json:"binary,omitempty"`   // Mapping.File
	BuildID string `json:"build_id,omitempty"` // Mapping.BuildID
	Frames  int64  `json:"frame_count"`
}

// Lack is what the frames of a Gap do not have.
type Lack string

// The things that a frame can lack.
const (
	LacksIdentity Lack = "identity"
	LacksSymbol   Lack = "symbol"
	LacksProof    Lack = "proof" // of the identity
)

// MeasureCoverage returns the coverage of p, with misses as Symbolize returned
// them, or nil when it was not called.
func MeasureCoverage(p *pprof.Profile, misses Misses) Coverage {
	weights := frameCounts(p)
	m := NewMeter(Proofs(p))
	for _, l := range p.Location {
		if n := *weights.At(l); n != 0 {
			m.Frames(l.Mapping, n, symbolized(l), misses.of(l))
		}
	}
	c := m.Coverage()
	c.Stacks = MeasureStacks(p)
	return c
}

// A Meter measures coverage as it receives frames and stacks. Make one with NewMeter.
type Meter struct {
	proofs   map[*pprof.Mapping]Proof
	coverage Coverage
	gaps     gaps
	stacks   stackMeter
}

// NewMeter returns a Meter that has counted nothing, for a profile of which Proofs returned these.
func NewMeter(proofs map[*pprof.Mapping]Proof) *Meter {
	return &Meter{proofs: proofs, gaps: gaps{}, stacks: stackMeter{}}
}

// Frames counts frames in a mapping that have a function's name, or have none because of miss.
func (m *Meter) Frames(in *pprof.Mapping, frames int64, named bool, miss reason.Reason) {
	why := ReasonOf(in)
	m.coverage.add(in, frames, why == reason.None, named)
	switch {
	case why != reason.None:
	case m.proofs[in] == Proven:
		m.coverage.Proven += frames
	default:
		m.coverage.Claimed += frames
		m.gaps.add(gapKey{LacksProof, reason.Unproven}, in, frames)
	}
	if why != reason.None {
		m.gaps.add(gapKey{LacksIdentity, why}, in, frames)
	} else if !named {
		m.gaps.add(gapKey{LacksSymbol, miss}, in, frames)
	}
	// Generated code never has a file, but it may have names.
	if why == reason.Anonymous && !named {
		m.gaps.add(gapKey{LacksSymbol, reason.NoPerfMap}, in, frames)
	}
}

// Stack counts samples whose stacks ended for a reason, which is None for those that are
// complete. The outermost frame is in a mapping.
func (m *Meter) Stack(why reason.Reason, outermost *pprof.Mapping, samples int64) {
	m.stacks.add(why, stackBinary(outermost), samples)
}

// Coverage returns what was counted.
func (m *Meter) Coverage() Coverage {
	c := m.coverage
	c.Gaps = m.gaps.sorted()
	c.Stacks = m.stacks.sum()
	return c
}

func (c *Coverage) add(m *pprof.Mapping, frames int64, identified, symbolized bool) {
	c.Frames += frames
	inFile := inFile(m)
	if inFile {
		c.FileFrames += frames
	}
	if identified {
		c.Identified += frames
		if inFile {
			c.FileIdentified += frames
		}
	}
	if symbolized {
		c.Symbolized += frames
	}
}

// inFile reports whether m is, or could have been, the mapping of a file. When
// in doubt it is: the share of identified ones shall not look better than it is.
func inFile(m *pprof.Mapping) bool {
	if m == nil {
		return false
	}
	r, path, ok := pseudo(m.File)
	if !ok {
		return m.File == "" || m.File[0] != '['
	}
	switch r {
	case reason.ProcessGone, reason.FileGone, reason.FileChanged, reason.FileDamaged, reason.NotPermitted,
		reason.TableFull, reason.Unstable, reason.RecordsLost, reason.FileWritten, reason.StackmapIP, reason.IDLength,
		reason.Outside, reason.FileTimes, reason.FileUnresponsive, reason.NotRead, reason.Rewritten, reason.Guest:
		return true
	}
	return path != ""
}

// of returns why l has no symbol.
func (ms Misses) of(l *pprof.Location) reason.Reason {
	if r := ms[l]; r != reason.None {
		return r
	}
	return reason.NotLookedUp
}

// frameCounts returns for every location the number of frames that it stands for.
func frameCounts(p *pprof.Profile) *PerLocation[int64] {
	samples := sampleCounts(p)
	counts := NewPerLocation[int64](p)
	for _, s := range p.Sample {
		n := samples(s)
		for _, l := range s.Location {
			*counts.At(l) += n
		}
	}
	return counts
}

type gapKey struct {
	lacks  Lack
	reason reason.Reason
}

// gaps counts the frames that lack something, by reason and binary.
type gaps map[gapKey]map[BinaryGap]int64

func (g gaps) add(k gapKey, m *pprof.Mapping, frames int64) {
	if g[k] == nil {
		g[k] = map[BinaryGap]int64{}
	}
	var b BinaryGap
	if m != nil {
		b = BinaryGap{File: m.File, BuildID: m.BuildID}
	}
	g[k][b] += frames
}

func (g gaps) sorted() []Gap {
	sorted := make([]Gap, 0, len(g))
	for k, binaries := range g {
		gap := Gap{Lacks: k.lacks, Reason: k.reason}
		for b, frames := range binaries {
			b.Frames = frames
			gap.Frames += frames
			gap.Binaries = append(gap.Binaries, b)
		}
		slices.SortFunc(gap.Binaries, func(a, b BinaryGap) int {
			return cmp.Or(cmp.Compare(b.Frames, a.Frames), cmp.Compare(a.File, b.File), cmp.Compare(a.BuildID, b.BuildID))
		})
		sorted = append(sorted, gap)
	}
	slices.SortFunc(sorted, func(a, b Gap) int {
		switch isLast, isFirst := a.Lacks == LacksProof, b.Lacks == LacksProof; {
		case isLast && !isFirst:
			return 1
		case isFirst && !isLast:
			return -1
		}
		return cmp.Or(cmp.Compare(b.Frames, a.Frames), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Lacks, b.Lacks))
	})
	return sorted
}
