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
func CountCosts() (io.Closer, error) { return ebpf.EnableStats(unix.BPF_STATS_RUN_TIME) }

// Cost returns what the sampler took while costs were counted.
func (s *Sampler) Cost() (Cost, error) { return costOf(s.objects.Sample) }

func costOf(p *ebpf.Program) (Cost, error) {
	stats, err := p.Stats()
	if err != nil {
		return Cost{}, fmt.Errorf("cost of a BPF program: %w", err)
	}
	return Cost{stats.RunCount, stats.Runtime}, nil
}

// Comparison takes the user's part of stacks in three ways, to measure them side
// by side: nothing is done with the stacks.
type Comparison struct{ objects benchObjects }

// Way is a way of taking stacks.
type Way int

// The ways of a Comparison.
const (
	Addresses Way = iota // addresses only
	Stackmap             // the kernel's own build IDs: BPF_F_USER_BUILD_ID
	Offsets              // files and offsets, as the Sampler does it
)

// NewComparison loads the programs. The caller closes it.
func NewComparison() (*Comparison, error) {
	c := new(Comparison)
	spec, err := loadBench()
	if err == nil {
		err = configure(spec, HasTaskWork())
	}
	if err == nil {
		err = spec.LoadAndAssign(&c.objects, nil)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("loading the BPF programs to compare: %w", err), c.Close())
	}
	return c, nil
}

func (c *Comparison) program(w Way) *ebpf.Program {
	return [...]*ebpf.Program{c.objects.Raw, c.objects.Stackmap, c.objects.Ours}[w]
}

// Attach takes the samples of a perf event in one way.
func (c *Comparison) Attach(w Way, event int) error { return attach(event, c.program(w)) }

// Cost returns what a way took while costs were counted.
func (c *Comparison) Cost(w Way) (Cost, error) { return costOf(c.program(w)) }

// Statuses count the frames of the kernel's own way: enum bpf_stack_build_id_status.
type Statuses struct{ Valid, IP, Empty uint64 }

// Statuses returns the statuses of all frames so far.
func (c *Comparison) Statuses() (Statuses, error) {
	var cpus [][]byte
	if err := c.objects.Stackmaps.Lookup(uint32(0), &cpus); err != nil {
		return Statuses{}, fmt.Errorf("statuses of frames: %w", err)
	}
	var sum Statuses
	for _, cpu := range cpus {
		var n benchStackmapCounters
		if err := decode(cpu, &n); err != nil {
			return Statuses{}, err
		}
		sum.Valid += n.Valid
		sum.IP += n.Ip
		sum.Empty += n.Empty
	}
	return sum, nil
}

// Close unloads the programs.
func (c *Comparison) Close() error { return c.objects.Close() }
