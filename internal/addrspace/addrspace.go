// Package addrspace keeps which file is mapped where in a process, as records of its mappings
// report it, and where kernels lie.
package addrspace

import (
	"slices"

	"hallmark/addr"
)

// IsVsyscall reports whether a lies in the page that x86-64 kernels show at the same place in every
// process, and that no record reports: arch/x86/include/uapi/asm/vsyscall.h.
func IsVsyscall(a addr.Abs) bool { return a&^0xfff == 0xffffffffff600000 }

// Machines are the machines whose kernels KernelText knows, by uname -m.
var Machines = []string{"x86_64", "aarch64"}

// KernelText returns where the image of a kernel is linked to run, whatever place it was given at boot
// (KASLR), by uname -m or GOARCH: __START_KERNEL_map + the usual CONFIG_PHYSICAL_START of
// arch/x86/include/asm/page_64_types.h; KIMAGE_VADDR of arch/arm64/include/asm/memory.h for 48-bit addresses.
// It is 0 for other machines.
func KernelText(machine string) addr.Virt {
	switch machine {
	case "x86_64", "amd64":
		return 0xffffffff81000000
	case "aarch64", "arm64":
		return 0xffff800080000000
	}
	return 0
}

// Mapping is one mapping of a process: where, and what of which file.
type Mapping[T any] struct {
	Start, End addr.Abs
	Offset     addr.Offset // of Start in the file
	Of         T           // what it shows
}

// FileOffset returns the file offset of the byte at a, which lies in m.
func (m *Mapping[T]) FileOffset(a addr.Abs) addr.Offset { return addr.Offset(a-m.Start) + m.Offset }

// Space holds the mappings of one process, sorted by address and without overlap. The zero
// value is an empty address space. Copies share the mappings until one of them changes.
type Space[T any] struct {
	mappings []Mapping[T]
	shared   bool
}

// IsEmpty reports whether nothing is mapped.
func (s *Space[T]) IsEmpty() bool { return len(s.mappings) == 0 }

// Len returns how many mappings there are.
func (s *Space[T]) Len() int { return len(s.mappings) }

// Own returns how many mappings are in memory for this space alone: those that it shares with
// the space that it was copied from are not.
func (s *Space[T]) Own() int {
	if s.shared {
		return 0
	}
	return len(s.mappings)
}

// Find returns the mapping that holds a, or nil.
func (s *Space[T]) Find(a addr.Abs) *Mapping[T] {
	i := s.after(a) - 1
	if i < 0 || a >= s.mappings[i].End {
		return nil
	}
	return &s.mappings[i]
}

// after returns the index of the first mapping that starts above a.
func (s *Space[T]) after(a addr.Abs) int {
	i, _ := slices.BinarySearchFunc(s.mappings, a, func(m Mapping[T], a addr.Abs) int {
		if m.Start <= a {
			return -1
		}
		return 1
	})
	return i
}

// Insert adds m, as mmap with MAP_FIXED does: what m overlaps is cut or gone.
func (s *Space[T]) Insert(m Mapping[T]) {
	if m.End <= m.Start {
		return
	}
	if s.shared {
		s.mappings, s.shared = slices.Clone(s.mappings), false
	}
	first := s.after(m.Start)
	if first > 0 && s.mappings[first-1].End > m.Start {
		first--
	}
	last := first
	for last < len(s.mappings) && s.mappings[last].Start < m.End {
		last++
	}
	parts := make([]Mapping[T], 0, 3)
	if first < last && s.mappings[first].Start < m.Start {
		head := s.mappings[first]
		head.End = m.Start
		parts = append(parts, head)
	}
	parts = append(parts, m)
	if first < last && s.mappings[last-1].End > m.End {
		tail := s.mappings[last-1]
		tail.Offset, tail.Start = tail.FileOffset(m.End), m.End
		parts = append(parts, tail)
	}
	s.mappings = slices.Replace(s.mappings, first, last, parts...)
}

// Fill adds the part of m around a where nothing is mapped, if a is in there.
func (s *Space[T]) Fill(m Mapping[T], a addr.Abs) {
	i := s.after(a)
	if i > 0 {
		if end := s.mappings[i-1].End; end > m.Start {
			m.Offset, m.Start = m.FileOffset(end), end
		}
	}
	if i < len(s.mappings) {
		m.End = min(m.End, s.mappings[i].Start)
	}
	if m.Start <= a && a < m.End {
		s.Insert(m)
	}
}

// Clone returns a copy, as fork makes it, or for who wants the space as it is now.
func (s *Space[T]) Clone() Space[T] {
	s.shared = true
	return *s
}
