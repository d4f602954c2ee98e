package bpf

import (
	"errors"

	"github.com/cilium/ebpf"
)

// coreObjects are what every Sampler has. The other programs of the same object file
// are loaded when they are wanted, where the kernel takes them.
type coreObjects struct {
	samplerMaps
	samplerVariables
	Sample    *ebpf.Program `ebpf:"sample"`
	Variables *ebpf.Map     `ebpf:".bss"`
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
		".bss":           s.objects.Variables,
	}
	return &opts
}

// Close unloads them.
func (o *coreObjects) Close() error {
	return errors.Join(o.samplerMaps.Close(), o.Sample.Close(), o.Variables.Close())
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

// hasFunction reports whether the kernel has a function that programs may call.
func hasFunction(name string) bool {
	kernel, err := openKernelTypes()
	if err != nil {
		return false
	}
	defer kernel.close()
	return len(kernel.functions(map[string]bool{name: true})) > 0
}
