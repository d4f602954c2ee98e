package bpf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"hallmark/internal/testenv"
)

// TestTypesForPrograms loads the programs with the types that they ask for and with
// all that the kernel has, and wants the kernel to have got the same instructions. Those that cannot be
// reached are left out of the former, as the kernel does it; older ones keep functions that nobody calls.
func TestTypesForPrograms(t *testing.T) {
	testenv.Root(t)
	testenv.Need(t, checkKernel() == nil, "a kernel that takes the BPF programs")
	types := btf.NewCache() // which are read once
	for name, load := range map[string]func() (*ebpf.CollectionSpec, error){"sampler": loadSampler, "bench": loadBench} {
		t.Run(name, func(t *testing.T) {
			all := loadPrograms(t, load, func(*ebpf.CollectionSpec) *ebpf.CollectionOptions { return &ebpf.CollectionOptions{Cache: types} })
			few := loadPrograms(t, load, func(spec *ebpf.CollectionSpec) *ebpf.CollectionOptions {
				o := resolved(spec)
				if o == nil {
					t.Fatal("the kernel's types are not understood")
				}
				for _, p := range spec.Programs {
					if leavesOutUncalled(t) {
						p.Instructions = leaveOutUnreached(p.Instructions, constantsOf(spec))
					}
				}
				o.MapReplacements = all.Maps // or the instructions would name others
				return o
			})
			for name, p := range all.Programs {
				want, got := instructions(t, p), instructions(t, few.Programs[name])
				if len(got) != len(want) {
					t.Errorf("%s has %d instructions, with all types %d", name, len(got), len(want))
					continue
				}
				for i := range want {
					if got[i] != want[i] {
						t.Errorf("%s: instruction %d is %s, with all types %s", name, i, got[i], want[i])
					}
				}
			}
		})
	}
}

// leavesOutUncalled reports whether the kernel takes global functions out of programs that nobody calls: since
// 6.8.
func leavesOutUncalled(t *testing.T) bool {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	return major > 6 || major == 6 && minor >= 8
}

func loadPrograms(t *testing.T, load func() (*ebpf.CollectionSpec, error), options func(*ebpf.CollectionSpec) *ebpf.CollectionOptions) *ebpf.Collection {
	spec, err := load()
	if err != nil {
		t.Fatal(err)
	}
	if err := configure(spec, HasTaskWork()); err != nil {
		t.Fatal(err)
	}
	if v := spec.Variables["unwinding"]; v != nil {
		if err := v.Set(true); err != nil {
			t.Fatal(err)
		}
	}
	for name, p := range spec.Programs {
		if p.Type == ebpf.LSM || name == samplerProgTakeStock && checkStock() != nil {
			delete(spec.Programs, name) // not every kernel takes these
		}
	}
	c, err := ebpf.NewCollectionWithOptions(spec, *options(spec))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// instructions returns what the kernel has after its check.
func instructions(t *testing.T, p *ebpf.Program) []string {
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	insns, err := info.Instructions()
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, i := range insns {
		if i.OpCode.IsDWordLoad() && i.Constant < 0 {
			i.Constant = -1 // where the kernel has the program itself
		}
		texts = append(texts, fmt.Sprint(i))
	}
	return texts
}

// TestReducedTypes compares every type that is asked for with that in the whole
// of the kernel's types.
func TestReducedTypes(t *testing.T) {
	whole, err := btf.LoadKernelSpec()
	testenv.Need(t, err == nil, "the types of the kernel in "+kernelTypesFile)
	k, err := openKernelTypes()
	if err != nil {
		t.Fatal(err)
	}
	defer k.close()
	names := map[string]bool{
		"task_struct": true, "vm_area_struct": true, "super_block": true, "pid_type": true,
		"maple_node": true, "u64": true, "u8": true, "no such type": true,
	}
	var ids []uint32
	functions := map[btf.TypeID]string{}
	k.named(map[string]bool{"task_struct": true, "vm_area_struct": true, "super_block": true, "pid_type": true, "maple_node": true, "u64": true, "u8": true, "no such type": true, "schedule": true}, func(id uint32, typ btfType) {
		if typ.isAskedFor() {
			ids = append(ids, id)
		} else if typ.kind() == kindFunc {
			functions[btf.TypeID(id)] = string(k.name(typ.nameOff()))
		}
	})
	few, err := k.reduced(ids)
	if err != nil {
		t.Fatal(err)
	}
	for name := range names {
		want, wantErr := whole.AnyTypesByName(name)
		got, gotErr := few.spec.AnyTypesByName(name)
		if len(got) != len(want) || (gotErr == nil) != (wantErr == nil) {
			t.Errorf("%d types are called %s, want %d", len(got), name, len(want))
			continue
		}
		for i := range got {
			compareTypes(t, few, whole, got[i], want[i])
		}
	}
	for id, name := range functions {
		if name != "schedule" || !isFunction(whole, id, name) {
			t.Errorf("function %s has number %d", name, id)
		}
	}
	if len(functions) != 1 {
		t.Errorf("functions are %v", functions)
	}
}

func isFunction(s *btf.Spec, id btf.TypeID, name string) bool {
	typ, err := s.TypeByID(id)
	f, ok := typ.(*btf.Func)
	return err == nil && ok && f.Name == name
}

// compareTypes wants the same number, size and text, which has the members.
func compareTypes(t *testing.T, r reduction, wantSpec *btf.Spec, got, want btf.Type) {
	own, _ := r.spec.TypeID(got)
	gotID := btf.TypeID(r.numbers[own])
	wantID, _ := wantSpec.TypeID(want)
	gotSize, _ := btf.Sizeof(got)
	wantSize, _ := btf.Sizeof(want)
	if gotID != wantID || gotSize != wantSize || gotID == 0 {
		t.Errorf("%v has number %d and %d bytes, want %d and %d", got, gotID, gotSize, wantID, wantSize)
	}
	if s, ok := want.(*btf.Struct); ok {
		for i, m := range s.Members {
			if other := got.(*btf.Struct).Members[i]; other.Name != m.Name || other.Offset != m.Offset || other.BitfieldSize != m.BitfieldSize {
				t.Errorf("%v has %v, want %v", got, other, m)
			}
		}
	}
}

// TestDamagedTypes wants an error, and nothing worse, of BTF that is cut off or
// claims too much.
func TestDamagedTypes(t *testing.T) {
	header := func(change func(*btfHeader)) []byte {
		h := btfHeader{btfMagic, 1, 0, btfHeaderSize, 0, btfTypeSize, btfTypeSize, 1}
		change(&h)
		data, err := binary.Append(nil, binary.NativeEndian, &h)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	body := func(info uint32) []byte {
		b := make([]byte, btfTypeSize+1)
		binary.NativeEndian.PutUint32(b[4:], info)
		return b
	}
	whole := header(func(*btfHeader) {})
	for name, data := range map[string][]byte{
		"empty":        {},
		"header only":  whole,
		"magic":        append(header(func(h *btfHeader) { h.Magic++ }), body(kindFwd<<24)...),
		"long header":  append(header(func(h *btfHeader) { h.Length = 1 << 31 }), body(kindFwd<<24)...),
		"long types":   append(header(func(h *btfHeader) { h.TypesSize = 1<<32 - 1 }), body(kindFwd<<24)...),
		"long strings": append(header(func(h *btfHeader) { h.Size = 1<<32 - 1 }), body(kindFwd<<24)...),
		"short types":  append(header(func(h *btfHeader) { h.TypesSize-- }), body(kindFwd<<24)...),
		"kind 0":       append(bytes.Clone(whole), body(0)...),
		"kind 31":      append(bytes.Clone(whole), body(31<<24)...),
		"many members": append(bytes.Clone(whole), body(kindStruct<<24|0xffff)...),
	} {
		if err := new(kernelTypes).parse(data); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := new(kernelTypes).parse(append(whole, body(kindFwd<<24)...)); err != nil {
		t.Errorf("what is whole: %v", err)
	}
}
