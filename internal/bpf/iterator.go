package bpf

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// iterator is a program that the kernel runs for each of something (Documentation/bpf/bpf_iterators.rst).
type iterator struct {
	program   *ebpf.Program
	variables map[string]*ebpf.Variable // of its maps
}

// loadIterator loads an iterator of a spec that loadOptions has prepared. The caller closes the
// program.
//
// The kernel wants to know the number of a type with it. The library would read all types of the
// kernel to find that; here it is known. All else that the library does is done as it does it, and
// where anything is not as it should be the library has the last word.
func loadIterator(spec *ebpf.CollectionSpec, name string, opts *ebpf.CollectionOptions) (*iterator, error) {
	part := partOf(spec, name)
	if opts == nil {
		opts = new(ebpf.CollectionOptions)
	}
	own := *opts
	own.MapReplacements = map[string]*ebpf.Map{}
	for of, m := range opts.MapReplacements {
		if part.Maps[of] != nil {
			own.MapReplacements[of] = m
		}
	}
	program := part.Programs[name]
	target := targetOf(program)
	if target != 0 && isPrepared(program) {
		part.Programs = nil
	}
	c, err := ebpf.NewCollectionWithOptions(part, own)
	if err != nil {
		return nil, err
	}
	defer c.Close() // but for what is taken out
	it := &iterator{program: c.DetachProgram(name), variables: c.Variables}
	if it.program != nil {
		return it, nil
	}
	if it.program, err = loadTargeted(program, c.Maps, target); err == nil {
		return it, nil
	}
	part.Programs = map[string]*ebpf.ProgramSpec{name: program}
	own.MapReplacements = c.Maps
	again, err := ebpf.NewCollectionWithOptions(part, own)
	if err != nil {
		return nil, err
	}
	defer again.Close()
	return &iterator{program: again.DetachProgram(name), variables: again.Variables}, nil
}

// partOf returns a program with its maps and their variables.
func partOf(spec *ebpf.CollectionSpec, name string) *ebpf.CollectionSpec {
	part := &ebpf.CollectionSpec{
		Maps:      map[string]*ebpf.MapSpec{},
		Programs:  map[string]*ebpf.ProgramSpec{name: spec.Programs[name]},
		Variables: map[string]*ebpf.VariableSpec{},
		Types:     spec.Types,
		ByteOrder: spec.ByteOrder,
	}
	for i := range spec.Programs[name].Instructions {
		if ins := &spec.Programs[name].Instructions[i]; ins.IsLoadFromMap() && ins.Reference() != "" {
			part.Maps[ins.Reference()] = spec.Maps[ins.Reference()]
		}
	}
	for of, v := range spec.Variables {
		if part.Maps[v.SectionName] != nil {
			part.Variables[of] = v
		}
	}
	return part
}

// targetOf returns the number of the type that an iterator is of, 0 if it is not known.
func targetOf(p *ebpf.ProgramSpec) btf.TypeID {
	if p.Type != ebpf.Tracing || p.AttachType != ebpf.AttachTraceIter {
		return 0
	}
	facts, _ := factsOfKernel() // without, the library says why
	return facts.iterators[iteratorPrefix+p.AttachTo]
}

// iteratorPrefix begins the name of the function that stands for an iterator.
const iteratorPrefix = "bpf_iter_"

// isPrepared reports whether nothing in a program depends on the kernel any more.
func isPrepared(p *ebpf.ProgramSpec) bool {
	for i := range p.Instructions {
		ins := &p.Instructions[i]
		if btf.CORERelocationMetadata(ins) != nil || ins.IsKfuncCall() && ins.Reference() != "" {
			return false
		}
	}
	return true
}

// loadTargeted loads a program that is of a type of the kernel.
func loadTargeted(p *ebpf.ProgramSpec, maps map[string]*ebpf.Map, target btf.TypeID) (*ebpf.Program, error) {
	insns := make(asm.Instructions, len(p.Instructions))
	copy(insns, p.Instructions)
	for i := range insns {
		ins := &insns[i]
		if !ins.IsLoadFromMap() || ins.Reference() == "" {
			continue
		}
		if err := ins.AssociateMap(maps[ins.Reference()]); err != nil {
			return nil, err
		}
	}
	var types btf.Builder
	functions, lines, err := btf.MarshalExtInfos(insns, &types)
	if err != nil {
		return nil, err
	}
	handle, err := btf.NewHandle(&types)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	code := newCode(insns.Size())
	if err := insns.Marshal(code, p.ByteOrder); err != nil {
		return nil, err
	}
	license := append([]byte(p.License), 0)
	load := loadAttr{
		kind: uint32(p.Type), count: uint32(len(code.b)) / asm.InstructionSize, code: pointer(code.b), license: pointer(license),
		flags: p.Flags, attach: uint32(p.AttachType), types: uint32(handle.FD()),
		functionSize: btf.FuncInfoSize, functions: pointer(functions), functionCount: uint32(len(functions)) / btf.FuncInfoSize,
		lineSize: btf.LineInfoSize, lines: pointer(lines), lineCount: uint32(len(lines)) / btf.LineInfoSize,
		target: uint32(target),
	}
	copy(load.name[:len(load.name)-1], p.Name)
	fd, err := load.do()
	runtime.KeepAlive(maps)
	if err != nil {
		return nil, err
	}
	return ebpf.NewProgramFromFD(fd)
}

// code takes what is written.
type code struct{ b []byte }

func newCode(size uint64) *code { return &code{make([]byte, 0, size)} }

func (c *code) Write(b []byte) (int, error) {
	c.b = append(c.b, b...)
	return len(b), nil
}

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// loadAttr is the part for BPF_PROG_LOAD of union bpf_attr (include/uapi/linux/bpf.h), as far as it
// is needed.
type loadAttr struct {
	kind, count               uint32
	code, license             unsafe.Pointer
	logLevel, logSize         uint32
	log                       unsafe.Pointer
	version, flags            uint32
	name                      [16]byte
	device, attach            uint32
	types, functionSize       uint32
	functions                 unsafe.Pointer
	functionCount, lineSize   uint32
	lines                     unsafe.Pointer
	lineCount, target         uint32
	targetIn, relocationCount uint32
}

// tries is how often a program is loaded while signals interrupt it.
const tries = 30

// do loads the program, and returns its descriptor.
func (a *loadAttr) do() (int, error) {
	err := unix.Errno(unix.EAGAIN)
	for range tries {
		var fd uintptr
		fd, _, err = unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(a)), unsafe.Sizeof(*a))
		if err == 0 {
			return int(fd), nil
		}
		if !errors.Is(err, unix.EAGAIN) {
			break
		}
	}
	return -1, fmt.Errorf("loading a BPF program: %w", err)
}
