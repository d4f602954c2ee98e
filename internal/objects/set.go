package objects

import (
	"context"
	"os"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/bpf"
	"hallmark/internal/capability"
	"hallmark/internal/contentcache"
	"hallmark/internal/jitcode"
	"hallmark/internal/patience"
	"hallmark/internal/perfring"
	"hallmark/internal/procfs"
	"hallmark/internal/quota"
	"hallmark/internal/reach"
	"hallmark/perfdata"
	"hallmark/procmap"
	"hallmark/reason"
)

// maxOpen bounds the files kept open, and so does half of what this process may
// open at all. Files beyond it are still identified, and found again by their path
// for symbols.
const maxOpen = 4096

// MayKeepOpen returns how many files may be kept open.
func MayKeepOpen() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(maxOpen, limit.Cur/2))
}

// Set knows every object of a recording. Its methods may be called by
// several goroutines at once.
type Set struct {
	mu      sync.Mutex
	list    []*Object // by index
	files   map[reach.Key]*Object
	gone    map[reason.Reason]*Object
	images  map[bool]*Object // vdso of 64-bit (true) and 32-bit processes
	open    int              // files kept open, at most keep
	keep    int
	maps    *jitcode.Maps    // for generated code
	early   int64            // bytes of files whose content is read at once
	reading reach.Allowances // of these
	// strict says that processes of others are recorded: what was not reached through a mapping is
	// not known to be what was mapped.
	strict bool
	// disagreed counts files of which the kernel read another identity than they have.
	disagreed uint64
	work      *resolver
	media     reach.Media
	// ctx ends with the objects, and bounds how files without build IDs are hashed.
	ctx       context.Context
	cancel    context.CancelFunc
	unsampled bool           // there are no samples yet
	stock     sync.WaitGroup // files that are worth to wait for before there are
	// room is for what is remembered because of processes of other users, and for their mappings.
	room *quota.Pool
	// Reached is called with each object that was looked for, when that has ended; nil for no call.
	Reached func(*Object)
}

// New returns a set without objects. Its caller closes it.
func New() *Set {
	o := &Set{
		files:  map[reach.Key]*Object{},
		gone:   map[reason.Reason]*Object{},
		images: map[bool]*Object{},
		keep:   MayKeepOpen(),
		early:  earlyContent,
		media:  reach.CurrentMedia(),
		room:   quota.New(maxBytes, minBytes),
		strict: os.Geteuid() == 0 || capability.Has(unix.CAP_PERFMON) || capability.Has(unix.CAP_SYS_ADMIN),
	}
	o.maps = jitcode.NewMaps(o.keep / 16)
	o.ctx, o.cancel = context.WithCancel(contentcache.WithBudgets(context.Background(), reach.Hashing))
	o.work = newResolver(o)
	return o
}

// NewPassing returns a set that keeps no file open: only identities are wanted.
func NewPassing() *Set {
	o := New()
	o.keep, o.early = 0, maxRechecked
	return o
}

// Divert has f get the jobs in place of those who did, whom it returns: for tests. It reports whether it
// took one.
func (s *Set) Divert(f func(user uint32, j Job) bool) (was func(user uint32, j Job) bool) {
	was, s.work.queue = s.work.queue, f
	return was
}

const (
	// maxBytes bounds the memory for processes that are neither root's nor this user's, who get shares of
	// it: anybody may start any number of processes, each with as many mappings as the kernel lets it have.
	// A user has minBytes in any case.
	maxBytes, minBytes = 256 << 20, 1 << 20
	// objectBytes is what an object takes, with its key, the way to its file and a job.
	objectBytes = int64(unsafe.Sizeof(Object{})+2*unsafe.Sizeof(reach.Key{})) + int64(unsafe.Sizeof(Job{}))
)

// Room returns where whoever keeps something for the processes of users takes the memory for it, in bytes.
func (s *Set) Room() *quota.Pool { return s.room }

// SetRoom sets another Room: for tests.
func (s *Set) SetRoom(p *quota.Pool) { s.room = p }

// add numbers a new object. The caller holds mu.
func (s *Set) add(o *Object) *Object {
	o.set, o.Index = s, uint32(len(s.list))
	s.list = append(s.list, o)
	return o
}

// Kernel returns a new object for all code of the kernel.
func (s *Set) Kernel() *Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(&Object{Kind: Kernel})
}

// Missing returns the object of all frames that have no identity because of r.
func (s *Set) Missing(r reason.Reason) *Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.missing(r)
}

// missing is Missing for a caller who holds mu.
func (s *Set) missing(r reason.Reason) *Object {
	o := s.gone[r]
	if o == nil {
		o = s.add(&Object{Kind: Missing, Why: r})
		s.gone[r] = o
	}
	return o
}

// OfRecord returns the object of a mapping that a record reported.
func (s *Set) OfRecord(r *perfdata.Mmap2, p *Process) *Object {
	v := reach.VMAOfRecord(r)
	if o := s.nameless(v, p); o != nil {
		return o
	}
	return s.file(reach.KeyOfRecord(r), v, func() uint32 { return p.Account })
}

// Foresee starts to look for the file of a mapping, while its process lives and
// before the turn of its record has come.
func (s *Set) Foresee(r *perfdata.Mmap2) {
	if v := reach.VMAOfRecord(r); !reach.IsMemory(v) {
		s.Reach(Job{Request: RequestOf(r, v), Object: s.File(reach.KeyOfRecord(r), v, r.Owner)})
	}
}

// RequestOf returns the way to the file of a mapping that a record reported.
func RequestOf(r *perfdata.Mmap2, v procmap.VMA) reach.Request {
	return reach.Request{VMA: v, PID: r.Owner, Mapped: perfring.WallTime(r.Time), Number: reach.NumberOfRecord(r)}
}

// OfVMA returns the object of a mapping that an inventory found.
func (s *Set) OfVMA(v procmap.VMA, p *Process) *Object {
	if o := s.nameless(v, p); o != nil {
		return o
	}
	key := reach.Key{FromProc: true, Major: v.Dev.Major, Minor: v.Dev.Minor, Inode: v.Inode}
	j := Job{Request: reach.Request{VMA: v, PID: p.PID, Mapped: time.Now()}}
	if key.Major == 0 {
		key.Of = reach.MappingKey{PID: p.PID, Start: v.Start, Since: perfring.Monotonic()}
		s.stock.Add(1)
		j.done = s.stock.Done
	}
	j.Object = s.file(key, v, func() uint32 { return p.Account })
	if !s.Reach(j) && j.done != nil {
		j.done()
	}
	return j.Object
}

// SetUnsampled says whether there are no samples yet.
func (s *Set) SetUnsampled(unsampled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsampled = unsampled
}

// File returns the object with this key, which a process has mapped. If it is a new one, and the user of that
// process has no room left, it is that of frames whose file was not read.
func (s *Set) File(key reach.Key, v procmap.VMA, pid uint32) *Object {
	return s.file(key, v, func() uint32 { return procfs.AccountOf(pid) })
}

// file is File for a process of a user, whom it asks for if the object is new.
func (s *Set) file(key reach.Key, v procmap.VMA, user func() uint32) *Object {
	s.mu.Lock()
	o := s.files[key]
	s.mu.Unlock()
	if o != nil {
		return o
	}
	path := strings.TrimSuffix(v.Name, procfs.Deleted)
	isRoom := s.room.Take(user(), objectBytes+int64(len(path)))
	s.mu.Lock()
	defer s.mu.Unlock()
	if o = s.files[key]; o != nil { // made meanwhile
		return o
	}
	if !isRoom {
		return s.missing(reason.NotRead)
	}
	o = s.add(&Object{Key: key, Path: path, want: key.ID, ID: key.ID, Why: reason.NotRead, proven: key.Content != bpf.Validity{}})
	s.files[key] = o
	return o
}

// Passing returns the object of a mapping that is reported once, which nobody else gets: a later
// mapping may show another file. The file may have changed in between, and in another mount namespace
// another one of that identity has the path.
func (s *Set) Passing(key reach.Key, v procmap.VMA) *Object {
	return &Object{set: s, Key: key, Path: strings.TrimSuffix(v.Name, procfs.Deleted), want: key.ID, ID: key.ID, Why: reason.NotRead, alone: true}
}

// OfContent returns the object of a file that BPF reported. Mappings of a file whose times
// say nothing are of one content if the kernel read the same identity in them; where that is
// not known yet, each is an object of its own.
func (s *Set) OfContent(f *bpf.File, v procmap.VMA, id buildid.ID) *Object {
	key := reach.Key{Content: f.Validity, Address: f.Key}
	if f.OfMapping() && !id.IsZero() {
		key = key.OfFile()
		key.ID = id
	}
	return s.File(key, v, f.PID)
}

// Learn takes the identity that the kernel read of a file from memory.
func (s *Set) Learn(o *Object, id buildid.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !o.IsFile(): // nobody has room for it
	case o.ID.IsZero():
		o.ID, o.Why = id, reason.None
	case o.ID != id:
		s.disagreed++
	}
}

// Unproven notes that no file that is opened can prove an object's identity, which is for the
// kernel to read. It is not opened either: who opens a file on FUSE can have the kernel mix
// pages of two contents, as each open file may be of another one.
func (s *Set) Unproven(o *Object, v *bpf.Validity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.IsFile() && o.ID.IsZero() {
		o.Why = whyUnproven(v)
	}
}

// whyUnproven returns why a file whose validity is that of a mapping has no identity that the
// kernel has not read.
func whyUnproven(v *bpf.Validity) reason.Reason {
	if v.JustChanged() {
		return reason.FileWritten
	}
	return reason.FileTimes
}

// Reach asks the resolver to look at a file, unless that is done already. It reports whether
// it did.
func (s *Set) Reach(j Job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := j.Object
	if !o.IsFile() {
		return false
	}
	j.Media = s.media
	o.mappedAt(j)
	if j.Number != (reach.Number{}) && (o.numbered || o.way == nil && o.asked >= reach.MaxAttempts) {
		o.missed = !o.numbered
		return false
	}
	if o.isByClaim(j) && (o.way != nil || o.asked >= reach.MaxAttempts) {
		if !o.unsure { // else nothing is to be learned from it
			j.Want, j.recheck = o.want, true
			if s.work.ask(j) {
				o.unchecked++
			} else {
				o.dropped = true
			}
		}
		return false
	}
	if !o.layered && (o.Content != nil || o.asked >= reach.MaxAttempts && !o.isByNumber()) {
		return false
	}
	j.Want = o.want
	if !s.work.ask(j) {
		o.dropped = true
		return false
	}
	o.asked++
	return true
}

// isRoomOpen reports whether one more file may be kept open.
func (s *Set) isRoomOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open < s.keep
}

// LetGo closes a file that is wanted no more for now. It may be reached again.
func (s *Set) LetGo(o *Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.Content == nil {
		return
	}
	o.Content.Close()
	o.Content = nil
	o.asked--
	s.open--
}

// nameless returns the object of a mapping that shows no file: generated code,
// the vdso. For a mapped file it returns nil.
func (s *Set) nameless(v procmap.VMA, p *Process) *Object {
	switch {
	case v.Name == "[vdso]":
		return s.VDSO(v, p.PID)
	case reach.IsMemory(v):
		return s.Generated(p)
	}
	return nil
}

// Generated returns the object of the process's executable memory without a file.
func (s *Set) Generated(p *Process) *Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.Generated == nil && !s.room.Take(p.Account, objectBytes) {
		return s.missing(reason.Anonymous)
	}
	if p.Generated == nil {
		p.Generated = s.add(&Object{Kind: Generated, Why: reason.Anonymous, Code: s.maps.Of(int(p.PID), p.started)})
	}
	return p.Generated
}

// VDSO returns the object of the code that the kernel maps into every process,
// one for the 64-bit and one for the 32-bit ones, as it is mapped in the process.
func (s *Set) VDSO(v procmap.VMA, pid uint32) *Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	wide := v.Start > 1<<32
	o := s.images[wide]
	if o == nil {
		o = s.add(&Object{Path: "[vdso]", Why: reason.ProcessGone, image: true})
		s.images[wide] = o
	}
	if o.Content == nil {
		if own, ok := reach.OwnVDSO(); ok && wide {
			pid, v = uint32(os.Getpid()), own // it is the same one, and always there
		}
		o.Content, o.ID = reach.ReadImage(pid, v)
	}
	return o
}

// Image returns the object of a vdso whose image was read, else nil.
func (s *Set) Image(wide bool) *Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.images[wide]; o != nil && o.Content != nil {
		return o
	}
	return nil
}

// All returns every object, by its index.
func (s *Set) All() []*Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list
}

// Rewritten returns the object of the frames in pages of a file that processes have rewritten.
func (s *Set) Rewritten(o *Object) *Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.rewritten == nil {
		o.rewritten = s.add(&Object{Path: o.Path, Why: reason.Rewritten})
	}
	return o.rewritten
}

// OfClaim returns the object of a file of a process of which the kernel reported no more than what it
// takes for the build ID: it may err. isWhole reports whether the ID has that length for certain.
func (s *Set) OfClaim(id buildid.ID, pid uint32, isWhole bool) *Object {
	o := s.File(reach.Key{ID: id, Of: reach.MappingKey{PID: pid}}, procmap.VMA{}, pid)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !o.IsFile() {
		return o
	}
	o.Doubted = true
	if !isWhole {
		o.ID, o.Why = buildid.ID{}, reason.IDLength
	}
	return o
}

// SettleClaim gives an object of ofClaim its file.
func (s *Set) SettleClaim(o *Object, q reach.Request, found reach.Found, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.Path = path
	o.proven = true // the kernel has read the build ID from what was mapped
	q.Want, q.Mapped = found.ID, time.Now()
	s.settle(Job{Request: q, Object: o, claimant: Claimant{UID: -1}}, reach.Found{File: found.File, ID: found.ID, Seen: found.Seen})
}

// Opened is a file that is open already.
type Opened struct {
	Path    string
	ID      buildid.ID
	Content reach.Handle
	Seen    reach.Stamp
	Exact   bool // it is certain to be what was mapped
	Unsure  bool // a mapping may show another file
}

// OfOpened returns a new object that shows a file which is open already: for tests.
func (s *Set) OfOpened(f Opened) *Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(&Object{Path: f.Path, ID: f.ID, Content: f.Content, seen: f.Seen, exact: f.Exact, unsure: f.Unsure})
}

// AwaitStock waits for files that are worth to wait for before there are samples.
func (s *Set) AwaitStock(most time.Duration) { patience.Wait(&s.stock, most) }

// Notes returns what a profile says of generated code.
func (s *Set) Notes() []string { return s.maps.Notes() }

// Disagreements returns how many files have another identity than the kernel read from memory.
func (s *Set) Disagreements() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.disagreed
}

// Context ends with the objects, and bounds how files are hashed.
func (s *Set) Context() context.Context { return s.ctx }

// GiveUp ends the reading of files. Files that were not read stay unknown.
func (s *Set) GiveUp() { s.cancel() }

// Stop returns when all files were looked for. No object changes any more.
func (s *Set) Stop() { s.work.stop() }

// Close stops the resolver and closes every file.
func (s *Set) Close() {
	s.work.stop()
	s.cancel()
	for _, o := range s.list {
		if o.Code != nil {
			o.Code.Release()
		}
		if o.IsFile() && o.Content != nil {
			o.Content.Close()
		}
	}
}
