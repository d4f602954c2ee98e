package fromperf

import (
	"hallmark/addr"
	"hallmark/internal/addrspace"
	"hallmark/perfdata"
	"hallmark/reason"
)

// place is one frame of a stack: a file and where in it, or why there is none.
type place struct {
	file    *file
	at      uint64 // a file offset, or an absolute address where there is no file
	why     reason.Reason
	program string // name of generated code in the kernel
}

// places numbers places. In a space that does not change, an address is always the same
// place; so the last answers are remembered by both.
type places struct {
	inFiles map[inFile]uint32 // numbers of most places
	others  map[place]uint32
	all     []place
	recent  [recentPlaces]recentPlace
}

// recentPlace is the place of an address in the space that had this layout.
type recentPlace struct {
	layout uint64
	ip     addr.Abs
	next   uint32 // the place's number and one more, 0 for none
}

const recentPlaces = 1 << 14

// inFile is a place in a file, which has two words to compare.
type inFile struct {
	file *file
	at   uint64
}

func newPlaces() *places { return &places{inFiles: map[inFile]uint32{}, others: map[place]uint32{}} }

func (s *places) recentOf(layout uint64, ip addr.Abs) *recentPlace {
	const golden = 0x9e3779b97f4a7c15 // spreads what differs by little
	return &s.recent[(uint64(ip)^layout<<32)*golden>>32%recentPlaces]
}

func (s *places) number(at place) uint32 {
	if at != (place{file: at.file, at: at.at}) {
		return numberIn(s.others, at, s, at)
	}
	return numberIn(s.inFiles, inFile{at.file, at.at}, s, at)
}

// numberIn returns the number that a map has of a place, the next one if it is new.
func numberIn[K comparable](numbers map[K]uint32, key K, s *places, at place) uint32 {
	n, ok := numbers[key]
	if !ok {
		n = uint32(len(s.all))
		numbers[key] = n
		s.all = append(s.all, at)
	}
	return n
}

// place returns the number of the place of an address in a process.
func (p *replay) place(proc *process, ip addr.Abs, mode perfdata.Mode) uint32 {
	user := mode == perfdata.ModeUser
	switch mode {
	case perfdata.ModeGuestKernel, perfdata.ModeGuestUser, perfdata.ModeHypervisor:
		// Its addresses say nothing here, and would make every stack another one.
		return p.known.number(place{why: reason.Guest})
	}
	layout := proc.layout
	if !user {
		layout = p.kernelLayout
	}
	recent := p.known.recentOf(layout, ip)
	if recent.next == 0 || recent.ip != ip || recent.layout != layout {
		*recent = recentPlace{layout, ip, p.known.number(p.find(proc, ip, user)) + 1}
	}
	return recent.next - 1
}

func (p *replay) find(proc *process, ip addr.Abs, user bool) place {
	if !user {
		return p.kernelPlace(ip)
	}
	m := proc.space.Find(ip)
	switch {
	case m == nil && addrspace.IsVsyscall(ip):
		return place{why: reason.Vsyscall, at: uint64(ip)}
	case m == nil && proc.outside:
		return place{why: reason.Outside}
	case m == nil:
		// The address itself says nothing, and would make every stack another one.
		return place{why: reason.NotMapped}
	case !m.Of.executable:
		return place{why: reason.NotExecutable}
	case m.Of.file == nil:
		return place{why: reason.Anonymous, at: uint64(ip)}
	}
	return place{file: m.Of.file, at: uint64(m.FileOffset(ip))}
}

func (p *replay) kernelPlace(ip addr.Abs) place {
	if m := p.kernel.Find(ip); m != nil {
		return place{file: m.Of.file, at: uint64(m.FileOffset(ip))}
	}
	for i := len(p.programs) - 1; i >= 0; i-- {
		if s := &p.programs[i]; ip >= s.Addr && uint64(ip-s.Addr) < uint64(s.Size) {
			return place{why: reason.Anonymous, at: uint64(ip), program: s.Name}
		}
	}
	if p.kernel.IsEmpty() {
		return place{why: reason.KernelHidden}
	}
	return place{why: reason.ModuleUnknown, at: uint64(ip)}
}
