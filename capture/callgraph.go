package capture

import (
	"fmt"
	"strconv"
	"strings"
)

// CallGraph says how the callers of user code are found. The zero value is call frame
// information where the backend can use it: BPF in the kernel, Perf by copies of stacks. A copy
// costs about 0.1 ms of CPU time, which is 1 % of a processor at the usual frequency.
type CallGraph struct {
	By CallGraphBy
	// StackSize is how many bytes of the stack each sample of the backend Perf copies
	// with ByDWARF, a multiple of 8; DefaultStackSize when 0. Other backends copy none.
	StackSize int
}

// CallGraphBy is a way of finding callers.
type CallGraphBy uint8

// The ways.
const (
	AutoCallGraph CallGraphBy = iota
	// ByFP follows frame pointers, as the kernel does: cheap, and without what code that
	// keeps none has called.
	ByFP
	// ByDWARF unwinds by the call frame information of the files.
	ByDWARF
)

// DefaultStackSize holds the stacks of nearly all programs, at a cost that can be borne
// at the usual frequencies.
const DefaultStackSize = 16 << 10

// MaxStackSize is the most that a record has room for: its size is a number of 16 bits.
const MaxStackSize = 65528

// callGraphNames are perf's.
var callGraphNames = [...]string{AutoCallGraph: "auto", ByFP: "fp", ByDWARF: "dwarf"}

// String returns what ParseCallGraph understands.
func (c CallGraph) String() string {
	if c.StackSize != 0 {
		return fmt.Sprintf("%s,%d", callGraphNames[c.By], c.StackSize)
	}
	return callGraphNames[c.By]
}

// ParseCallGraph reads auto, fp, dwarf or dwarf,SIZE with a size in bytes.
func ParseCallGraph(s string) (CallGraph, error) {
	name, size, sized := strings.Cut(s, ",")
	for by, n := range callGraphNames {
		if n != name {
			continue
		}
		c := CallGraph{By: CallGraphBy(by)}
		if !sized {
			return c, nil
		}
		if c.By != ByDWARF {
			return CallGraph{}, fmt.Errorf("call graph %q: only dwarf has a size", s)
		}
		n, err := strconv.ParseUint(size, 0, 32)
		if err != nil || n == 0 || n%8 != 0 || n > MaxStackSize {
			return CallGraph{}, fmt.Errorf("call graph %q: the size is a multiple of 8 up to %d", s, MaxStackSize)
		}
		c.StackSize = int(n)
		return c, nil
	}
	return CallGraph{}, fmt.Errorf("unknown call graph %q: auto, fp and dwarf[,SIZE] can be asked for", s)
}
