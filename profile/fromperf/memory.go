package fromperf

import (
	"fmt"

	"hallmark/profile"
)

// Bytes of memory that what is counted takes, here and in the profile.
const (
	nodeCost    = 72
	placeCost   = 420
	ownerCost   = 1400
	countedCost = 700
	fileCost    = 1200
	processCost = 500
	mappingCost = 96
	nameCost    = 8 // for each byte of the name of a file
)

// checkMemory returns profile.ErrTooLarge if what was counted takes more than it may.
func (p *replay) checkMemory() error {
	if p.memory == 0 {
		return nil
	}
	sum := len(p.known.all)*placeCost + len(p.files.byKey)*fileCost + len(p.processes)*processCost +
		p.mappings*mappingCost + p.files.text*nameCost
	for _, t := range p.events.all {
		c := t.counts
		sum += len(c.stacks.nodes)*nodeCost + len(c.owners.all)*ownerCost + len(c.all)*countedCost
	}
	if int64(sum) > p.memory {
		return fmt.Errorf("%w: at offset %d it takes more than %d MiB of memory", profile.ErrTooLarge, p.r.Offset(), p.memory>>20)
	}
	return nil
}

// enough is how many stacks of owners are counted until owners have only names: half of what
// there is memory for.
func (p *replay) enough() int {
	if p.memory == 0 {
		return maxNumbered
	}
	return int(min(maxNumbered, p.memory/2/(ownerCost+countedCost)))
}
