package capture

import (
	"runtime"
	"slices"

	"hallmark/addr"
	"hallmark/internal/objects"
	"hallmark/internal/perfregs"
	"hallmark/internal/procfs"
	"hallmark/internal/rewrites"
	"hallmark/perfdata"
	"hallmark/profile"
	"hallmark/reason"
	"hallmark/unwind"
)

// userStacks unwinds the stacks that samples have copied.
type userStacks struct {
	*tracker
	machine *perfregs.Machine
	tables  tableSource
	size    int // bytes that a sample was to copy
	walker  unwind.Walker
	stack   unwind.Stack
	space   walkedSpace
	byFP    []addr.Abs // of the sample, innermost first: what frame pointers lead to
	walked  []addr.Abs // what the walker found of it
	waiting []*unfinished
	room    waitingRoom
}

// tableSource has the unwind tables of files.
type tableSource interface {
	// Table returns the table of a file, nil when it has none, and whether that is settled.
	Table(o *objects.Object) (*unwind.Table, bool)
}

// unfinished is a sample that waits for a table.
type unfinished struct {
	process *process
	space   *space // as it was
	kept    *keptSpace
	user    uint32 // who answers for the process
	state   unwind.State
	stack   []byte
	byFP    []addr.Abs
	kernel  []place
	labels  profile.Labels
	weight  int64
	time    uint64
	needs   *objects.Object
}

// held returns how many bytes it takes while it waits, besides its space.
func (u *unfinished) held() int64 { return int64(waitingSize + len(u.stack) + 8*len(u.byFP)) }

// keptSpace is the space of a process as it was, for samples that wait.
type keptSpace struct {
	space   space
	samples int // that have it
}

func (k *keptSpace) held() int64 { return mappingBytes * int64(k.space.Len()) }

// maxUserFrames is as many as the backend BPF records.
const maxUserFrames = 1024

func newUserStacks(t *tracker, tables tableSource, size int) *userStacks {
	u := &userStacks{tracker: t, machine: perfregs.Of(runtime.GOARCH), tables: tables, size: size, room: newWaitingRoom()}
	u.space = walkedSpace{tally: t.tally, tables: tables}
	u.walker = unwind.Walker{Machine: u.machine.Machine, Memory: &u.stack, Space: &u.space, AddressBits: procfs.AddressBits(), Max: maxUserFrames}
	return u
}

// sample counts a sample whose frames in the kernel are in t.places, or lets it wait.
func (u *userStacks) sample(p *process, r *perfdata.Sample) {
	u.stats.Copied += uint64(len(r.UserStack))
	s, ok := u.machine.State(r)
	if !ok || u.inExec(p, r, s.IP) {
		end := unwind.NoUserStack
		if r.UserRegs.ABI == perfdata.Regs32 {
			end = unwind.Compat
			if ip, ok := u.machine.IP(r); ok {
				u.places = append(u.places, u.userPlace(p, &p.space, ip))
			}
		}
		u.add(u.places, profile.Walk{End: end}, u.labels(p, r), total{1, u.weight(r)}, r.Time)
		return
	}
	if r.Mode() == perfdata.ModeUser {
		u.refresh(p, s.IP, r.Time)
	}
	one := unfinished{process: p, space: &p.space, state: s, stack: r.UserStack, byFP: u.byFP, kernel: u.places, labels: u.labels(p, r), weight: u.weight(r), time: r.Time}
	if u.finish(&one, false) {
		return
	}
	if u.makeRoom(&one) {
		one.stack, one.byFP, one.kernel = slices.Clone(one.stack), slices.Clone(one.byFP), slices.Clone(one.kernel)
		u.waiting = append(u.waiting, &one)
	} else {
		u.finish(&one, true)
	}
}

// makeRoom takes the room for a sample that is to wait. Older ones of its user that wait are finished for it, as
// far as they go. It reports whether there is room.
func (u *userStacks) makeRoom(one *unfinished) bool {
	p := one.process
	if p.kept == nil {
		p.kept = &keptSpace{space: p.space.Clone()}
	}
	one.user = p.Account
	need := one.held()
	if p.kept.samples == 0 {
		need += p.kept.held()
	}
	for !u.room.take(one.user, need) {
		if !u.shed(one.user) {
			return false
		}
		if p.kept.samples == 0 { // all that had it are finished
			need = one.held() + p.kept.held()
		}
	}
	one.kept, one.space = p.kept, &p.kept.space
	one.kept.samples++
	return true
}

// leave gives the room back that a sample took.
func (u *userStacks) leave(one *unfinished) {
	n := one.held()
	if one.kept.samples--; one.kept.samples == 0 {
		n += one.kept.held()
	}
	u.room.give(one.user, n)
}

// inExec reports whether a sample was taken while the kernel executed a program: the old
// stack is gone, and the registers are still those of the call.
func (u *userStacks) inExec(p *process, r *perfdata.Sample, ip addr.Abs) bool {
	return r.Mode() != perfdata.ModeUser && len(r.UserStack) == 0 && p.unknown == reason.None && p.space.Find(ip) == nil
}

// finish counts a sample, unless a table is still to come that it can wait for.
func (u *userStacks) finish(one *unfinished, last bool) bool {
	u.space.begin(one)
	sp, _ := one.state.Get(u.machine.Machine.StackPointer())
	u.stack = unwind.Stack{Base: addr.Abs(sp), Bytes: one.stack}
	u.places = append(u.places[:0], one.kernel...)
	s, methods := one.state, profile.Methods(0)
	u.walked = u.walked[:0]
	end := u.walker.Walk(&s, func(f unwind.Frame) bool {
		u.walked = append(u.walked, f.At)
		u.places = append(u.places, u.userPlace(one.process, one.space, f.At))
		methods = methods.With(f.Method)
		return true
	})
	if end == unwind.NoTable && u.space.needs != nil && !last {
		one.needs = u.space.needs
		u.places = u.places[:len(one.kernel)]
		return false
	}
	if end == unwind.NoRule && u.atEntry(&s) {
		end = unwind.Complete
	}
	if methods == 0 { // no code is mapped where it stood: a reason says why
		u.places = append(u.places, u.userPlace(one.process, one.space, s.IP))
		methods = methods.With(unwind.ByRegs)
	}
	if rest := beyond(u.walked, one.byFP); end == unwind.Unreadable && len(rest) > 0 {
		for _, at := range rest {
			u.places = append(u.places, u.userPlace(one.process, one.space, at))
		}
		methods, end = methods.With(unwind.ByFP), unwind.FramePointers
		u.stats.Continued++
	}
	if end == unwind.Unreadable && len(one.stack) >= min(u.size, cutFrom) {
		u.stats.Cut++
	}
	u.add(u.places, profile.Walk{End: end, Methods: methods}, one.labels, total{1, one.weight}, one.time)
	return true
}

// beyond returns the callers that frame pointers lead to of the outermost frame that was walked,
// where the copy of the stack ended or another stack went on. Frame pointers must have led
// through that frame, at the same depth or next to it: they pass over the caller of a function
// that is just being entered.
func beyond(walked, byFP []addr.Abs) []addr.Abs {
	last := len(walked) - 1
	for _, i := range []int{last, last - 1, last + 1} {
		if last > 0 && i > 0 && i < len(byFP) && byFP[i] == walked[last] && byFP[i-1] == walked[last-1] {
			return byFP[i+1:]
		}
	}
	return nil
}

// cutFrom is below what fits into a record with every other field.
const cutFrom = 60 << 10

// retry finishes the samples whose tables have come; at last all of them.
func (u *userStacks) retry(last bool) {
	u.waiting = slices.DeleteFunc(u.waiting, func(one *unfinished) bool {
		if _, settled := u.tables.Table(one.needs); !settled && !last || !u.finish(one, last) {
			return false
		}
		u.leave(one)
		return true
	})
}

// shed finishes the oldest sample that waits in a process of a user, as far as it goes: of a user without bound,
// that of any such user. It reports whether there was one.
func (u *userStacks) shed(user uint32) bool {
	i := slices.IndexFunc(u.waiting, func(one *unfinished) bool {
		return one.user == user || u.room.others.IsExempt(one.user) && u.room.others.IsExempt(user)
	})
	if i < 0 {
		return false
	}
	one := u.waiting[i]
	u.waiting = slices.Delete(u.waiting, i, i+1)
	u.leave(one)
	u.finish(one, true)
	return true
}

// settle finishes everything. No file is looked for any more.
func (u *userStacks) settle(wait func()) {
	for {
		before := len(u.waiting)
		wait()
		u.retry(false)
		if len(u.waiting) == 0 {
			return
		}
		if len(u.waiting) == before && !u.progress() {
			u.retry(true)
			return
		}
	}
}

// progress reports whether any sample that waits needs what is not settled yet.
func (u *userStacks) progress() bool {
	return slices.ContainsFunc(u.waiting, func(one *unfinished) bool {
		_, settled := u.tables.Table(one.needs)
		return !settled
	})
}

// walkedSpace is the address space of a sample.
type walkedSpace struct {
	tally   *tally
	tables  tableSource
	process *process
	space   *space
	needs   *objects.Object // whose table is not there yet
}

func (w *walkedSpace) begin(one *unfinished) {
	w.process, w.space, w.needs = one.process, one.space, nil
}

// At returns the mapping that a lies in. Only executable ones are known.
func (w *walkedSpace) At(a addr.Abs) (unwind.Mapping, bool) {
	m := w.space.Find(a)
	if m == nil {
		return unwind.Mapping{}, false
	}
	found := unwind.Mapping{Start: m.Start, End: m.End, Offset: m.Offset}
	o := m.Of
	if o.Kind == objects.Missing {
		found.Content = unwind.Unidentified
		return found, true
	}
	if !o.IsFile() {
		from, ok := w.tally.original(w.process, a)
		if !ok {
			found.Content = unwind.Generated
			return found, true
		}
		found.Start = a &^ (rewrites.PageSize - 1)
		found.End = found.Start + rewrites.PageSize
		found.Offset = addr.Offset(from.at) - addr.Offset(a-found.Start)
		o = from.object
	}
	table, settled := w.tables.Table(o)
	if found.Table = table; table == nil && !settled {
		w.needs = o
	}
	return found, true
}

// atEntry reports whether the outermost frame that was found has the stack that the kernel
// gives to a program: the dynamic linker's first instructions have no call frame information.
// The process may be gone, so that nobody can be asked where its stack began; but the copy
// has what the kernel put there. The dynamic linker may have pushed some words.
func (u *userStacks) atEntry(s *unwind.State) bool {
	sp, known := s.Get(u.machine.Machine.StackPointer())
	for range 1 + entryWords {
		if known && u.argumentsAt(sp) {
			return true
		}
		sp += 8
	}
	return false
}

const (
	entryWords   = 4
	maxArguments = 1 << 12
)

// argumentsAt reports whether the arguments of a program are at an address: their number,
// pointers to them, which lie behind one another further up the stack, and a zero; then the
// same of the environment (System V ABI for x86-64, figure 3.9).
func (u *userStacks) argumentsAt(at uint64) bool {
	n, ok := u.stack.ReadWord(addr.Abs(at))
	if !ok || n > maxArguments {
		return false
	}
	last := at
	for i := range n {
		p, ok := u.stack.ReadWord(addr.Abs(at + 8*(i+1)))
		if !ok || p <= last {
			return false
		}
		last = p
	}
	end, ok := u.stack.ReadWord(addr.Abs(at + 8*(n+1)))
	first, readable := u.stack.ReadWord(addr.Abs(at + 8*(n+2)))
	return ok && end == 0 && readable && (first > last || first == 0 && n > 0)
}

// waits reports whether samples wait for tables.
func (t *tracker) waits() bool { return t.unwinder != nil && len(t.unwinder.waiting) > 0 }
