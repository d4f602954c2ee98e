package unwindtest

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

	"hallmark/addr"
	"hallmark/perfdata"
	"hallmark/unwind"
)

// A Sample is the copy of a task's registers and stack memory, and what was mapped.
type Sample struct {
	Key
	PID       uint32
	Registers unwind.Registers
	IP        addr.Abs
	Stack     unwind.Stack
	Maps      *Maps
}

// Maps are the mappings of a process from one moment to another. They do not
// change.
type Maps struct{ list []Map }

// A Map is one of them.
type Map struct {
	Start, End addr.Abs
	Offset     addr.Offset // of Start, in the file
	Name       string
	Code       bool // executable
}

// At returns the mapping that an address lies in, nil when there is none.
func (m *Maps) At(a addr.Abs) *Map {
	i, _ := slices.BinarySearchFunc(m.list, a, func(x Map, a addr.Abs) int {
		if x.End <= a {
			return -1
		}
		return 1
	})
	if i == len(m.list) || m.list[i].Start > a {
		return nil
	}
	return &m.list[i]
}

// Code reports whether an address lies in an executable mapping.
func (m *Maps) Code(a addr.Abs) bool {
	x := m.At(a)
	return x != nil && x.Code
}

// with returns maps that have n as well, instead of what it covers.
func (m *Maps) with(n Map) *Maps {
	list := make([]Map, 0, len(m.list)+2)
	for _, o := range m.list {
		if o.End <= n.Start || o.Start >= n.End {
			list = append(list, o)
			continue
		}
		if o.Start < n.Start {
			list = append(list, Map{o.Start, n.Start, o.Offset, o.Name, o.Code})
		}
		if o.End > n.End {
			list = append(list, Map{n.End, o.End, o.Offset + addr.Offset(n.End-o.Start), o.Name, o.Code})
		}
	}
	list = append(list, n)
	slices.SortFunc(list, func(a, b Map) int { return cmp.Compare(a.Start, b.Start) })
	return &Maps{list}
}

// A record is one of a file, with its place in the order of things.
type record struct {
	time  uint64
	bytes []byte
}

// errNotRecorded is what errors about files wrap that perf record with
// --call-graph dwarf did not write.
var errNotRecorded = errors.New("no recording of stacks")

// Samples returns those of a file that perf record --call-graph dwarf wrote, in their order.
func Samples(file string) ([]Sample, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	attr, data, err := sections(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	d, err := perfdata.NewAttrDecoder(attr, false)
	if err != nil {
		return nil, err
	}
	records, err := inOrder(d, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	h := history{spaces: map[uint32]*Maps{}}
	for _, r := range records {
		rec, err := d.Decode(r.bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		h.add(rec)
	}
	return h.samples, nil
}

// sections returns the attributes of the file's event, and its records.
func sections(b []byte) (attr perfdata.Attr, data []byte, err error) {
	if len(b) < 104 || string(b[:8]) != "PERFILE2" {
		return attr, nil, errNotRecorded
	}
	u64 := func(at uint64) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	at, size, from, n := u64(24), u64(32), u64(40), u64(48)
	if at > uint64(len(b)) || uint64(len(b))-at < 104 || size < 104 || from > uint64(len(b)) || n > uint64(len(b))-from {
		return attr, nil, errNotRecorded
	}
	attr = perfdata.Attr{
		Fields:    perfdata.SampleType(u64(at + 24)),
		Read:      perfdata.ReadFormat(u64(at + 32)),
		Flags:     perfdata.AttrFlags(u64(at + 40)),
		UserRegs:  u64(at + 80),
		UserStack: binary.LittleEndian.Uint32(b[at+88:]),
	}
	return attr, b[from : from+n], nil
}

// inOrder returns the kernel's records, oldest first: each CPU's are in order only among
// themselves.
func inOrder(d *perfdata.Decoder, data []byte) ([]record, error) {
	const firstOfPerf = 64 // PERF_RECORD_USER_TYPE_START
	var list []record
	for len(data) >= perfdata.HeaderSize {
		size := int(binary.LittleEndian.Uint16(data[6:]))
		if size < perfdata.HeaderSize || size > len(data) {
			return nil, errNotRecorded
		}
		if kind := binary.LittleEndian.Uint32(data); kind < firstOfPerf {
			rec, err := d.Decode(data[:size])
			if err != nil {
				return nil, err
			}
			list = append(list, record{timeOf(rec), data[:size]})
		}
		data = data[size:]
	}
	slices.SortStableFunc(list, func(a, b record) int { return cmp.Compare(a.time, b.time) })
	return list, nil
}

func timeOf(r perfdata.Record) uint64 {
	switch r := r.(type) {
	case *perfdata.Sample:
		return r.Time
	case *perfdata.Mmap2:
		return r.Time
	case *perfdata.Comm:
		return r.Time
	case *perfdata.Task:
		return r.Time
	}
	return 0
}

// history is what was mapped in each process.
type history struct {
	spaces  map[uint32]*Maps
	samples []Sample
}

func (h *history) maps(pid uint32) *Maps {
	if h.spaces[pid] == nil {
		h.spaces[pid] = &Maps{}
	}
	return h.spaces[pid]
}

func (h *history) add(rec perfdata.Record) {
	switch r := rec.(type) {
	case *perfdata.Mmap2:
		const protExec = 4
		h.spaces[r.Owner] = h.maps(r.Owner).with(Map{r.Start, r.Start + addr.Abs(r.Size), r.Offset, r.Name, r.Prot&protExec != 0})
	case *perfdata.Comm:
		if r.Exec {
			delete(h.spaces, r.OwnerPID)
		}
	case *perfdata.Task:
		if !r.Exited && r.ChildPID != r.ParentPID {
			h.spaces[r.ChildPID] = h.maps(r.ParentPID)
		}
	case *perfdata.Sample:
		if s, ok := newSample(r); ok {
			s.Maps = h.maps(r.PID)
			h.samples = append(h.samples, s)
		}
	}
}

// dwarfNumbers are the DWARF numbers of the registers AX to SP and R8 to R15 of perf_regs.h.
var dwarfNumbers = map[int]unwind.Register{
	0: 0, 1: 3, 2: 2, 3: 1, 4: 4, 5: 5, 6: 6, 7: 7,
	16: 8, 17: 9, 18: 10, 19: 11, 20: 12, 21: 13, 22: 14, 23: 15,
}

func newSample(r *perfdata.Sample) (Sample, bool) {
	const ip = 8
	s := Sample{Key: Key{r.TID, r.Time}, PID: r.PID}
	if r.UserRegs.ABI != perfdata.Regs64 {
		return s, false
	}
	for n, to := range dwarfNumbers {
		if v, ok := r.UserRegs.Get(n); ok {
			s.Registers.Set(to, v)
		}
	}
	v, _ := r.UserRegs.Get(ip)
	s.IP = addr.Abs(v)
	sp, _ := s.Registers.Get(unwind.RSP)
	s.Stack = unwind.Stack{Base: addr.Abs(sp), Bytes: bytes.Clone(r.UserStack)}
	return s, true
}
