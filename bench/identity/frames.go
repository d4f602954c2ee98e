package main

import (
	"fmt"
	"time"

	"hallmark/buildid"
	"hallmark/internal/bpf"
)

// frames counts the user frames that a Sampler delivers, by what the kernel side
// alone knows of them.
type frames struct {
	known  map[uint32]bool // serial numbers whose identity the kernel side read
	stacks map[bpf.StackID][]bpf.Frame
	counts map[bpf.StackID]uint64
}

func newFrames() *frames {
	return &frames{map[uint32]bool{}, map[bpf.StackID][]bpf.Frame{}, map[bpf.StackID]uint64{}}
}

// File is part of bpf.Handler.
func (f *frames) File(bpf.File) {}

// Identity is part of bpf.Handler.
func (f *frames) Identity(serial uint32, _ buildid.ID) { f.known[serial] = true }

// Stack is part of bpf.Handler.
func (f *frames) Stack(id bpf.StackID, frames []bpf.Frame) { f.stacks[id] = frames }

func (f *frames) take(s *bpf.Sampler) error {
	err := s.Counts(func(stack bpf.StackID, _ bpf.Owner, n uint64) { f.counts[stack] += n })
	if err != nil {
		return err
	}
	return s.Read(f)
}

// share is a kind of frame and how many there were.
type share struct {
	name   string
	frames uint64
}

var kinds = map[bpf.FrameKind]string{
	bpf.NotMapped: "not mapped",
	bpf.Generated: "generated code",
	bpf.InVDSO:    "vdso",
	bpf.InVDSO32:  "vdso",
	bpf.NoEntry:   "no room in the table",
	bpf.Unstable:  "mappings changed meanwhile",
}

// shares adds the frames up.
func (f *frames) shares() (sum uint64, shares []share) {
	by := map[string]uint64{}
	for stack, n := range f.counts {
		for _, frame := range f.stacks[stack] {
			name := kinds[frame.Kind]
			switch {
			case frame.Kind == bpf.InKernel:
				continue
			case frame.Kind == bpf.InFile && f.known[frame.Serial]:
				name = "identified in the kernel"
			case frame.Kind == bpf.InFile:
				name = "file told, identity left to user space"
			}
			by[name] += n
			sum += n
		}
	}
	for name, n := range by {
		shares = append(shares, share{name, n})
	}
	return sum, shares
}

func printCosts(c *bpf.Comparison, s *bpf.Sampler) error {
	fmt.Printf("%d s at %d Hz on each of %d CPUs\n\n| program | samples | ns a sample | above addresses |\n|---|---:|---:|---:|\n", *seconds, *hz, *cpus)
	base := 0.0
	for _, row := range []struct {
		name string
		cost func() (bpf.Cost, error)
	}{
		{"addresses only", func() (bpf.Cost, error) { return c.Cost(bpf.Addresses) }},
		{"the kernel's build IDs (BPF_F_USER_BUILD_ID)", func() (bpf.Cost, error) { return c.Cost(bpf.Stackmap) }},
		{"file and offset", func() (bpf.Cost, error) { return c.Cost(bpf.Offsets) }},
		{"the whole sampler, with kernel stacks and counting", s.Cost},
	} {
		cost, err := row.cost()
		if err != nil {
			return err
		}
		each := float64(cost.Time/time.Nanosecond) / float64(max(cost.Runs, 1))
		if base == 0 {
			base = each
		}
		fmt.Printf("| %s | %d | %.0f | %+.0f |\n", row.name, cost.Runs, each, each-base)
	}
	return nil
}

func printShares(c *bpf.Comparison, s *bpf.Sampler, f *frames) error {
	statuses, err := c.Statuses()
	if err != nil {
		return err
	}
	all := statuses.Valid + statuses.IP + statuses.Empty
	fmt.Printf("\n| frames of user code | share |\n|---|---:|\n")
	printShare("the kernel's: VALID", statuses.Valid, all)
	printShare("the kernel's: IP", statuses.IP, all)
	printShare("the kernel's: EMPTY", statuses.Empty, all)
	sum, shares := f.shares()
	for _, s := range shares {
		printShare("ours: "+s.name, s.frames, sum)
	}
	stats, err := s.Stats()
	if err != nil {
		return err
	}
	fmt.Printf("\nframes a sample: %.1f; lost: %d samples, %d events that come again\n%+v\n",
		float64(stats.Frames)/float64(max(stats.Samples, 1)), stats.LostCounts, stats.LostEvents, stats)
	return nil
}

func printShare(name string, n, of uint64) {
	fmt.Printf("| %s | %.2f %% |\n", name, 100*float64(n)/float64(max(of, 1)))
}
