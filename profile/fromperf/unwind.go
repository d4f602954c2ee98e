package fromperf

import (
	"strings"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/perfdata"
	"hallmark/profile"
	"hallmark/unwind"
)

// maxFrames is how many frames of user code are looked for: as many as perf's call chains
// have.
const maxFrames = 127

// copied adds the frames of user code of a sample that has a copy of the stack.
func (p *replay) copied(s *perfdata.Sample, proc *process) profile.Walk {
	if len(p.places) == 0 && s.Mode() == perfdata.ModeKernel {
		p.places = append(p.places, p.place(proc, s.IP, false))
	}
	ip, ok := p.machine.IP(s)
	state, whole := p.machine.State(s)
	switch {
	case !ok: // a thread of the kernel
		return profile.Walk{End: unwind.NoUserStack}
	case !whole:
		p.places = append(p.places, p.place(proc, ip, true))
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
	var walk profile.Walk
	walk.End = w.Walk(&state, func(f unwind.Frame) bool {
		p.places = append(p.places, p.place(proc, f.At, true))
		walk.Methods = walk.Methods.With(f.Method)
		return true
	})
	if walk.Methods == 0 { // no code is mapped where it stood: that is for reasons to tell
		p.places = append(p.places, p.place(proc, ip, true))
		walk.Methods = walk.Methods.With(unwind.ByRegs)
	}
	if walk.End == unwind.NoTable {
		p.stats.Unwalked++
	}
	return walk
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
	f.table = p.tables(id, strings.TrimSuffix(f.name, deleted))
	return f.table
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
