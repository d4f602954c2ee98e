package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// kernelTypes is the BTF of the running kernel (Documentation/bpf/btf.rst): some
// hundred thousand types, of which programs ask for a few dozen. To have the
// library decode all of them takes longer than anything else in loading a program
// but the kernel's own check, and as much memory as recording itself. So the
// library is given only those that are asked for: see reduced.
type kernelTypes struct {
	mapped  []byte
	types   []byte
	strings []byte
	count   uint32   // numbers of types; that of number 0, void, among them
	marks   []uint32 // the offsets in types of the types with number 1, 1+markEvery, 1+2*markEvery …
}

// markEvery is how many types lie from one whose offset is kept to the next: the offsets of all
// would take as much memory as what is read of them.
const markEvery = 32

const kernelTypesFile = "/sys/kernel/btf/vmlinux"

var errBTF = errors.New("BTF that is not understood")

// openKernelTypes maps the types of the running kernel. The caller closes them.
func openKernelTypes() (*kernelTypes, error) {
	f, err := os.Open(kernelTypesFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	k := new(kernelTypes)
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
	if err == nil {
		k.mapped = data
	} else if data, err = os.ReadFile(kernelTypesFile); err != nil { // before Linux 6.16
		return nil, err
	}
	if err := k.parse(data); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", kernelTypesFile, err), k.close())
	}
	return k, nil
}

func (k *kernelTypes) close() error {
	mapped := k.mapped
	*k = kernelTypes{}
	if mapped == nil {
		return nil
	}
	return unix.Munmap(mapped)
}

// btfHeader is struct btf_header of include/uapi/linux/btf.h.
type btfHeader struct {
	Magic            uint16
	Version, Flags   uint8
	Length           uint32
	Types, TypesSize uint32
	Strings, Size    uint32
}

const (
	btfMagic      = 0xeb9f
	btfHeaderSize = 24
	btfTypeSize   = 12 // of struct btf_type
)

// parse finds where each type is.
func (k *kernelTypes) parse(data []byte) error {
	var h btfHeader
	if _, err := binary.Decode(data, binary.NativeEndian, &h); err != nil || h.Magic != btfMagic || int64(h.Length) > int64(len(data)) {
		return errBTF
	}
	data = data[h.Length:]
	if uint64(h.Types)+uint64(h.TypesSize) > uint64(len(data)) || uint64(h.Strings)+uint64(h.Size) > uint64(len(data)) {
		return errBTF
	}
	k.types = data[h.Types : h.Types+h.TypesSize]
	k.strings = data[h.Strings : h.Strings+h.Size]
	k.marks, k.count = make([]uint32, 0, 1+len(k.types)/30/markEvery), 1 // a type with its parts has about 30 bytes
	for at := 0; at < len(k.types); k.count++ {
		if at+btfTypeSize > len(k.types) {
			return errBTF
		}
		if k.count%markEvery == 1 {
			k.marks = append(k.marks, uint32(at))
		}
		rest, ok := btfType(k.types[at:]).rest()
		if at += btfTypeSize + rest; !ok || at > len(k.types) {
			return errBTF
		}
	}
	return nil
}

// typ returns a type, by its number, and what belongs to it.
func (k *kernelTypes) typ(id uint32) btfType {
	at := int(k.marks[(id-1)/markEvery])
	for range (id - 1) % markEvery {
		rest, _ := btfType(k.types[at:]).rest()
		at += btfTypeSize + rest
	}
	t := btfType(k.types[at:])
	rest, _ := t.rest()
	return t[:btfTypeSize+rest]
}

// named calls f with the types that have one of these names.
func (k *kernelTypes) named(names map[string]bool, f func(id uint32, t btfType)) {
	begins := beginsOf(names)
	for id, at := uint32(1), 0; id < k.count; id++ {
		t := btfType(k.types[at:])
		rest, _ := t.rest()
		at += btfTypeSize + rest
		if name := t.nameOff(); name != 0 && begins.may(k.strings, name) && names[string(k.name(name))] {
			f(id, t[:btfTypeSize+rest])
		}
	}
}

// begins has a bit for each hash of the first four bytes of some names, with the zero behind
// them: nearly all other names differ from them in these bytes.
type begins [1 << 16 / 64]uint64

func beginsOf(names map[string]bool) *begins {
	b := new(begins)
	for name := range names {
		if len(name) >= 3 {
			i := beginHash(binary.NativeEndian.Uint32([]byte(name + "\x00")))
			b[i/64] |= 1 << (i % 64)
		}
	}
	return b
}

func beginHash(first uint32) uint32 { return first * 0x9e3779b1 >> 16 }

// may reports whether the name at an offset of strings may be one of the names.
func (b *begins) may(strings []byte, at uint32) bool {
	if uint64(at)+4 > uint64(len(strings)) || strings[at+1] == 0 || strings[at+2] == 0 {
		return true
	}
	i := beginHash(binary.NativeEndian.Uint32(strings[at:]))
	return b[i/64]&(1<<(i%64)) != 0
}

// name returns the name at an offset of the strings.
func (k *kernelTypes) name(at uint32) []byte {
	if uint64(at) >= uint64(len(k.strings)) {
		return nil
	}
	name, _, _ := bytes.Cut(k.strings[at:], []byte{0})
	return name
}

// btfType is a struct btf_type with what follows it.
type btfType []byte

// Kinds of types, BTF_KIND_* of include/uapi/linux/btf.h.
const (
	kindInt = iota + 1
	kindPtr
	kindArray
	kindStruct
	kindUnion
	kindEnum
	kindFwd
	kindTypedef
	kindVolatile
	kindConst
	kindRestrict
	kindFunc
	kindFuncProto
	kindVar
	kindDatasec
	kindFloat
	kindDeclTag
	kindTypeTag
	kindEnum64
)

// The parts that follow a type, and how large each is.
var (
	btfFixed = [...]int{kindInt: 4, kindArray: 12, kindVar: 4, kindDeclTag: 4, kindEnum64: 0}
	btfParts = [...]int{kindStruct: 12, kindUnion: 12, kindEnum: 8, kindFuncProto: 8, kindDatasec: 12, kindEnum64: 12}
)

func (t btfType) word(i int) uint32 { return binary.NativeEndian.Uint32(t[4*i:]) }
func (t btfType) nameOff() uint32   { return t.word(0) }
func (t btfType) kind() int         { return int(t.word(1) >> 24 & 0x1f) }
func (t btfType) parts() int        { return int(t.word(1) & 0xffff) }

// rest returns how many bytes belong to t behind its first ones, and whether its
// kind is known.
func (t btfType) rest() (int, bool) {
	kind := t.kind()
	if kind < kindInt || kind > kindEnum64 {
		return 0, false
	}
	return btfFixed[kind] + btfParts[kind]*t.parts(), true
}

// refers calls f with where in t the numbers are of the types that t is made of. What a pointer
// points to is not, nor what a function takes and returns.
func (t btfType) refers(f func(at int)) {
	switch t.kind() {
	case kindTypedef, kindVolatile, kindConst, kindRestrict, kindTypeTag:
		f(8)
	case kindArray:
		f(12)
		f(16)
	case kindStruct, kindUnion:
		for i := range t.parts() {
			f(4 * (3 + 3*i + 1))
		}
	}
}

// names calls f with where in t the offsets of names are.
func (t btfType) names(f func(at int)) {
	f(0)
	if t.kind() == kindStruct || t.kind() == kindUnion || t.kind() == kindEnum || t.kind() == kindEnum64 {
		for at, size := btfTypeSize, btfParts[t.kind()]; at < len(t); at += size {
			f(at)
		}
	}
}

// isAskedFor reports whether programs ask for types of t's kind by name.
func (t btfType) isAskedFor() bool {
	switch t.kind() {
	case kindInt, kindStruct, kindUnion, kindEnum, kindEnum64, kindTypedef, kindFwd, kindFloat:
		return true
	}
	return false
}

// essential returns a name without its flavour: "x" for "x___old".
func essential(name string) string {
	if i := strings.LastIndex(name, "___"); i > 0 {
		return name[:i]
	}
	return name
}

// reduction is some of the kernel's types, as the library reads them. They have numbers of their
// own, because the library takes time and memory for each number up to the largest.
type reduction struct {
	spec    *btf.Spec
	numbers []uint32 // of the kernel, by those in spec
}

// reduced returns the types with these numbers, and those that they are made of.
func (k *kernelTypes) reduced(ids []uint32) (reduction, error) {
	r, own := reduction{numbers: []uint32{0}}, map[uint32]uint32{0: 0}
	want := func(id uint32) {
		if _, ok := own[id]; !ok && id < k.count {
			own[id] = uint32(len(r.numbers))
			r.numbers = append(r.numbers, id)
		}
	}
	for _, id := range ids {
		want(id)
	}
	for i := 1; i < len(r.numbers); i++ {
		t := k.typ(r.numbers[i])
		t.refers(func(at int) { want(binary.NativeEndian.Uint32(t[at:])) })
	}
	var err error
	r.spec, err = btf.LoadSpecFromReader(bytes.NewReader(k.copyOf(r.numbers, own)))
	return r, err
}

// copyOf returns BTF with these types alone, under the numbers that own has for theirs.
func (k *kernelTypes) copyOf(ids []uint32, own map[uint32]uint32) []byte {
	order := binary.NativeEndian
	var types []byte
	names, known := []byte{0}, map[uint32]uint32{0: 0}
	for _, id := range ids[1:] {
		start := len(types)
		types = append(types, k.typ(id)...)
		t := btfType(types[start:])
		t.refers(func(at int) { order.PutUint32(t[at:], own[order.Uint32(t[at:])]) })
		t.leaveOut()
		t.names(func(at int) {
			old := order.Uint32(t[at:])
			if _, ok := known[old]; !ok {
				known[old] = uint32(len(names))
				names = append(append(names, k.name(old)...), 0)
			}
			order.PutUint32(t[at:], known[old])
		})
	}
	h := btfHeader{btfMagic, 1, 0, btfHeaderSize, 0, uint32(len(types)), uint32(len(types)), uint32(len(names))}
	out, _ := binary.Append(nil, order, &h) // it has a fixed size
	return append(append(out, types...), names...)
}

// leaveOut has t name void where it names a type that it is not made of.
func (t btfType) leaveOut() {
	order := binary.NativeEndian
	switch t.kind() {
	case kindPtr:
		order.PutUint32(t[8:], 0)
	case kindFuncProto:
		order.PutUint32(t[8:], 0)
		for at := btfTypeSize; at < len(t); at += btfParts[kindFuncProto] {
			order.PutUint32(t[at+4:], 0)
		}
	}
}

// resolve does in the programs all that the library would do with the types of the kernel, and
// returns those that they ask for.
func (k *kernelTypes) resolve(spec *ebpf.CollectionSpec) (*btf.Spec, error) {
	names, functions := map[string]bool{}, map[string]bool{}
	for t, err := range spec.Types.All() {
		if err != nil {
			return nil, err
		}
		if f, ok := t.(*btf.Func); ok && f.Linkage == btf.ExternFunc {
			functions[f.Name] = true
			names[f.Name] = true
		} else if name := t.TypeName(); name != "" {
			names[essential(name)] = true
		}
	}
	var types []uint32
	numbers := map[string]btf.TypeID{}
	k.named(names, func(id uint32, t btfType) {
		if t.isAskedFor() {
			types = append(types, id)
		} else if name := string(k.name(t.nameOff())); t.kind() == kindFunc && functions[name] {
			numbers[name] = btf.TypeID(id)
		}
	})
	r, err := k.reduced(types)
	if err != nil {
		return nil, err
	}
	for _, p := range spec.Programs {
		for i := range p.Instructions {
			if ins := &p.Instructions[i]; functions[ins.Reference()] {
				resolveFunction(ins, numbers[ins.Reference()])
			}
		}
		if err := r.relocate(p); err != nil {
			return nil, err
		}
	}
	return r.spec, nil
}

// relocate changes the instructions that depend on the types of the kernel to what they are here.
func (r *reduction) relocate(p *ebpf.ProgramSpec) error {
	var wanted []*btf.CORERelocation
	var at []*asm.Instruction
	for i := range p.Instructions {
		if relocation := btf.CORERelocationMetadata(&p.Instructions[i]); relocation != nil {
			wanted, at = append(wanted, relocation), append(at, &p.Instructions[i])
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	fixups, err := btf.CORERelocate(wanted, []*btf.Spec{r.spec}, p.ByteOrder, func(t btf.Type) (btf.TypeID, error) {
		return 0, fmt.Errorf("number of %v in the program's own types: %w", t, errors.ErrUnsupported)
	})
	if err != nil {
		return err
	}
	for i, fixup := range fixups {
		if err := r.apply(at[i], wanted[i], fixup); err != nil {
			return err
		}
	}
	return nil
}

// apply changes an instruction.
func (r *reduction) apply(ins *asm.Instruction, wanted *btf.CORERelocation, fixup btf.COREFixup) error {
	was := ins.OpCode
	if err := fixup.Apply(ins); err != nil {
		return fmt.Errorf("%v: %w", wanted, err)
	}
	if was.IsDWordLoad() && !isPoisoned(ins) && strings.HasPrefix(wanted.String(), "CORERelocation(target_type_id,") {
		if uint64(ins.Constant) >= uint64(len(r.numbers)) {
			return fmt.Errorf("%v: %d is no type", wanted, ins.Constant)
		}
		ins.Constant = int64(r.numbers[ins.Constant])
	}
	withoutMetadata(ins)
	return nil
}

// isPoisoned reports whether an instruction was replaced by one that no kernel takes, because the
// kernel does not have what it asks for.
func isPoisoned(ins *asm.Instruction) bool { return ins.Constant == btf.COREBadRelocationSentinel }

// withoutMetadata takes from an instruction what has been done: all but where it stands.
func withoutMetadata(ins *asm.Instruction) {
	bare := *ins
	bare.Metadata = asm.Metadata{}
	bare = bare.WithSymbol(ins.Symbol())
	if source := ins.Source(); source != nil {
		bare = bare.WithSource(source)
	}
	if fn := btf.FuncMetadata(ins); fn != nil {
		bare = btf.WithFuncMetadata(bare, fn)
	}
	*ins = bare
}

// resolveFunction does what the library would do with all types. A function of the
// kernel is named by a call, or by loading its number to see whether it exists. A
// call of one that does not exist, number 0, is never reached.
func resolveFunction(ins *asm.Instruction, number btf.TypeID) {
	resolved := *ins
	resolved.Metadata = asm.Metadata{}
	resolved.Constant = int64(number)
	if number == 0 && ins.IsKfuncCall() {
		resolved = asm.Mov.Imm(asm.R0, -1)
	}
	resolved = resolved.WithSymbol(ins.Symbol())
	if fn := btf.FuncMetadata(ins); fn != nil {
		resolved = btf.WithFuncMetadata(resolved, fn)
	}
	*ins = resolved
}

// loadOptions prepares the programs for loading, with the types that they ask for, or, where
// these are not understood, with none, so that the library reads all. The constants of the spec
// have to be set before.
func loadOptions(spec *ebpf.CollectionSpec) *ebpf.CollectionOptions {
	opts := resolved(spec)
	if opts != nil {
		leaveOutIdle(spec)
	}
	return opts
}

// resolved returns options with the types that the programs ask for. Instructions that depend on the
// kernel become those for this one.
func resolved(spec *ebpf.CollectionSpec) *ebpf.CollectionOptions {
	k, err := openKernelTypes()
	if err != nil {
		return nil
	}
	defer k.close()
	types, err := k.resolve(spec)
	if err != nil {
		return nil
	}
	return &ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{KernelTypes: types}}
}

// StructSizes returns the sizes in bytes of structures of the running kernel, as its BTF
// has them. Those that it does not describe, as a module's, are not in the map.
func StructSizes(names ...string) (map[string]int, error) {
	kernel, err := openKernelTypes()
	if err != nil {
		return nil, fmt.Errorf("sizes of the kernel's structures: %w", err)
	}
	defer kernel.close()
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	sizes := map[string]int{}
	kernel.named(wanted, func(_ uint32, t btfType) {
		if t.kind() == kindStruct {
			sizes[string(kernel.name(t.nameOff()))] = int(t.word(2))
		}
	})
	return sizes, nil
}
