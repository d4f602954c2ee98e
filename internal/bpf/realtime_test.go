package bpf

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"hallmark/internal/testenv"
)

// TestRealTimeKernel loads the programs with the types of a kernel whose locks do not record who
// has them, as with PREEMPT_RT: struct rw_semaphore of include/linux/rwsem.h has no owner there.
func TestRealTimeKernel(t *testing.T) {
	testenv.Root(t)
	for object, program := range map[string]string{"sampler_bpfel.o": "sample", "exec_bpfel.o": "see_exec"} {
		spec, err := ebpf.LoadCollectionSpec(object)
		if err != nil {
			t.Fatal(err)
		}
		if err := configure(spec, HasTaskWork()); err != nil {
			t.Fatal(err)
		}
		opts := loadOptions(spec)
		if opts == nil {
			t.Fatal("no types of the kernel")
		}
		var lock *btf.Struct
		if err := opts.Programs.KernelTypes.TypeByName("rw_semaphore", &lock); err != nil {
			t.Fatal(err)
		}
		lock.Members = slices.DeleteFunc(lock.Members, func(m btf.Member) bool { return m.Name == "owner" })
		var area *btf.Struct
		if err := opts.Programs.KernelTypes.TypeByName("vm_area_struct", &area); err != nil {
			t.Fatal(err)
		}
		testenv.Need(t, slices.ContainsFunc(area.Members, func(m btf.Member) bool { return m.Name == "vm_lock_seq" }), "Linux 6.4, where VMAs are marked")
		if v := spec.Variables["unwinding"]; v != nil {
			if err := v.Set(true); err != nil {
				t.Fatal(err)
			}
		}
		for name := range spec.Programs {
			if name != program {
				delete(spec.Programs, name)
			}
		}
		loaded, err := ebpf.NewCollectionWithOptions(spec, *opts)
		if err != nil {
			t.Errorf("%s: %v", program, err)
			continue
		}
		loaded.Close()
	}
}
