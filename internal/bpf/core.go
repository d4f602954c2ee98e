package bpf

import (
	"errors"
	"sync"

	"github.com/cilium/ebpf"
)

// coreObjects are what every Sampler has. The other programs of the same object file
// are loaded when they are wanted, where the kernel takes them.
type coreObjects struct {
	samplerMaps
	samplerVariables
	Sample *ebpf.Program `ebpf:"sample"`
	// Variables: those that begin as 0, and the others.
	Zeroed  *ebpf.Map `ebpf:".bss"`
	Started *ebpf.Map `ebpf:".data"`
}

// shared returns options with which programs that are loaded later use these maps and
// variables in place of some of their own.
func (s *Sampler) shared() *ebpf.CollectionOptions {
	var opts ebpf.CollectionOptions
	if s.options != nil {
		opts = *s.options
	}
	opts.MapReplacements = map[string]*ebpf.Map{
		samplerMapFiles:  s.objects.Files,
		samplerMapEvents: s.objects.Events,
		".bss":           s.objects.Zeroed,
		".data":          s.objects.Started,
	}
	return &opts
}

// Close unloads them.
func (o *coreObjects) Close() error {
	return errors.Join(o.samplerMaps.Close(), o.Sample.Close(), o.Zeroed.Close(), o.Started.Close())
}

// loadObjects loads the program that samples, and with it the one that enters running
// processes, if that is wanted and can be had.
func (s *Sampler) loadObjects(running bool) error {
	s.noStock = errors.ErrUnsupported
	if running {
		s.noStock = checkStock()
	}
	if s.noStock == nil {
		var all struct {
			coreObjects
			stockProgram
		}
		if s.noStock = s.spec.LoadAndAssign(&all, s.options); s.noStock == nil {
			s.objects = all.coreObjects
			s.stock = &Stock{objects: stockObjects{all.stockProgram, s.objects.Order, s.objects.StockDone}}
			return s.stock.attach()
		}
	}
	return s.spec.LoadAndAssign(&s.objects, s.options)
}

// iterateVMAs is a function that programs call, and that kernels before 6.7 do not have.
const iterateVMAs = "bpf_iter_task_vma_new"

// kernelHas tells which of the functions and structures that not all kernels have are in
// this one. The error is that of reading its types.
var kernelHas = sync.OnceValues(func() (map[string]bool, error) {
	kernel, err := openKernelTypes()
	if err != nil {
		return nil, err
	}
	defer kernel.close()
	has := map[string]bool{}
	kernel.named(map[string]bool{iterateVMAs: true, taskWorkOld: true, taskWorkNew: true, mapleTree: true}, func(_ uint32, t btfType) {
		if t.kind() == kindFunc || t.kind() == kindStruct {
			has[string(kernel.name(t.nameOff()))] = true
		}
	})
	return has, nil
})

// hasFunction reports whether the kernel has a function that programs may call.
func hasFunction(name string) bool {
	has, _ := kernelHas() // without its types it has nothing that can be called
	return has[name]
}
