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
// library is given only those that are asked for, under the numbers that they
// have, because some numbers go into programs.
type kernelTypes struct {
	mapped  []byte
	types   []byte
	strings []byte
	offsets []uint32 // in types, by number; that of number 0, void, means nothing
}

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
	k.offsets = make([]uint32, 1, 1+len(k.types)/30) // a type with its parts has about 30 bytes
	for at := 0; at < len(k.types); {
		if at+btfTypeSize > len(k.types) {
			return errBTF
		}
		k.offsets = append(k.offsets, uint32(at))
		rest, ok := btfType(k.types[at:]).rest()
		if at += btfTypeSize + rest; !ok || at > len(k.types) {
			return errBTF
		}
	}
	return nil
}

// typ returns a type and what belongs to it.
func (k *kernelTypes) typ(id uint32) btfType {
	t := btfType(k.types[k.offsets[id]:])
	rest, _ := t.rest()
	return t[:btfTypeSize+rest]
}

// named calls f with the types that have one of these names.
func (k *kernelTypes) named(names map[string]bool, f func(id uint32, t btfType)) {
	for id := 1; id < len(k.offsets); id++ {
		t := btfType(k.types[k.offsets[id]:])
		if at := t.nameOff(); at != 0 && names[string(k.name(at))] {
			f(uint32(id), t)
		}
	}
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

// What follows a type, and how large each of its parts is.
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

// refers returns the types that t is made of. What a pointer points to is not.
func (t btfType) refers() []uint32 {
	switch t.kind() {
	case kindTypedef, kindVolatile, kindConst, kindRestrict, kindTypeTag:
		return []uint32{t.word(2)}
	case kindArray:
		return []uint32{t.word(3), t.word(4)}
	case kindStruct, kindUnion:
		members := make([]uint32, t.parts())
		for i := range members {
			members[i] = t.word(3 + 3*i + 1)
		}
		return members
	}
	return nil
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

// functions returns the numbers of those of these functions that the kernel has.
func (k *kernelTypes) functions(names map[string]bool) map[string]btf.TypeID {
	found := map[string]btf.TypeID{}
	k.named(names, func(id uint32, t btfType) {
		if t.kind() == kindFunc {
			found[string(k.name(t.nameOff()))] = btf.TypeID(id)
		}
	})
	return found
}

// essential returns a name without its flavour: "x" for "x___old".
func essential(name string) string {
	if i := strings.LastIndex(name, "___"); i > 0 {
		return name[:i]
	}
	return name
}

// reduced returns the types with one of these names, and those that they are made
// of, as the library reads them. All others are there by their number only.
func (k *kernelTypes) reduced(names map[string]bool) (*btf.Spec, error) {
	wanted := make([]bool, len(k.offsets))
	var queue []uint32
	want := func(id uint32) {
		if id < uint32(len(wanted)) && !wanted[id] && id != 0 {
			wanted[id] = true
			queue = append(queue, id)
		}
	}
	k.named(names, func(id uint32, t btfType) {
		if t.isAskedFor() {
			want(id)
		}
	})
	for len(queue) > 0 {
		last := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, id := range k.typ(last).refers() {
			want(id)
		}
	}
	return btf.LoadSpecFromReader(bytes.NewReader(k.copyOf(wanted)))
}

// copyOf returns BTF with the wanted types alone.
func (k *kernelTypes) copyOf(wanted []bool) []byte {
	order := binary.NativeEndian
	types := make([]byte, 0, 2*btfTypeSize*len(wanted))
	names, known := []byte{0}, map[uint32]uint32{0: 0}
	for id := 1; id < len(wanted); id++ {
		start := len(types)
		if !wanted[id] {
			types = append(types, make([]byte, btfTypeSize)...)
			order.PutUint32(types[start+4:], kindFwd<<24)
			continue
		}
		types = append(types, k.typ(uint32(id))...)
		t := btfType(types[start:])
		if t.kind() == kindPtr {
			order.PutUint32(t[8:], 0) // to void
		}
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

// resolve gives the programs the numbers of the kernel's functions that they call,
// and returns the types that they ask for.
func (k *kernelTypes) resolve(spec *ebpf.CollectionSpec) (*btf.Spec, error) {
	types, functions := map[string]bool{}, map[string]bool{}
	for t, err := range spec.Types.All() {
		if err != nil {
			return nil, err
		}
		if f, ok := t.(*btf.Func); ok && f.Linkage == btf.ExternFunc {
			functions[f.Name] = true
		} else if name := t.TypeName(); name != "" {
			types[essential(name)] = true
		}
	}
	numbers := k.functions(functions)
	for _, p := range spec.Programs {
		for i := range p.Instructions {
			if ins := &p.Instructions[i]; functions[ins.Reference()] {
				resolveFunction(ins, numbers[ins.Reference()])
			}
		}
	}
	return k.reduced(types)
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

// loadOptions prepares the programs for loading: with the types that they ask for,
// or, where these are not understood, with none, so that the library reads all.
func loadOptions(spec *ebpf.CollectionSpec) *ebpf.CollectionOptions {
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
