package profile

import (
	"cmp"
	"encoding/json"
	"slices"

	pprof "github.com/google/pprof/profile"

	"hallmark/reason"
)

// Stacks says how many of a profile's stacks have all frames of the user's part. It counts
// samples, without those of kernel threads, which have no such part, and without those
// that do not say.
type Stacks struct {
	Samples  int64 `json:"samples"`
	Complete int64 `json:"complete"`
	// KernelOnly are the samples that have no user's part, beside Samples.
	KernelOnly int64 `json:"kernel_only,omitempty"`

	// Gaps are the samples whose stack lacks frames, by reason, the most first.
	Gaps []StackGap `json:"gaps"`
}

// StackGap is the samples whose stacks lack frames for the same reason.
type StackGap struct {
	Reason   reason.Reason
	Samples  int64
	Binaries []StackBinary // in which the outermost frames are that there are, the most first

	// Fitting is what helps in this case, where Reason.Advice does not fit it.
	Fitting string
}

// Advice says what can be done about the gap, "" if nothing.
func (g *StackGap) Advice() string { return cmp.Or(g.Fitting, g.Reason.Advice()) }

// MarshalJSON writes the reason as its code, its text and its advice.
func (g StackGap) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Reason   reason.Reason `json:"reason"`
		Text     string        `json:"text"`
		Advice   string        `json:"advice,omitempty"`
		Samples  int64         `json:"samples"`
		Binaries []StackBinary `json:"binaries"`
	}{g.Reason, g.Reason.String(), g.Advice(), g.Samples, g.Binaries})
}

// StackBinary is the part of a StackGap in one binary.
type StackBinary struct {
	File    string `json:"binary,omitempty"`   // Mapping.File
	BuildID string `json:"build_id,omitempty"` // Mapping.BuildID
	Samples int64  `json:"samples"`
}

// MeasureStacks returns how many stacks of p are complete, or nil where no sample says.
func MeasureStacks(p *pprof.Profile) *Stacks {
	meter := stackMeter{}
	counts := sampleCounts(p)
	for _, s := range p.Sample {
		if why, told := StackEnd(s); told {
			meter.add(why, stackBinary(outermost(s)), counts(s))
		}
	}
	return meter.sum()
}

// stackMeter counts samples by the end of their stack, and by the binary of the outermost frame.
type stackMeter map[reason.Reason]map[StackBinary]int64

func (m stackMeter) add(why reason.Reason, b StackBinary, samples int64) {
	if samples == 0 {
		return
	}
	if m[why] == nil {
		m[why] = map[StackBinary]int64{}
	}
	m[why][b] += samples
}

// sum returns what was counted, nil where that is nothing.
func (m stackMeter) sum() *Stacks {
	sum := &Stacks{Gaps: []StackGap{}}
	for why, binaries := range m {
		gap := stackGap(why, binaries)
		switch why {
		case reason.NoUserStack:
			sum.KernelOnly += gap.Samples
			continue
		case reason.None:
			sum.Complete += gap.Samples
		default:
			sum.Gaps = append(sum.Gaps, gap)
		}
		sum.Samples += gap.Samples
	}
	if sum.Samples == 0 {
		return nil
	}
	slices.SortFunc(sum.Gaps, func(a, b StackGap) int {
		return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(a.Reason, b.Reason))
	})
	return sum
}

// outermost returns the mapping of a sample's last frame, nil for none.
func outermost(s *pprof.Sample) *pprof.Mapping {
	if n := len(s.Location); n > 0 {
		return s.Location[n-1].Mapping
	}
	return nil
}

// stackBinary names the binary of a mapping.
func stackBinary(m *pprof.Mapping) (b StackBinary) {
	if m != nil {
		b = StackBinary{File: m.File, BuildID: m.BuildID}
	}
	return b
}

func stackGap(why reason.Reason, binaries map[StackBinary]int64) StackGap {
	gap := StackGap{Reason: why}
	for b, n := range binaries {
		b.Samples = n
		gap.Samples += n
		gap.Binaries = append(gap.Binaries, b)
	}
	slices.SortFunc(gap.Binaries, func(a, b StackBinary) int {
		return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(a.File, b.File), cmp.Compare(a.BuildID, b.BuildID))
	})
	return gap
}

// sampleCounts returns a function that says how often a sample was taken: once in a
// profile that does not count samples.
func sampleCounts(p *pprof.Profile) func(*pprof.Sample) int64 {
	index, err := SampleIndex(p, "samples")
	return func(s *pprof.Sample) int64 {
		if err != nil {
			return 1
		}
		return max(s.Value[index], -s.Value[index])
	}
}
