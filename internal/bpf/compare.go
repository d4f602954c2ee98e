package bpf

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Cost is what a program took since statistics were counted.
type Cost struct {
	Runs uint64
	Time time.Duration
}

// CountCosts has the kernel measure every run of every program until it is closed.
func CountCosts() (io.Closer, error) {
	c, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return nil, fmt.Errorf("counting what BPF programs cost: %w", err)
	}
	return c, nil
}

// Cost returns what the sampler took while costs were counted.
func (s *Sampler) Cost() (Cost, error) { return costOf(s.objects.Sample) }

func costOf(p *ebpf.Program) (Cost, error) {
	stats, err := p.Stats()
	if err != nil {
		return Cost{}, fmt.Errorf("cost of a BPF program: %w", err)
	}
	return Cost{stats.RunCount, stats.Runtime}, nil
}

// Comparison takes the user's part of stacks in several ways, to measure them side
// by side: nothing is done with the stacks.
type Comparison struct{ objects benchObjects }

// Way is a way of taking stacks.
type Way int

// The ways of a Comparison.
const (
	Addresses Way = iota // addresses only
	BuildIDs             // the kernel's own build IDs: bpf_get_stack with BPF_F_USER_BUILD_ID
	StackIDs             // the same in a map of stacks: bpf_get_stackid
	Offsets              // files and offsets, as the Sampler does it
	Both                 // where each frame is to which the kernel gave a build ID or none
)

// NewComparison loads the programs. The caller closes it.
func NewComparison() (*Comparison, error) {
	c := new(Comparison)
	spec, err := loadBench()
	if err == nil {
		limitStacks(spec, stackDepth(), 0)
		err = configure(spec, HasTaskWork())
	}
	if err == nil {
		err = spec.LoadAndAssign(&c.objects, loadOptions(spec))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("loading the BPF programs to compare: %w", err), c.Close())
	}
	return c, nil
}

func (c *Comparison) program(w Way) *ebpf.Program {
	o := &c.objects
	return [...]*ebpf.Program{o.Addresses, o.BuildIds, o.StackIds, o.Offsets, o.Compare}[w]
}

// Attach takes the samples of a perf event in one way.
func (c *Comparison) Attach(w Way, event int) error { return attach(event, c.program(w)) }

// Cost returns what a way took while costs were counted.
func (c *Comparison) Cost(w Way) (Cost, error) { return costOf(c.program(w)) }

// Statuses count frames by what the kernel's own way knows of them.
type Statuses struct{ Empty, Valid, IP uint64 }

// All returns the number of all frames.
func (s Statuses) All() uint64 { return s.Empty + s.Valid + s.IP }

// Frames are the frames that were looked at in Both ways, by where they are: enum
// where_mapped of bench.bpf.c.
type Frames struct {
	Stacks  uint64
	Code    Statuses // in executable mappings of files
	Data    Statuses // in other mappings of files
	Memory  Statuses // in memory without a file, the vdso for instance
	Nowhere Statuses // in no mapping
	Changed Statuses // unknown, because the mappings changed meanwhile
}

// All returns the frames wherever they are.
func (f *Frames) All() Statuses {
	var sum Statuses
	for _, s := range f.parts() {
		sum.Empty += s.Empty
		sum.Valid += s.Valid
		sum.IP += s.IP
	}
	return sum
}

// parts returns the statuses in the order of enum where_mapped.
func (f *Frames) parts() []*Statuses {
	return []*Statuses{&f.Code, &f.Data, &f.Memory, &f.Nowhere, &f.Changed}
}

// Frames returns what was counted so far.
func (c *Comparison) Frames() (Frames, error) {
	var cpus [][]byte
	if err := c.objects.Comparisons.Lookup(uint32(0), &cpus); err != nil {
		return Frames{}, fmt.Errorf("reading the counters of BPF: %w", err)
	}
	var sum Frames
	for _, cpu := range cpus {
		var n benchComparisonCounters
		if err := decode(cpu, &n); err != nil {
			return Frames{}, err
		}
		sum.Stacks += n.Stacks
		for i, s := range sum.parts() {
			status := n.Frames[3*i:]
			s.Empty += status[StatusEmpty]
			s.Valid += status[StatusValid]
			s.IP += status[StatusIP]
		}
	}
	return sum, nil
}

// Close unloads the programs.
func (c *Comparison) Close() error { return c.objects.Close() }
