package bpf

import (
	"encoding/binary"
	"slices"
	"testing"

	"hallmark/buildid"
	"hallmark/unwind"
)

// FuzzKernelTypes reads types that may be anything, and those that are left of them.
// What is left is not larger than what there was.
func FuzzKernelTypes(f *testing.F) {
	f.Add(fewTypes(), "task_struct")
	f.Add([]byte{}, "")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		var k kernelTypes
		if err := k.parse(data); err != nil {
			return
		}
		var all, named []uint32
		own := map[uint32]uint32{}
		for id := range k.count {
			all, own[id] = append(all, id), id
			if id > 0 && name != "" && string(k.name(k.typ(id).nameOff())) == name {
				named = append(named, id)
			}
		}
		if n := len(k.copyOf(all, own)); n > btfHeaderSize+len(data)*(1+len(k.strings)) {
			t.Errorf("%d bytes of types became %d", len(data), n)
		}
		var found []uint32
		k.named(map[string]bool{name: true}, func(id uint32, _ btfType) { found = append(found, id) })
		if !slices.Equal(found, named) {
			t.Errorf("%v are called %q, want %v", found, name, named)
		}
		_, _ = k.reduced(named)
	})
}

// fewTypes returns BTF with a structure, an array and a pointer.
func fewTypes() []byte {
	order := binary.NativeEndian
	names := "\x00task_struct\x00comm\x00char\x00"
	var types []byte
	for _, word := range []uint32{
		18, kindInt << 24, 1, 8, // 1: char
		0, kindArray << 24, 0, 1, 1, 16, // 2: char[16]
		1, kindStruct<<24 | 1, 16, 13, 2, 0, // 3: struct task_struct
		0, kindPtr << 24, 3, // 4: struct task_struct *
	} {
		types = order.AppendUint32(types, word)
	}
	h := btfHeader{btfMagic, 1, 0, btfHeaderSize, 0, uint32(len(types)), uint32(len(types)), uint32(len(names))}
	b, err := binary.Append(nil, order, &h)
	if err != nil {
		panic(err)
	}
	return append(append(b, types...), names...)
}

// noFrames fails when a stack has more frames than its event had bytes for.
type noFrames struct {
	t    *testing.T
	size int
}

func (noFrames) File(File)                   {}
func (noFrames) Identity(uint32, buildid.ID) {}
func (noFrames) Copy(*Copy)                  {}
func (noFrames) Space(*Space)                {}
func (n noFrames) Stack(_ StackID, frames []Frame, _ unwind.End) {
	if len(frames)*frameSize > n.size {
		n.t.Errorf("%d frames in %d bytes", len(frames), n.size)
	}
}

// FuzzDispatch decodes events that may be anything.
func FuzzDispatch(f *testing.F) {
	for kind := range uint32(8) {
		f.Add(append(binary.NativeEndian.AppendUint32(nil, kind), make([]byte, 700)...))
	}
	f.Fuzz(func(t *testing.T, event []byte) {
		_ = dispatch(event, noFrames{t, len(event)})
	})
}
