package bpf

import (
	"errors"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
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
	if err := s.spec.LoadAndAssign(&s.objects, s.options); err != nil {
		return err
	}
	s.noStock = errors.ErrUnsupported
	if running {
		s.noStock = checkStock()
	}
	if s.noStock == nil {
		var it *iterator
		if it, s.noStock = loadIterator(s.spec, samplerProgTakeStock, s.shared()); s.noStock == nil {
			s.stock = &Stock{objects: stockObjects{it.program, s.objects.Order, s.objects.StockDone}}
			return s.stock.attach()
		}
	}
	return nil
}

// iterateVMAs is a function that programs call, and that kernels before 6.7 do not have.
const iterateVMAs = "bpf_iter_task_vma_new"

// kernelFacts is what is to be known of the running kernel before programs are loaded.
type kernelFacts struct {
	has   map[string]bool // functions and structures that not all kernels have
	btrfs btrfsOffsets    // zeros if it is a module
	// iterators are the numbers of the functions that stand for them, by name.
	iterators map[string]btf.TypeID
}

// factsOfKernel returns the facts. The error is that of reading the kernel's types.
var factsOfKernel = sync.OnceValues(func() (facts kernelFacts, err error) {
	kernel, err := openKernelTypes()
	if err != nil {
		return facts, err
	}
	defer kernel.close()
	facts.has, facts.iterators = map[string]bool{}, map[string]btf.TypeID{}
	wanted := map[string]bool{iterateVMAs: true, taskWorkOld: true, taskWorkNew: true, mapleTree: true, btrfsInode: true, btrfsRoot: true}
	for _, of := range []string{"task", "task_file", "task_vma"} {
		wanted[iteratorPrefix+of] = true
	}
	var subvolumes btrfsTypes
	kernel.named(wanted, func(id uint32, t btfType) {
		if t.kind() == kindFunc || t.kind() == kindStruct {
			name := string(kernel.name(t.nameOff()))
			if t.kind() == kindFunc && strings.HasPrefix(name, iteratorPrefix) {
				facts.addIterator(name, btf.TypeID(id))
			}
			facts.has[name] = true
			subvolumes.add(name, t, kernel.name)
		}
	})
	facts.btrfs = subvolumes.offsets()
	return facts, nil
})

// addIterator notes the number of an iterator. Which of two with one name is meant is for the library
// to say.
func (f *kernelFacts) addIterator(name string, id btf.TypeID) {
	if _, ok := f.iterators[name]; ok {
		id = 0
	}
	f.iterators[name] = id
}

// hasFunction reports whether the kernel has a function that programs may call.
func hasFunction(name string) bool {
	facts, _ := factsOfKernel() // without its types it has nothing that can be called
	return facts.has[name]
}
