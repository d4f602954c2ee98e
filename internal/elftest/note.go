package elftest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// A Note is one entry of a note section.
type Note struct {
	Name string // with its NUL
	Type uint32
	Desc []byte
}

// GNU is the note of a GNU build ID.
func GNU(id []byte) Note { return Note{Name: "GNU\x00", Type: 3, Desc: id} }

// Go is the note of the Go toolchain's build ID.
func Go(id string) Note { return Note{Name: "Go\x00\x00", Type: 4, Desc: []byte(id)} }

// ABITag is the note that says which kernel a program needs at least.
func ABITag() Note { return Note{Name: "GNU\x00", Type: 1, Desc: make([]byte, 16)} }

// Notes returns the notes one after the other, names and contents padded to
// align bytes. A nil order is little-endian.
func Notes(order binary.ByteOrder, align int, notes ...Note) []byte {
	if order == nil {
		order = binary.LittleEndian
	}
	var w bytes.Buffer
	for _, n := range notes {
		start := w.Len()
		put(&w, order, []uint32{uint32(len(n.Name)), uint32(len(n.Desc)), n.Type})
		w.WriteString(n.Name)
		pad(&w, start, align)
		w.Write(n.Desc)
		pad(&w, start, align)
	}
	return w.Bytes()
}

// pad fills up to a multiple of align from start.
func pad(w *bytes.Buffer, start, align int) {
	for (w.Len()-start)%align != 0 {
		w.WriteByte(0)
	}
}

// NoteSection is a section of notes at address addr.
func NoteSection(name string, addr uint64, align uint64, data []byte) Section {
	return Section{Name: name, Type: elf.SHT_NOTE, Flags: elf.SHF_ALLOC, Addr: addr, Align: align, Data: data}
}
