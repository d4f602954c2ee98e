package bpf

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

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
