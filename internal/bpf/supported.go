package bpf

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// errOldTree says why a kernel is too old whatever else it has.
var errOldTree = errors.New("before Linux 6.1 a process has its VMAs in another kind of tree than the programs walk")

// errPageSize says why a kernel with other pages (arm64 has them of 16 and 64 KiB) is not
// sampled: it counts file offsets in pages, and the programs take one for 4 KiB.
var errPageSize = errors.New("the kernel has pages of another size than the 4 KiB that the programs count with")

const mapleTree = "maple_tree"

// checkKernel says in plain words what would otherwise be an error of the loader.
func checkKernel() error {
	facts, err := factsOfKernel()
	if err != nil {
		return fmt.Errorf("the kernel does not describe its types (CONFIG_DEBUG_INFO_BTF): %w", err)
	}
	if !facts.has[mapleTree] {
		return errOldTree
	}
	return checkPageSize(os.Getpagesize())
}

func checkPageSize(bytes int) error {
	if bytes != 4096 {
		return errPageSize
	}
	return nil
}

// The function that schedules task work, under its two names.
const (
	taskWorkOld = "bpf_task_work_schedule_resume_impl" // 6.18 and 6.19
	taskWorkNew = "bpf_task_work_schedule_resume"
)

// leaveOldTaskWork takes the old name out of the programs where the kernel has the
// new one. Since 7.0 it has the old one as well, with other types (KF_IMPLICIT_ARGS),
// and the library refuses a function of other types, though nobody would call it.
func leaveOldTaskWork(spec *ebpf.CollectionSpec) {
	if !hasFunction(taskWorkNew) {
		return
	}
	for _, p := range spec.Programs {
		for i := range p.Instructions {
			ins := &p.Instructions[i]
			switch {
			case ins.Reference() != taskWorkOld:
			case ins.IsKfuncCall():
				*ins = asm.Mov.Imm(asm.R0, -1) // never reached
			case ins.OpCode.IsDWordLoad():
				*ins = asm.LoadImm(ins.Dst, 0, asm.DWord) // it does not exist
			}
		}
	}
}
