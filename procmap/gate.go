package procmap

import (
	"io"
	"os"
	"sync"
	"sync/atomic"

	"hallmark/addr"
)

// The gate VMA is x86's [vsyscall] page: it is in no process' tree of VMAs, so
// PROCMAP_QUERY does not find it, and the text ends with it, in processes of 64
// bits only (get_gate_vma in arch/x86/entry/vsyscall/vsyscall_64.c). Both ways
// must give the same, so queries add it where the text would have it.

// kernelHalf is where the addresses of user space end for good.
const kernelHalf addr.Abs = 1 << 63

// top32 is the end of the address space of a process of 32 bits.
const top32 addr.Abs = 1 << 32

// gateNext returns the gate VMA if p has one that ends above a and passes the
// flags.
func (p *Process) gateNext(q *querier, a addr.Abs, flags uint64) (VMA, bool, error) {
	if flags&fileBacked != 0 {
		return VMA{}, false, nil
	}
	v, err := machineGate()
	if err != nil || v.End <= a {
		return VMA{}, false, err
	}
	wide, err := p.width.is64(q)
	if err != nil || !wide {
		return VMA{}, false, err
	}
	return v, true, nil
}

// width remembers whether a process has addresses of 64 bits.
type width struct{ wide, narrow atomic.Bool }

// is64 reports whether anything is mapped above 4 GiB. Every process of 64 bits
// has at least its stack there.
func (w *width) is64(q *querier) (bool, error) {
	if w.wide.Load() || w.narrow.Load() {
		return w.wide.Load(), nil
	}
	above, err := q.exists(top32)
	if err == nil {
		w.wide.Store(above)
		w.narrow.Store(!above)
	}
	return above, err
}

var gateOnce struct {
	sync.Mutex
	known bool
	vma   VMA
}

// machineGate returns the gate VMA as this process has it; a zero VMA where the
// architecture or the command line of the kernel provides none.
func machineGate() (VMA, error) {
	gateOnce.Lock()
	defer gateOnce.Unlock()
	if gateOnce.known {
		return gateOnce.vma, nil
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return VMA{}, err
	}
	defer f.Close()
	list, err := ReadText(f)
	if err != nil {
		return VMA{}, err
	}
	if len(list) == 0 {
		return VMA{}, io.ErrUnexpectedEOF
	}
	if last := list[len(list)-1]; last.Start >= kernelHalf {
		gateOnce.vma = last
	}
	gateOnce.known = true
	return gateOnce.vma, nil
}
