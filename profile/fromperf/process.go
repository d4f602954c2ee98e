package fromperf

import (
	"path"
	"strings"

	"hallmark/addr"
	"hallmark/internal/addrspace"
	"hallmark/perfdata"
)

// space is what a process has mapped.
type space = addrspace.Space[shown]

type mapping = addrspace.Mapping[shown]

// shown is what a mapping shows.
type shown struct {
	file       *file // nil for memory
	executable bool
}

// process is one address space with a name. A process that execs keeps its number
// and gets a new space.
type process struct {
	name   string
	space  space
	layout uint64 // number of the space as it is now; 0 while it is empty
	ended  uint64 // time when its first thread ended, 0 while that runs
	seen   uint64 // time of its last sample

	own int // mappings that memory was counted for

	// outside stands for all that have no number here.
	outside bool
}

const (
	idleName = "swapper" // of the tasks that run when no other does

	// miscForkExec marks a fork that perf made up for a process that ran already:
	// its mappings follow (PERF_RECORD_MISC_FORK_EXEC).
	miscForkExec = 1 << 13
)

func (p *replay) process(pid uint32) *process {
	proc := p.processes[pid]
	if proc == nil {
		proc = &process{}
		if pid == perfdata.Idle {
			proc.name, proc.outside, proc.layout = idleName, true, p.newLayout()
		}
		p.processes[pid] = proc
	}
	return proc
}

func (p *replay) comm(r *perfdata.Comm) {
	if r.OwnerPID == perfdata.Idle {
		return
	}
	p.threads[r.OwnerTID] = r.Name
	if r.Exec {
		// The number is kept, everything else is new.
		p.forget(r.OwnerPID)
		p.processes[r.OwnerPID] = &process{name: r.Name}
		return
	}
	if r.OwnerPID == r.OwnerTID {
		p.process(r.OwnerPID).name = r.Name
	}
}

func (p *replay) task(r *perfdata.Task) {
	if r.Exited {
		p.exit(r)
		return
	}
	if r.ChildPID == perfdata.NoTask || r.ChildTID == perfdata.NoTask {
		return // it has ended already
	}
	if r.ChildPID == perfdata.Idle {
		return
	}
	if name, ok := p.threads[r.ParentTID]; ok {
		p.threads[r.ChildTID] = name
	}
	if r.ChildPID == r.ParentPID {
		return // a thread
	}
	child := &process{}
	if parent := p.processes[r.ParentPID]; parent != nil && !parent.outside && r.Misc&miscForkExec == 0 {
		child.name, child.space, child.layout = parent.name, parent.space.Clone(), parent.layout
	}
	p.forget(r.ChildPID)
	p.processes[r.ChildPID] = child
}

// forget takes a process out.
func (p *replay) forget(pid uint32) {
	if old := p.processes[pid]; old != nil {
		p.mappings -= old.own
		delete(p.processes, pid)
	}
}

// forgetAfter is how long (ns) a process is remembered that has ended and is not seen
// any more: its other threads may go on when the first one has ended.
const forgetAfter = 60e9

// exit notes down that a process ended, and forgets those that ended long ago: a long
// recording has no end of processes.
func (p *replay) exit(r *perfdata.Task) {
	delete(p.threads, r.ChildTID)
	proc := p.processes[r.ChildPID]
	if proc == nil || r.ChildPID != r.ChildTID {
		return
	}
	proc.ended = r.Time
	p.ended = append(p.ended, r.ChildPID)
	for range len(p.ended) {
		pid := p.ended[0]
		old := p.processes[pid]
		full := len(p.ended) > maxEnded
		if old != nil && old.ended+forgetAfter > r.Time && !full {
			return
		}
		p.ended = p.ended[1:]
		switch {
		case old == nil || old.ended == 0: // its number was used again, and is not at its end
		case old.seen+forgetAfter > r.Time && !full:
			old.ended = old.seen
			p.ended = append(p.ended, pid)
		default:
			p.forget(pid)
		}
	}
}

// maxEnded is how many processes that ended are remembered at most.
const maxEnded = 1 << 16

func (p *replay) mmap(r *perfdata.Mmap2) {
	m := mapping{Start: r.Start, End: r.Start + addr.Abs(r.Size), Offset: r.Offset, Of: shown{executable: r.Prot&perfdata.ProtExec != 0}}
	if m.End < m.Start {
		return
	}
	if r.Owner == perfdata.NoTask {
		m.Of.file, m.Offset = p.files.ofKernel(r), 0
		p.kernel.Insert(m)
		p.kernelLayout = p.newLayout()
		return
	}
	if !isMemory(r) {
		m.Of.file = p.files.mapped(r)
	}
	if r.Owner == perfdata.Idle {
		return
	}
	proc := p.process(r.Owner)
	proc.space.Insert(m)
	p.mappings += proc.space.Own() - proc.own
	proc.own = proc.space.Own()
	proc.layout = p.newLayout()
}

// emptyKernel is the layout of the kernel's space before anything is mapped in it. That of
// processes is 0.
const emptyKernel = 1

// newLayout returns a number for a space that has changed: it is another one now.
func (p *replay) newLayout() uint64 {
	p.layouts++
	return p.layouts
}

// isMemory reports whether a mapping shows no file, or one that is only memory by
// another name. A file that has that name is on a disk, or the kernel read its build ID; the
// names of memory alone, but for /dev/zero, are always those of deleted files.
func isMemory(r *perfdata.Mmap2) bool {
	if _, ok := perfdata.GeneratedFunction(r.Name); ok || r.Name == "[vdso]" {
		return false
	}
	if r.Name == "" || r.Name[0] == '[' || strings.HasPrefix(r.Name, "//anon") {
		return true
	}
	if r.BuildID != nil || r.Major != 0 {
		return false
	}
	name, ofDeleted := strings.CutSuffix(r.Name, deleted)
	return name == "/dev/zero" || ofDeleted && (name == "/anon_hugepage" || strings.HasPrefix(name, "/SYSV"))
}

// deleted is what the kernel puts behind the path of a file that was unlinked,
// fs/d_path.c.
const deleted = " (deleted)"

// maxPrograms bounds the memory for names of code that came and went.
const maxPrograms = 1 << 16

func (p *replay) ksymbol(r *perfdata.Ksymbol) {
	if len(p.programs) < maxPrograms && !r.Unregistered {
		p.programs = append(p.programs, *r)
		p.kernelLayout = p.newLayout()
	}
}

// moduleName returns the name that the kernel has for the module in a file:
// "nf_tables" for /lib/modules/6.1.0/kernel/net/netfilter/nf-tables.ko.xz.
func moduleName(file string) string {
	if name, ok := strings.CutPrefix(file, "["); ok {
		return strings.TrimSuffix(name, "]")
	}
	name, _, _ := strings.Cut(path.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}
