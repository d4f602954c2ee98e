package toperf

import (
	"cmp"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/perfdata"
	"hallmark/profile"
)

// script writes samples in the order of time, and before each what perf must have heard
// of by then: the names of its process and thread, and mappings.
type script struct {
	out      *perfdata.Writer
	profile  *pprof.Profile
	layout   *layout
	names    map[uint32]string // of threads, as they are now
	mapped   map[mappedIn]bool
	unnamed  map[string]uint32 // numbers that were made up, by name
	cgroups  map[string]uint64
	programs bool
	chain    []uint64
}

type mappedIn struct {
	pid  uint32
	area *area
}

func newScript(p *pprof.Profile, out *perfdata.Writer, every bool) *script {
	return &script{
		out: out, profile: p, layout: newLayout(p, every), names: map[uint32]string{}, mapped: map[mappedIn]bool{},
		unnamed: map[string]uint32{}, cgroups: map[string]uint64{},
	}
}

func (s *script) hasCgroups(p *pprof.Profile) bool {
	for _, sample := range p.Sample {
		if len(sample.Label["cgroup"]) > 0 {
			return true
		}
	}
	return false
}

func (s *script) run(moments []moment) error {
	for _, m := range moments {
		if err := s.write(m); err != nil {
			return err
		}
	}
	return nil
}

// owner is whose sample it is.
type owner struct {
	pid, tid        uint32
	process, thread string
}

// idle is the name of what runs when nothing else does, which has the number 0 and in
// profiles none.
const idle = "swapper"

// maxPID is above all numbers of processes, PID_MAX_LIMIT of the kernel's
// include/linux/threads.h.
const maxPID = 4 << 20

func (s *script) owner(sample *pprof.Sample) owner {
	process, pid := profile.Process(sample)
	thread, tid := profile.Thread(sample)
	o := owner{uint32(pid), uint32(cmp.Or(tid, pid)), record(process), record(cmp.Or(thread, process))}
	if pid == 0 && process != idle {
		if s.unnamed[process] == 0 {
			s.unnamed[process] = maxPID + uint32(len(s.unnamed)) + 1
		}
		o.pid, o.tid = s.unnamed[process], s.unnamed[process]
	}
	return o
}

// write writes one sample.
func (s *script) write(m moment) error {
	sample := s.profile.Sample[m.sample]
	o := s.owner(sample)
	id := perfdata.ID{PID: o.pid, TID: o.tid, Time: uint64(max(m.time, 1)), Event: 1, Misc: uint16(perfdata.ModeUser)}
	group, err := s.cgroup(id, sample)
	if err != nil {
		return err
	}
	if err := s.introduce(id, o); err != nil {
		return err
	}
	if err := s.mapFiles(id, sample); err != nil {
		return err
	}
	r := &perfdata.Sample{ID: id, Period: uint64(m.period), Cgroup: group}
	s.stack(r, sample.Location)
	return s.out.Write(r, nil)
}

// introduce names a process and its thread, where they are not called that already.
func (s *script) introduce(id perfdata.ID, o owner) error {
	names := []struct {
		tid  uint32
		name string
	}{{o.pid, o.process}, {o.tid, o.thread}}
	if o.pid == o.tid {
		names = names[1:]
	}
	for _, n := range names {
		if n.name == "" || s.names[n.tid] == n.name || n.tid == 0 {
			continue
		}
		s.names[n.tid] = n.name
		if err := s.out.Write(&perfdata.Comm{ID: id, OwnerPID: o.pid, OwnerTID: n.tid, Name: n.name}, nil); err != nil {
			return err
		}
	}
	return nil
}

// kernelPID is the owner of what is mapped for the kernel.
const kernelPID = ^uint32(0)

// mapFiles maps what the stack of a sample is in.
func (s *script) mapFiles(id perfdata.ID, sample *pprof.Sample) error {
	if err := s.loadPrograms(id); err != nil {
		return err
	}
	for _, l := range sample.Location {
		a := s.layout.places[l].area
		if a == nil {
			continue
		}
		key := mappedIn{id.PID, a}
		if a.kernel {
			key.pid = kernelPID
		}
		if s.mapped[key] {
			continue
		}
		s.mapped[key] = true
		r := a.record
		r.ID, r.Owner, r.Thread = id, key.pid, key.pid
		if a.kernel {
			r.Misc, r.Thread = uint16(perfdata.ModeKernel), 0
		}
		if err := s.out.Write(&r, nil); err != nil {
			return err
		}
	}
	return nil
}

// loadPrograms reports generated code in the kernel once.
func (s *script) loadPrograms(id perfdata.ID) error {
	if s.programs {
		return nil
	}
	s.programs = true
	for _, k := range s.layout.programs {
		k.ID = id
		k.Misc = uint16(perfdata.ModeKernel)
		if err := s.out.Write(k, nil); err != nil {
			return err
		}
	}
	return nil
}

// cgroup returns the number of a sample's cgroup, which it names when it is new.
func (s *script) cgroup(id perfdata.ID, sample *pprof.Sample) (uint64, error) {
	paths := sample.Label["cgroup"]
	if len(paths) == 0 {
		return 0, nil
	}
	path := record(paths[0])
	n, ok := s.cgroups[path]
	if !ok {
		n = uint64(len(s.cgroups)) + 1
		s.cgroups[path] = n
		if err := s.out.Write(&perfdata.Cgroup{ID: id, Cgroup: n, Path: path}, nil); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// maxChain is as many addresses as a record has room for.
const maxChain = 8000

// stack sets the call chain: behind the innermost address of each context are return
// addresses, and the profile has the call before them.
func (s *script) stack(r *perfdata.Sample, stack []*pprof.Location) {
	s.chain = s.chain[:0]
	context := uint64(0)
	for _, l := range stack {
		if len(s.chain) >= maxChain {
			break
		}
		at := s.layout.places[l]
		marker := perfdata.ContextUser
		if at.kernel {
			marker = perfdata.ContextKernel
		}
		ip := at.ip
		if marker != context {
			context = marker
			s.chain = append(s.chain, marker)
		} else {
			ip++
		}
		if len(s.chain) == 1 {
			r.IP = addr.Abs(ip)
			if at.kernel {
				r.Misc = uint16(perfdata.ModeKernel)
			}
		}
		s.chain = append(s.chain, ip)
	}
	r.Callchain = s.chain
}
