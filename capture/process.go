package capture

import (
	"errors"
	"os"
	"unsafe"

	"hallmark/internal/addrspace"
	"hallmark/internal/objects"
	"hallmark/internal/patience"
	"hallmark/internal/perfring"
	"hallmark/internal/procfs"
	"hallmark/internal/quota"
	"hallmark/internal/reach"
	"hallmark/internal/rewrites"
	"hallmark/procmap"
	"hallmark/reason"
)

// space is the executable mappings of a process.
type space = addrspace.Space[*objects.Object]

type mapping = addrspace.Mapping[*objects.Object]

// process is one address space with a name. A process that execs keeps its
// number and gets a new space.
type process struct {
	objects.Process
	name  string
	space space
	// unknown is why the mappings are not known, reason.None when they are.
	unknown reason.Reason
	// asOf is when the mappings were read from /proc, 0 when they were not: what
	// records from before report is in them already. The clock is that of the records.
	asOf uint64
	// refreshed is the time of the sample for which they were last read again, fresh what was read
	// then, and freshAsOf when: samples of before are of what was mapped before. It is 0 when the time of
	// the records has come to it.
	refreshed uint64
	fresh     []mapping
	freshAsOf uint64
	// doubted says that they are to be read again, because records were lost.
	doubted bool
	// known is since when they are known again, 0 when they always were.
	known   uint64
	origins rewrites.Origins
	// room has the share of the user who answers for the process in the memory for mappings, nil for no
	// bound. held is what the process has of it, in bytes.
	room *quota.Pool
	held int64
	// kept is the space as it is now, where samples wait that need it; else nil.
	kept *keptSpace
	// ended is when its first thread ended, 0 while it runs. The records of its
	// other threads may still follow.
	ended uint64
}

// mappingBytes is what a mapping takes, with the memory that lists have in reserve.
const mappingBytes = int64(unsafe.Sizeof(mapping{})) * 3 / 2

// insert adds mappings to those of the process.
func (p *process) insert(code ...mapping) {
	for _, m := range code {
		p.space.Insert(m)
	}
	p.settle()
}

// settle takes room for the mappings that are kept of the process, or gives it back. Where its user has none
// left, none are kept.
func (p *process) settle() {
	p.kept = nil // the space may have changed
	need := mappingBytes * int64(p.space.Len()+len(p.fresh))
	if need/askedEach > p.held/askedEach {
		p.ask()
	}
	if need > p.held && !p.room.Take(p.Account, need-p.held) {
		p.release()
		p.space, p.fresh, p.freshAsOf, p.unknown = space{}, nil, 0, reason.NotRead
		return
	}
	if need < p.held {
		p.room.Return(p.Account, p.held-need)
	}
	p.held = need
}

// askedEach is after how many bytes somebody asks again who answers for the process.
const askedEach = 64 << 10

// ask asks who answers for the process: it may have become another user's without executing a program.
func (p *process) ask() {
	user := procfs.AccountOf(p.PID)
	if user == procfs.NoUser || user == p.Account {
		return
	}
	p.room.Return(p.Account, p.held)
	p.room.Charge(user, p.held)
	p.Account = user
}

// release gives back the room for the mappings of a process that is forgotten.
func (p *process) release() {
	p.room.Return(p.Account, p.held)
	p.held = 0
}

// catchUp takes what was read again of the mappings, once the records have come to the time of that.
func (p *process) catchUp(now uint64) {
	if p.freshAsOf == 0 || now < p.freshAsOf {
		return
	}
	fresh := p.fresh
	p.fresh, p.freshAsOf = nil, 0
	p.insert(fresh...)
}

// maxBehind is by how much the records may be behind the mappings that are read from /proc for these
// to be believed of their time, where records report none. Records wait for two rounds, each of which
// may be as long as perfring.LongestWait.
const maxBehind = 3 * uint64(perfring.LongestWait)

// unknownAt returns why nobody knows what the process had mapped at a time (ns, CLOCK_MONOTONIC),
// reason.None if somebody does.
func (p *process) unknownAt(at uint64) reason.Reason {
	switch {
	case at < p.known:
		return reason.RecordsLost
	case p.doubted, at+maxBehind < p.asOf:
		return reason.NotRead
	}
	return reason.None
}

func newProcess(pid uint32, since uint64, name string) *process {
	return &process{Process: objects.Process{PID: pid, Since: since}, name: name}
}

// inventory reads the mappings and the name of a process that runs already.
// Where that cannot be done, the process says why.
func (p *process) inventory(s *objects.Set) {
	if name := procfs.NameOf(p.PID); name != "" {
		p.name = name
	}
	now := perfring.Monotonic()
	vmas, err := reach.Mappings(int(p.PID))
	switch {
	case err == nil:
		p.unknown, p.asOf = reason.None, now
	case errors.Is(err, os.ErrPermission):
		p.unknown = reason.NotPermitted
	case errors.Is(err, patience.ErrNoTime):
		p.unknown = reason.NotRead
	case errors.Is(err, patience.ErrSilent):
		p.unknown = reason.FileUnresponsive
	case errors.Is(err, procmap.ErrNoMemory):
		p.unknown = reason.None // a kernel thread
	default:
		p.unknown = reason.ProcessGone
	}
	code, isWhole := p.executable(s, vmas)
	if !isWhole {
		p.unknown = reason.NotRead
	}
	p.insert(code...)
}

// reread reads the mappings again, and returns those that can be executed and when they
// were read (ns, CLOCK_MONOTONIC), 0 if they cannot be read.
func (p *process) reread(s *objects.Set) (fresh []mapping, asOf uint64) {
	now := perfring.Monotonic()
	vmas, err := reach.Mappings(int(p.PID))
	if err != nil {
		return nil, 0
	}
	fresh, _ = p.executable(s, vmas)
	return fresh, now
}

// executable returns those mappings that can be executed, and whether its user has room for all of them.
func (p *process) executable(s *objects.Set, vmas []procmap.VMA) (code []mapping, isWhole bool) {
	for _, v := range vmas {
		if v.Perm&procmap.Exec == 0 {
			continue
		}
		if !p.room.Has(p.Account) {
			return code, false
		}
		code = append(code, mapping{Start: v.Start, End: v.End, Offset: v.Offset, Of: s.OfVMA(v, &p.Process)})
	}
	return code, true
}
