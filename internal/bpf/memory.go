package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Memory is what maps take in the kernel, in bytes as it accounts them: fdinfo of
// the maps, which before Linux 6.4 leaves the overhead of each element out.
type Memory struct {
	Table uint64 // the table of files
	All   uint64 // all maps of the sampler, that among them
}

// Memory returns what the maps take.
func (s *Sampler) Memory() (Memory, error) {
	var m Memory
	var err error
	if m.Table, err = memoryOf(s.objects.Files); err != nil {
		return Memory{}, err
	}
	for _, counts := range []*ebpf.Map{s.writing, s.emptied} {
		n, err := memoryOf(counts)
		if err != nil {
			return Memory{}, err
		}
		m.All += n
	}
	used, err := memoryOfProgram(s.objects.Sample)
	m.All += used
	return m, err
}

func memoryOf(m *ebpf.Map) (uint64, error) {
	info, err := m.Info()
	if err != nil {
		return 0, fmt.Errorf("memory of a BPF map: %w", err)
	}
	n, ok := info.Memlock()
	if !ok && m.Type() == ebpf.RingBuf {
		// Before Linux 6.4 the kernel counts values, of which a ring has none.
		return uint64(m.MaxEntries()), nil
	}
	return n, nil
}

// memoryOfProgram adds up the maps that a program names.
func memoryOfProgram(p *ebpf.Program) (uint64, error) {
	info, err := p.Info()
	if err != nil {
		return 0, fmt.Errorf("maps of a BPF program: %w", err)
	}
	ids, _ := info.MapIDs()
	var sum uint64
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return 0, fmt.Errorf("maps of a BPF program: %w", err)
		}
		n, err := memoryOf(m)
		if err := errors.Join(err, m.Close()); err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}
