package capture

import (
	"runtime"
	"slices"
	"sort"
	"time"
	"unsafe"

	"hallmark/addr"
	"hallmark/internal/bpf"
	"hallmark/internal/procfs"
	"hallmark/internal/quota"
	"hallmark/internal/unwindtables"
	"hallmark/profile"
	"hallmark/unwind"
)

// unwinding finishes the samples whose stacks the BPF programs could not walk to their end,
// because the table of a file was not there yet: the first few of each file. They come with
// a copy of the stack, wait here for the table, and are then walked on from where the
// programs stopped, by the same rules.
type unwinding struct {
	s      *bpfSampler
	tables *unwindtables.Supply
	// spaces by their numbers: since the last time that all were forgotten, and those
	// from before that.
	spaces, olderSpaces map[uint64]*copiedSpaceOf
	spaceRoom           *quota.Pool                // for those of other users, in bytes
	isShort             bool                       // spaces were left out since then, for their users have no room left
	forgot              time.Time                  // when all spaces were last forgotten
	waiting             map[uint32][]*copiedSample // by the file whose table they wait for
	room                waitingRoom
	stats               UnwindStats
	// compared is called with samples that are counted already: see bpf.Options.CopyAll.
	compared func(stack bpf.StackID, frames []bpf.Frame, end unwind.End)
}

// copiedSample is a sample that is to be finished.
type copiedSample struct {
	owner   bpf.Task
	stack   bpf.StackID
	counted bool
	labels  profile.Labels
	body    *body     // nil once its places are known
	places  []place   // of the frames that the programs found
	last    bpf.Frame // of these
	methods profile.Methods
	space   *bpf.Space
	walker  unwind.Walker
	state   unwind.State
	memory  unwind.Stack
	frames  []bpf.Frame // found here
	user    uint32      // who answers for its process
	held    int64       // bytes that it takes while it waits; its memory is its own then
}

const (
	// maxSpaces bounds the address spaces that are remembered. The kernel sends again
	// what it sees again.
	maxSpaces = 1 << 12
	// maxSpaceBytes bounds those of processes of all users but root and this user, and leastSpaceBytes is
	// what each of them has in any case.
	maxSpaceBytes, leastSpaceBytes = 64 << 20, 1 << 20
	// forgetEach is how soon they are forgotten again because some found no room.
	forgetEach = 10 * time.Second
)

// copiedSpaceOf is an address space, in the room of a user.
type copiedSpaceOf struct {
	space *bpf.Space
	user  uint32
}

// spaceBytes is what an address space takes.
func spaceBytes(s *bpf.Space) int64 {
	return int64(unsafe.Sizeof(*s)) + int64(unsafe.Sizeof(bpf.VMA{}))*int64(cap(s.VMAs))
}

func newUnwinding(s *bpfSampler, t *unwindtables.Supply) *unwinding {
	return &unwinding{
		s:         s,
		tables:    t,
		spaces:    map[uint64]*copiedSpaceOf{},
		spaceRoom: quota.New(maxSpaceBytes, leastSpaceBytes),
		room:      newWaitingRoom(),
		waiting:   map[uint32][]*copiedSample{},
	}
}

// keepSpace remembers an address space, if the user of its process has room for it.
func (u *unwinding) keepSpace(s *bpf.Space) {
	if u.spaces[s.ID] != nil {
		return
	}
	of := &copiedSpaceOf{s, procfs.AccountOf(s.PID)}
	if !u.spaceRoom.Take(of.user, spaceBytes(s)) {
		u.isShort = true
		return
	}
	u.spaces[s.ID] = of
}

// forget forgets the spaces that were sent before the last time that it forgot.
func (u *unwinding) forget() {
	for _, old := range u.olderSpaces {
		u.spaceRoom.Return(old.user, spaceBytes(old.space))
	}
	u.olderSpaces, u.spaces = u.spaces, map[uint64]*copiedSpaceOf{}
	u.isShort, u.forgot = false, time.Now()
}

// full reports whether it is time to forget.
func (u *unwinding) full() bool {
	return len(u.spaces) >= maxSpaces || u.isShort && time.Since(u.forgot) > forgetEach
}

// space returns the address space of a number, nil if it is not known.
func (u *unwinding) space(id uint64) *bpf.Space {
	for _, known := range []map[uint64]*copiedSpaceOf{u.spaces, u.olderSpaces} {
		if s := known[id]; s != nil {
			return s.space
		}
	}
	return nil
}

// take takes a sample that is to be finished. The copy is not used afterwards.
func (u *unwinding) take(c *bpf.Copy) {
	if c.Counted && u.compared == nil {
		return
	}
	b := u.s.body(c.Stack)
	if b == nil || len(b.frames) == 0 && !c.Counted {
		u.s.stats.Lost++ // there was no room for its frames
		return
	}
	one := u.sample(c, b)
	if !c.Counted {
		u.askFor(b.frames[len(b.frames)-1])
	}
	u.walk(one)
}

// resume walks the samples on that have waited for the identity of a file.
func (u *unwinding) resume(serial uint32) {
	if u == nil {
		return
	}
	ready := u.waiting[serial]
	delete(u.waiting, serial)
	for _, one := range ready {
		u.walk(one)
	}
}

// askFor asks for the table that the programs did not have.
func (u *unwinding) askFor(last bpf.Frame) {
	if last.Kind == bpf.InFile {
		u.tables.Missing(last.Serial)
	}
}

func (u *unwinding) sample(c *bpf.Copy, b *body) *copiedSample {
	one := &copiedSample{
		owner:   c.Task,
		stack:   c.Stack,
		user:    procfs.AccountOf(c.Task.PID),
		counted: c.Counted,
		labels:  u.s.labels(&c.Task),
		body:    b,
		methods: b.walk.Methods,
		space:   u.space(c.Space),
		memory:  unwind.Stack{Base: c.Start, Bytes: c.Memory, Missing: c.Missing},
		state: unwind.State{
			IP:        c.IP,
			Exact:     c.Exact,
			Method:    unwind.ByRegs,
			Registers: unwind.Registers{Values: c.Registers, Known: c.Known},
		},
	}
	one.walker = unwind.Walker{Machine: unwind.MachineOf(runtime.GOARCH), Memory: &one.memory, Entry: c.Entry, AddressBits: procfs.AddressBits()}
	return one
}

// place makes places of the frames that the programs found. It reports whether their identities are known,
// or do not come: until then the sample waits.
func (u *unwinding) place(one *copiedSample) bool {
	b := one.body
	if b == nil || one.counted {
		return true
	}
	if serial, waits := u.s.unreadIn(b); waits && u.await(serial, one) {
		return false
	}
	one.places, one.last, one.body = slices.Clone(u.s.placesOf(b, &one.owner)), b.frames[len(b.frames)-1], nil
	return true
}

// await lets a sample wait for a file, if there is room for it.
func (u *unwinding) await(serial uint32, one *copiedSample) bool {
	if !u.keep(one) {
		return false
	}
	u.waiting[serial] = append(u.waiting[serial], one)
	return true
}

// walk walks a sample's stack on, and counts it, or lets it wait for a table or an identity.
func (u *unwinding) walk(one *copiedSample) {
	if !u.place(one) {
		return
	}
	if one.space == nil {
		u.giveUp(one)
		return
	}
	space := &copiedSpace{space: one.space, of: u}
	one.walker.Space = space
	// The frame from which the walk goes on was found before.
	found := !one.counted || len(one.frames) > 0
	one.walker.Max = bpf.MaxFrames - len(one.places) - len(one.frames)
	if found {
		one.walker.Max++
	}
	end := one.walker.Walk(&one.state, func(f unwind.Frame) bool {
		if found {
			u.correct(one, space.frame(f))
		} else {
			one.frames = append(one.frames, space.frame(f))
		}
		found = false
		return true
	})
	if end == unwind.NotMapped && space.beyond {
		end = unwind.NotIdentified
	}
	if end != unwind.NoTable || !space.wait {
		u.finish(one, end)
		return
	}
	if !u.await(space.missing, one) {
		u.giveUp(one)
	}
}

// correct takes the frame from which a walk goes on as it is found now. Without a table nobody knew
// that a signal handler returns to it: such a frame stands at its address, and not before it.
func (u *unwinding) correct(one *copiedSample, f bpf.Frame) {
	if n := len(one.frames); n > 0 {
		one.frames[n-1].At = f.At
		return
	}
	if last := len(one.places) - 1; last >= 0 && f.At == one.last.At+1 {
		one.last.At = f.At
		one.places = append(slices.Clone(one.places[:last]), u.s.place(one.last, &one.owner)) // they are of other samples too
	}
}

// keep makes the copy of a stack one that stays, if there is room for it.
func (u *unwinding) keep(one *copiedSample) bool {
	if one.held != 0 {
		return true
	}
	n := int64(waitingSize + len(one.memory.Bytes))
	if one.space != nil {
		n += spaceBytes(one.space)
	}
	if !u.room.take(one.user, n) {
		return false
	}
	one.memory.Bytes, one.held = slices.Clone(one.memory.Bytes), n
	return true
}

// giveUp counts a sample as the programs found it.
func (u *unwinding) giveUp(one *copiedSample) { u.finish(one, unwind.NoTable) }

// finish counts a sample.
func (u *unwinding) finish(one *copiedSample, end unwind.End) {
	u.room.give(one.user, one.held)
	if one.counted {
		u.compared(one.stack, one.frames, end)
		return
	}
	if end == unwind.NoTable {
		u.stats.GivenUp++
	} else {
		u.stats.Completed++
	}
	for _, f := range one.frames {
		one.places = append(one.places, u.s.place(f, &one.owner))
		one.methods = one.methods.With(f.Method)
	}
	u.s.tally.add(one.places, profile.Walk{End: end, Methods: one.methods}, one.labels, total{1, int64(u.s.perSample)}, one.owner.Seen)
}

// goOn walks the samples on whose tables have come. When last is set it waits for those that
// may still come.
func (u *unwinding) goOn(last bool) {
	for {
		finished := u.tables.TakeFinished(last && len(u.waiting) > 0)
		for _, serial := range finished {
			ready := u.waiting[serial]
			delete(u.waiting, serial)
			for _, one := range ready {
				u.walk(one)
			}
		}
		if len(finished) == 0 || !last {
			break
		}
	}
	if len(u.waiting) == 0 {
		u.tables.DropAll()
	}
}

// end finishes everything that can be finished, and then nothing is built any more.
func (u *unwinding) end() {
	u.tables.OnlyWanted()
	u.goOn(true)
	for _, left := range u.waiting {
		for _, one := range left {
			u.giveUp(one)
		}
	}
	u.waiting = nil
	u.tables.Stop()
}

// waits reports whether samples wait for tables.
func (u *unwinding) waits() bool { return u != nil && len(u.waiting) > 0 }

// count returns what was counted, with what the kernel's part reports.
func (u *unwinding) count(kernel bpf.TablesStats) UnwindStats {
	n, t := u.stats, u.tables.Counts()
	n.Built, n.Cached, n.Unavailable, n.NoRoom = t.Built, t.Cached, t.Unavailable, t.NoRoom
	n.Evicted, n.Memory, n.Capacity = kernel.Evicted, kernel.Memory, kernel.Capacity
	return n
}

// copiedSpace is the address space of a sample that is walked on. It is an unwind.Space
// that knows executable memory only.
type copiedSpace struct {
	space *bpf.Space
	of    *unwinding
	// missing is the file whose table was asked for last and was not there, and wait
	// whether it, or the identity that it is of, may still come.
	missing uint32
	wait    bool
	// beyond says that an address was looked for that may be in an area that nobody has reported.
	beyond bool
}

// area returns the area that holds an address, or nil.
func (s *copiedSpace) area(a addr.Abs) *bpf.VMA {
	areas := s.space.VMAs
	i := sort.Search(len(areas), func(i int) bool { return areas[i].End > a })
	if i == len(areas) || areas[i].Start > a {
		return nil
	}
	return &areas[i]
}

// isBeyond reports whether an address lies behind all areas that are reported, where there are
// more than that.
func (s *copiedSpace) isBeyond(a addr.Abs) bool {
	areas := s.space.VMAs
	return s.space.Cut && (len(areas) == 0 || a >= areas[len(areas)-1].End)
}

// At returns the mapping that a lies in.
func (s *copiedSpace) At(a addr.Abs) (unwind.Mapping, bool) {
	s.wait = false
	area := s.area(a)
	if area == nil {
		s.beyond = s.isBeyond(a)
		return unwind.Mapping{}, false
	}
	m := unwind.Mapping{Start: area.Start, End: area.End, Offset: addr.Offset(uint64(area.Start) - area.Base), Content: unwind.Unidentified}
	serial := area.Serial
	switch area.Kind {
	case bpf.Generated:
		m.Content = unwind.Generated
		return m, true
	case bpf.InVDSO:
		serial = bpf.VDSOSerial
	case bpf.InFile:
	default:
		return m, true
	}
	m.Content = unwind.File
	s.missing = serial
	if s.of.s.isUnread(serial) {
		s.wait = true
		return m, true
	}
	m.Table, s.wait = s.of.tables.Want(serial)
	return m, true
}

// frame returns a frame as the programs would report it.
func (s *copiedSpace) frame(f unwind.Frame) bpf.Frame {
	area := s.area(f.At) // there is one, or the walk would have ended
	return bpf.Frame{Kind: area.Kind, Serial: area.Serial, Method: f.Method, At: uint64(f.At) - area.Base}
}
