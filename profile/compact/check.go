package compact

import (
	"fmt"
	"math"

	"hallmark/profile"
)

// noLimits are those of a profile that somebody else has checked.
var noLimits = profile.Limits{Memory: math.MaxInt64, Text: math.MaxInt64, Calls: math.MaxInt64, Shown: math.MaxInt64}

// Check returns profile.ErrTooLarge if the profile stands for more names or calls than its file may: one that a few
// bytes made, or one that got names with inlined calls since. Each question about a profile goes over all of these.
func (p *Profile) Check() error {
	if err := p.checkText(); err != nil {
		return err
	}
	return p.checkCalls()
}

// checkText counts names as often as they are used.
func (p *Profile) checkText() error {
	sum := int64(0)
	for i := range p.locations {
		l := &p.locations[i]
		if m := p.Mapping(l); m != nil {
			sum += int64(len(m.File) + len(m.BuildID))
		}
		for _, line := range p.Lines(l) {
			f := &p.functions[line.Function()]
			sum += int64(len(f.Name) + len(f.SystemName) + len(f.Filename))
		}
		if sum > p.limits.Text {
			return fmt.Errorf("%w: location %d of %d: names are used so often that they make more than %d MiB", profile.ErrTooLarge, i+1, len(p.locations), p.limits.Text>>20)
		}
	}
	for set := range p.LabelSets() {
		for _, l := range p.LabelSet(uint32(set)) {
			sum += int64(len(l.Key) + len(l.Text))
		}
		if sum > p.limits.Text {
			return fmt.Errorf("%w: labels are used so often that they make more than %d MiB", profile.ErrTooLarge, p.limits.Text>>20)
		}
	}
	return nil
}

// checkCalls counts the calls of the stacks, the inlined ones too.
func (p *Profile) checkCalls() error {
	calls, most := make([]uint32, len(p.locations)), uint32(1) // of a location
	for i := range p.locations {
		calls[i] = uint32(max(1, len(p.Lines(&p.locations[i]))))
		most = max(most, calls[i])
	}
	if p.tree.frames.count <= p.limits.Calls/int64(most) {
		return nil
	}
	sum := int64(0)
	for n := range p.tree.Nodes() {
		for _, at := range p.tree.Frames(uint32(n)) {
			sum += int64(calls[at])
		}
		if sum > p.limits.Calls {
			return fmt.Errorf("%w: its stacks have more than %d frames, with inlined calls", profile.ErrTooLarge, p.limits.Calls)
		}
	}
	return nil
}
