package unwindtest

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"hallmark/addr"
	"hallmark/unwind"
)

// A Frame is one that package unwind found.
type Frame struct {
	unwind.Frame
	Offset addr.Offset // of At, in the mapping's file
	Map    *Map
}

// A Walked is a stack that package unwind found.
type Walked struct {
	Frames []Frame
	End    unwind.End
}

// Tables keeps the tables of the files that are mapped in recorded processes. Files are
// those of this machine: they must be what was recorded.
type Tables struct {
	// Warn is called with what a table of a file lacks.
	Warn   func(file string, err error)
	tables map[string]*unwind.Table
	vdso   []byte
}

// Table returns the table of a mapped file, nil when there can be none.
func (t *Tables) Table(file string) *unwind.Table {
	if t.tables == nil {
		t.tables = map[string]*unwind.Table{}
	}
	if table, ok := t.tables[file]; ok {
		return table
	}
	table, err := t.build(file)
	if err != nil {
		t.warn(file, err)
	}
	t.tables[file] = table
	return table
}

func (t *Tables) warn(file string, err error) {
	if t.Warn != nil {
		t.Warn(file, err)
	}
}

func (t *Tables) build(file string) (*unwind.Table, error) {
	o := unwind.BuildOptions{Warn: func(err error) { t.warn(file, err) }}
	if file == "[vdso]" {
		image, err := t.VDSO()
		if err != nil {
			return nil, err
		}
		return unwind.Build(bytes.NewReader(image), o)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return unwind.Build(f, o)
}

// VDSO returns the image of this process's vdso, which is every 64-bit process's.
func (t *Tables) VDSO() ([]byte, error) {
	if t.vdso != nil {
		return t.vdso, nil
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(maps)) {
		var start, end int64
		if !strings.HasSuffix(line, "[vdso]\n") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x", &start, &end); err != nil {
			return nil, err
		}
		err := t.readVDSO(start, end)
		return t.vdso, err
	}
	return nil, fs.ErrNotExist
}

func (t *Tables) readVDSO(start, end int64) error {
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		return err
	}
	defer mem.Close()
	image := make([]byte, end-start)
	if _, err := mem.ReadAt(image, start); err != nil {
		return err
	}
	t.vdso = image
	return nil
}

// Generated reports whether the mapping is of code that no file has.
func (m *Map) Generated() bool {
	return m.Name == "" || strings.HasPrefix(m.Name, "//") || strings.HasPrefix(m.Name, "/memfd:") || strings.HasPrefix(m.Name, "/dev/zero") ||
		strings.HasPrefix(m.Name, "/anon_hugepage") || strings.HasPrefix(m.Name, "[") && m.Name != "[vdso]"
}

// space is a process's address space as the walker asks for it.
type space struct {
	maps   *Maps
	tables *Tables
}

func (s space) At(a addr.Abs) (unwind.Mapping, bool) {
	m := s.maps.At(a)
	if m == nil {
		return unwind.Mapping{}, false
	}
	out := unwind.Mapping{Start: m.Start, End: m.End, Offset: m.Offset, Content: unwind.File}
	if !m.Code {
		out.Content = unwind.Data
		return out, true
	}
	if m.Generated() {
		out.Content = unwind.Generated
		return out, true
	}
	out.Table = s.tables.Table(m.Name)
	return out, true
}

// Walk returns the stack of a sample as package unwind finds it.
func (t *Tables) Walk(s *Sample) Walked {
	var out Walked
	w := unwind.Walker{Machine: unwind.X86_64, Memory: &s.Stack, Space: space{s.Maps, t}, Max: 4096}
	state := unwind.State{IP: s.IP, Exact: true, Method: unwind.ByRegs, Registers: s.Registers}
	out.End = w.Walk(&state, func(f unwind.Frame) bool {
		m := s.Maps.At(f.At)
		frame := Frame{Frame: f, Map: m}
		if m != nil {
			frame.Offset = m.Offset + addr.Offset(f.At-m.Start)
		}
		out.Frames = append(out.Frames, frame)
		return true
	})
	return out
}
