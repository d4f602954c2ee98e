package capture

import (
	"slices"
	"time"

	"hallmark/addr"
	"hallmark/internal/addrspace"
	"hallmark/internal/objects"
	"hallmark/internal/perfring"
	"hallmark/internal/procfs"
	"hallmark/internal/rewrites"
	"hallmark/perfdata"
	"hallmark/profile"
	"hallmark/reason"
)

// tracker follows the processes through the stream of records, in the order of
// time, and turns samples into counted stacks. profile/fromperf does the same with files:
// docs/perfdata.md has the reasons why these are two.
type tracker struct {
	*tally
	processes map[uint32]*process
	// threads has the name of every thread that a record reported or that was asked for.
	threads map[uint32]string
	clock   bool // the event measures time: periods are nanoseconds
	// contained says that this is a PID namespace that others are outside of.
	contained bool
	reaped    uint64 // when processes were last looked through
	places    []place
	doubles   *doubles // nil when there can be none
	// completeSince is when the records of changes were complete again, 0 when none was ever lost.
	completeSince uint64
	// unwinder finds the callers of user code when samples bring their stacks, else nil.
	unwinder *userStacks
}

// handle takes one record.
func (t *tracker) handle(r perfdata.Record) {
	switch r := r.(type) {
	case *perfdata.Sample:
		t.sample(r)
	case *perfdata.Mmap2:
		t.mmap(r)
	case *perfdata.Comm:
		t.comm(r)
	case *perfdata.Task:
		if r.Exited {
			t.exit(r)
		} else {
			t.fork(r)
		}
	case *perfdata.Lost:
		t.stats.Lost += r.Count
	case *perfdata.Throttle:
		t.throttle(r)
	case *perfdata.Ksymbol:
		t.kernel.Learn(r)
	case *perfdata.Cgroup:
		t.cgroups.Learn(r.Cgroup, r.Path)
	}
}

// doubt forgets what was mapped in all processes: records of changes were lost until a time. It
// is read again for each process that is sampled, and counts from then on.
func (t *tracker) doubt(until uint64) {
	t.completeSince = until
	for _, p := range t.processes {
		if p.PID != perfdata.Idle && p.PID != perfdata.NoTask {
			p.doubted = true
		}
	}
}

// ask reads what a process maps after records were lost, if that was not done and there is time for it.
func (t *tracker) ask(p *process) {
	if !p.doubted {
		return
	}
	t.look(p, func() {
		p.space, p.origins = space{}, rewrites.Origins{}
		p.inventory(t.objects)
		p.doubted, p.known = false, perfring.Monotonic()
	})
}

// look calls look, at a process, if the user who answers for it has time left. It reports whether it did.
func (t *tracker) look(p *process, look func()) bool {
	end := t.looks.Take(p.Account)
	if end == nil {
		return false
	}
	defer end()
	look()
	return true
}

// newProcess returns a process that a record reported, or that runs. Its user is asked for.
func (t *tracker) newProcess(pid uint32, since uint64, name string) *process {
	p := newProcess(pid, since, name)
	p.room, p.Account = t.objects.Room(), procfs.AccountOf(pid)
	return p
}

// put puts a process in the place of the one that had its number.
func (t *tracker) put(p *process) {
	t.forget(p.PID)
	t.processes[p.PID] = p
}

func (t *tracker) forget(pid uint32) {
	if old := t.processes[pid]; old != nil {
		old.release()
		delete(t.processes, pid)
	}
}

func (t *tracker) mmap(r *perfdata.Mmap2) {
	if r.Prot&perfdata.ProtExec == 0 || r.Owner == perfdata.NoTask || r.Owner == perfdata.Idle {
		return
	}
	p := t.process(r.Owner)
	if r.Time < p.asOf {
		return
	}
	p.catchUp(r.Time)
	p.insert(mapping{
		Start:  r.Start,
		End:    r.Start + addr.Abs(r.Size),
		Offset: r.Offset,
		Of:     t.objects.OfRecord(r, &p.Process),
	})
}

func (t *tracker) comm(r *perfdata.Comm) {
	if r.OwnerPID == perfdata.Idle {
		return
	}
	t.threads[r.OwnerTID] = r.Name
	was := t.processes[r.OwnerPID]
	if was != nil && r.Time < was.asOf {
		return
	}
	if r.Exec {
		t.doubles.forget(r.OwnerTID)
		// The number is kept, everything else is new.
		p := t.newProcess(r.OwnerPID, r.Time, r.Name)
		if p.doubted = r.Time < t.completeSince; p.Account == procfs.NoUser && was != nil {
			p.Account = was.Account
		}
		t.put(p)
		return
	}
	if r.OwnerPID == r.OwnerTID {
		t.process(r.OwnerPID).name = r.Name
	}
}

func (t *tracker) fork(r *perfdata.Task) {
	if r.ChildPID == perfdata.Idle {
		return
	}
	if name, ok := t.threads[r.ParentTID]; ok {
		t.threads[r.ChildTID] = name
	}
	if r.ChildPID == r.ParentPID || r.ChildPID == perfdata.NoTask {
		return // a thread
	}
	if p := t.processes[r.ChildPID]; p != nil && r.Time < p.asOf {
		return
	}
	if r.ParentPID == perfdata.Idle { // from outside: what it brought along is not known
		t.forget(r.ChildPID)
		t.process(r.ChildPID).Since = r.Time
		return
	}
	child := newProcess(r.ChildPID, r.Time, "")
	child.doubted = r.Time < t.completeSince
	if parent := t.processes[r.ParentPID]; parent != nil {
		parent.catchUp(r.Time)
		child.room, child.Account = parent.room, parent.Account
		child.name, child.space, child.unknown = parent.name, parent.space.Clone(), parent.unknown
		child.doubted, child.known = child.doubted || parent.doubted, parent.known
	} else {
		child = t.newProcess(r.ChildPID, r.Time, "")
	}
	t.put(child)
	child.settle()
}

// reapAfter is how long an ended process is remembered for records of its other threads.
const reapAfter = 10 * time.Second

func (t *tracker) exit(r *perfdata.Task) {
	if r.ChildPID == perfdata.Idle {
		return
	}
	delete(t.threads, r.ChildTID)
	t.doubles.forget(r.ChildTID)
	p := t.processes[r.ChildPID]
	if p == nil || r.ChildPID != r.ChildTID {
		return
	}
	p.ended = r.Time
	if p.Generated != nil && p.Generated.Code.IsSampled() {
		p.Generated.Code.Read()
	}
}

// reap forgets the processes that ended long before now. It looks once a second.
func (t *tracker) reap(now uint64) {
	if now < t.reaped+uint64(time.Second) {
		return
	}
	t.reaped = now
	for pid, p := range t.processes {
		if p.ended == 0 || p.ended+uint64(reapAfter) > now {
			continue
		}
		if len(otherThreads(pid)) > 0 {
			p.ended = now // only its first thread has ended
			continue
		}
		t.forget(pid)
		if p.Generated != nil {
			p.Generated.Code.Release()
		}
	}
}

// otherThreads returns the threads of a process besides the first.
func otherThreads(pid uint32) []int {
	tids, _ := procfs.ThreadsOf(int(pid)) // none when it is gone
	return slices.DeleteFunc(tids, func(tid int) bool { return tid == int(pid) })
}

// process returns the process, and one without mappings when no record reported
// it: its mappings are asked for when it still runs.
func (t *tracker) process(pid uint32) *process {
	p := t.processes[pid]
	if p == nil {
		p = t.newProcess(pid, 0, "")
		if pid == perfdata.Idle {
			p.name, p.unknown = idleName, reason.Outside
			if t.contained {
				p.name = outsideName
			}
		} else if pid != perfdata.NoTask {
			if p.doubted = t.completeSince != 0; !p.doubted && !t.look(p, func() { p.inventory(t.objects) }) {
				p.unknown = reason.NotRead
			}
		}
		t.processes[pid] = p
	}
	return p
}

// idleName is the name of the tasks that run when no other does, which have
// no number: samples in interrupts hit them.
const idleName = "swapper"

// outsideName stands for all processes outside of the PID namespace, and those tasks.
const outsideName = "[outside]"

func (t *tracker) sample(r *perfdata.Sample) {
	if t.doubles.has(r.TID, r.Event) {
		return
	}
	p := t.process(r.PID)
	t.ask(p)
	p.catchUp(r.Time)
	why := p.unknownAt(r.Time)
	t.places = t.places[:0]
	if t.unwinder != nil {
		t.unwinder.byFP = t.unwinder.byFP[:0]
	}
	user, first, frames := false, true, 0
	inUser := len(r.Callchain) > 0 && r.Callchain[0] == perfdata.ContextUser
	for _, ip := range r.Callchain {
		if ip >= perfdata.ContextMax {
			user, first = ip == perfdata.ContextUser, true
			continue
		}
		// All but the innermost of each context are return addresses: the call
		// is before them.
		if !first {
			ip--
		} else if inUser && why == reason.None {
			t.refresh(p, addr.Abs(ip), r.Time)
		}
		first = false
		if user && why != reason.None {
			t.places = append(t.places, place{t.objects.Missing(why), ip})
			frames++
			continue
		}
		if user && t.unwinder != nil {
			t.unwinder.byFP = append(t.unwinder.byFP, addr.Abs(ip))
			continue
		}
		if user {
			frames++
		}
		t.places = append(t.places, t.place(p, addr.Abs(ip), user))
	}
	if t.unwinder != nil && why == reason.None {
		t.unwinder.sample(p, r)
		return
	}
	t.add(t.places, framePointers(frames), t.labels(p, r), total{1, t.weight(r)}, r.Time)
}

// refreshAfter is how soon the mappings of a process are read from /proc again.
const refreshAfter = uint64(time.Second)

// refresh reads the mappings of a process again when it was seen to run where
// nothing is known to be mapped. Unlike the callers' frames, which may be
// garbage, the innermost one of a sample taken in user code is real: a record was
// lost, or the mapping was moved (mremap), which the kernel reports to nobody. The mappings that are read
// are of a later time than the sample. So they count from then on, and before only where nothing
// else is known.
func (t *tracker) refresh(p *process, ip addr.Abs, now uint64) {
	if p.ended != 0 || p.PID == perfdata.Idle || p.PID == perfdata.NoTask || addrspace.IsVsyscall(ip) || p.space.Find(ip) != nil {
		return
	}
	if p.refreshed != 0 && now <= p.refreshed+refreshAfter || p.freshAsOf != 0 {
		return
	}
	p.refreshed = now
	if !p.room.Has(p.Account) || !t.look(p, func() { p.fresh, p.freshAsOf = p.reread(t.objects) }) {
		return
	}
	if p.freshAsOf <= now+maxBehind {
		for _, m := range p.fresh {
			if m.Start <= ip && ip < m.End {
				p.space.Fill(m, ip)
			}
		}
	}
	p.settle()
}

func (t *tracker) weight(r *perfdata.Sample) int64 {
	if t.clock {
		return int64(r.Period)
	}
	return int64(t.perSample)
}

func (t *tracker) place(p *process, ip addr.Abs, user bool) place {
	if !user {
		return t.inKernel(ip)
	}
	return t.userPlace(p, &p.space, ip)
}

// userPlace returns the place of an address of user code in what is, or was, the space of
// a process.
func (t *tracker) userPlace(p *process, s *space, ip addr.Abs) place {
	if m := s.Find(ip); m != nil {
		switch m.Of.Kind {
		case objects.File:
			return place{m.Of, uint64(m.FileOffset(ip))}
		case objects.Missing:
			return place{m.Of, uint64(ip)}
		}
		if from, ok := t.original(p, ip); ok {
			return from
		}
		if m.Of.Code != nil {
			m.Of.Code.See()
		}
		return place{m.Of, uint64(ip)}
	}
	if addrspace.IsVsyscall(ip) {
		return place{t.objects.Missing(reason.Vsyscall), uint64(ip)}
	}
	if p.unknown != reason.None {
		return place{t.objects.Missing(p.unknown), uint64(ip)}
	}
	return garbage(t.objects.Missing(reason.NotMapped))
}

func (t *tracker) labels(p *process, r *perfdata.Sample) profile.Labels {
	l := profile.Labels{Process: p.name, Thread: t.thread(r.PID, r.TID)}
	if r.PID != perfdata.NoTask {
		l.PID, l.TID = int(r.PID), int(r.TID)
	}
	l.Cgroup, l.Container = t.cgroups.Home(r.Cgroup)
	return l
}

// thread returns the name of a thread. It asks the kernel when no record has it.
func (t *tracker) thread(pid, tid uint32) string {
	name, ok := t.threads[tid]
	if !ok {
		name = procfs.ThreadName(pid, tid)
		if name == "" {
			return t.process(pid).name
		}
		t.threads[tid] = name
	}
	return name
}
