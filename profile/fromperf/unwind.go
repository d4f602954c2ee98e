package fromperf

import (
	"strings"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/defect"
	"hallmark/internal/perfregs"
	"hallmark/perfdata"
	"hallmark/profile"
	"hallmark/unwind"
)

// maxFrames is how many frames of user code are looked for: as many as recordings by BPF have.
const maxFrames = 1024

// hasCopy reports whether the event of the sample at hand asked for copies of the stack of
// user code, and so for its registers. The kernel gives registers without a stack where it
// finds none, and neither of its own threads.
func (p *replay) hasCopy() bool {
	e := p.r.Event()
	return e != nil && e.Attr.Fields&perfdata.SampleStackUser != 0 && e.Attr.Fields&perfdata.SampleRegsUser != 0
}

// copied adds the frames of user code of a sample that has a copy of the stack.
func (p *replay) copied(s *perfdata.Sample, proc *process) profile.Walk {
	if mode := s.Mode(); len(p.places) == 0 && mode != perfdata.ModeUser && mode != perfdata.ModeUnknown {
		p.places = append(p.places, p.place(proc, s.IP, mode))
	}
	if p.machine == nil {
		p.machine = machineOf(p.r.Info().Arch, p.r.Event().Attr.UserRegs)
	}
	if p.machine == nil {
		return p.interrupted(s, proc)
	}
	ip, ok := p.machine.IP(s)
	state, whole := p.machine.State(s)
	switch {
	case !ok: // a thread of the kernel
		return profile.Walk{End: unwind.NoUserStack}
	case !whole:
		p.places = append(p.places, p.place(proc, ip, perfdata.ModeUser))
		return profile.Walk{End: unwind.Compat, Methods: profile.Methods(0).With(unwind.ByRegs)}
	case inExec(s, proc, ip):
		return profile.Walk{End: unwind.NoUserStack}
	}
	sp, _ := state.Get(p.machine.Machine.StackPointer())
	w := unwind.Walker{
		Machine: p.machine.Machine,
		Memory:  &unwind.Stack{Base: addr.Abs(sp), Bytes: s.UserStack},
		Space:   &walkedSpace{p, proc},
		Max:     maxFrames,
	}
	walk := p.walk(&w, &state, proc)
	if walk.Methods == 0 { // no code is mapped where it stood: a reason says why
		p.places = append(p.places, p.place(proc, ip, perfdata.ModeUser))
		walk.Methods = walk.Methods.With(unwind.ByRegs)
	}
	return walk
}

// walk adds the frames that w finds. A panic ends the stack where it is, as one whose
// table is not there.
func (p *replay) walk(w *unwind.Walker, state *unwind.State, proc *process) (walk profile.Walk) {
	defer func() {
		if !defect.Escapes() && recover() != nil {
			walk.End = unwind.NoTable
		}
	}()
	walk.End = w.Walk(state, func(f unwind.Frame) bool {
		p.places = append(p.places, p.place(proc, f.At, perfdata.ModeUser))
		walk.Methods = walk.Methods.With(f.Method)
		return true
	})
	return walk
}

// machineOf returns how the machine numbers its registers, nil where its stacks cannot be
// unwound. A recording that was not ended properly does not name the machine: then the set
// of registers does, if perf asked for all of them, as no other machine has the same set.
func machineOf(arch string, registers uint64) *perfregs.Machine {
	if arch != "" {
		return perfregs.Of(arch)
	}
	switch registers {
	case allOfX86_64:
		return perfregs.Of("amd64")
	case allOfARM64:
		return perfregs.Of("arm64")
	}
	return nil
}

// The registers that perf asks for with --call-graph dwarf: PERF_REGS_MASK of
// tools/perf/arch/*/include/perf_regs.h.
const (
	allOfX86_64 = (1<<24 - 1) &^ (0xf << 12) // without ds, es, fs and gs
	allOfARM64  = 1<<33 - 1
)

// interrupted adds the place of user code where a machine stood whose stacks cannot be
// unwound. Of a sample in user code, that is where the sample is.
func (p *replay) interrupted(s *perfdata.Sample, proc *process) profile.Walk {
	ip, ok := addr.Abs(0), false
	if n, known := instructionPointers[p.r.Info().Arch]; known {
		var value uint64
		value, ok = s.UserRegs.Get(n)
		ip = addr.Abs(value)
	}
	switch {
	case s.Mode() == perfdata.ModeUser:
		ip, ok = s.IP, true
	case s.UserRegs.ABI == perfdata.RegsNone:
		return profile.Walk{End: unwind.NoUserStack}
	case !ok || proc.space.Find(ip) == nil:
		return profile.Walk{}
	}
	p.places = append(p.places, p.place(proc, ip, perfdata.ModeUser))
	return profile.Walk{Methods: profile.Methods(0).With(unwind.ByRegs)}
}

// instructionPointers are the numbers of the register with the instruction pointer, by what
// uname(2) calls a machine: arch/*/include/uapi/asm/perf_regs.h.
var instructionPointers = map[string]int{
	"i386": 8, "i486": 8, "i586": 8, "i686": 8,
	"armv5l": 15, "armv6l": 15, "armv7l": 15, "armv8l": 15, "armv7b": 15,
	"ppc": 32, "ppc64": 32, "ppc64le": 32,
	"riscv32": 0, "riscv64": 0, "loongarch64": 0, "mips": 0, "mips64": 0,
	"s390": 33, "s390x": 33,
}

// inExec reports whether a sample was taken while the kernel executed a program: the old
// stack is gone, and the registers are still those of the call.
func inExec(s *perfdata.Sample, proc *process, ip addr.Abs) bool {
	return s.Mode() != perfdata.ModeUser && len(s.UserStack) == 0 && proc.space.Find(ip) == nil
}

// walkedSpace is the address space of a process, for the walk of a stack.
type walkedSpace struct {
	replay *replay
	proc   *process
}

// At returns the mapping that a lies in.
func (w *walkedSpace) At(a addr.Abs) (unwind.Mapping, bool) {
	m := w.proc.space.Find(a)
	if m == nil {
		return unwind.Mapping{}, false
	}
	found := unwind.Mapping{Start: m.Start, End: m.End, Offset: m.Offset}
	switch {
	case !m.Of.executable:
		found.Content = unwind.Data
	case m.Of.file == nil:
		found.Content = unwind.Generated
	default:
		found.Table = w.replay.table(m.Of.file)
	}
	return found, true
}

// table returns the unwind table of a file, nil when it is not at hand. Without the file's
// identity in the records it is taken from perf's list, and from whoever else knows, and may turn out to be in doubt
// later on: see trusted.
func (p *replay) table(f *file) *unwind.Table {
	if f.looked || p.tables == nil {
		return f.table
	}
	id := f.id
	if id.IsZero() {
		id, _ = p.files.unrecorded(f, p.listedIDs())
	}
	if id.IsZero() {
		return nil // perf writes its list into a pipe last
	}
	f.looked, f.by = true, id
	f.table = p.tableFrom(id, strings.TrimSuffix(f.name, deleted))
	return f.table
}

// tableFrom asks for a table. If that panics, there is none.
func (p *replay) tableFrom(id buildid.ID, path string) (table *unwind.Table) {
	defer func() {
		if !defect.Escapes() && recover() != nil {
			table = nil
		}
	}()
	return p.tables(id, path)
}

// listedIDs are perf's list as far as it was read.
func (p *replay) listedIDs() map[string]listedID {
	if n := len(p.r.Info().BuildIDs); p.list == nil || n != p.listed {
		p.list, p.listed = listedIDs(p.r.Info()), n
	}
	return p.list
}

// A Tables function returns the unwind table of the file with an identity, of which there
// may be a copy at a path: nil when the file is not at hand.
type Tables func(id buildid.ID, path string) *unwind.Table
