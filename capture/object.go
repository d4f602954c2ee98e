package capture

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/bpf"
	"hallmark/internal/capability"
	"hallmark/internal/contentcache"
	"hallmark/internal/jitcode"
	"hallmark/internal/patience"
	"hallmark/internal/perfring"
	"hallmark/internal/procfs"
	"hallmark/internal/reach"
	"hallmark/perfdata"
	"hallmark/procmap"
	"hallmark/reason"
)

// object is what a mapping shows: a file, or memory without one. What is known
// of a file comes in while the recording goes on; stacks only point to it.
type object struct {
	index uint32    // in objects.list
	key   reach.Key // in objects.files
	path  string    // to show
	kind  objectKind

	// Of a file. All under objects.mu until the resolver has stopped.
	want    buildid.ID // what the kernel read from the mapped pages, zero if it read none
	id      buildid.ID
	why     reason.Reason  // id is zero because of it
	content reach.Handle   // nil when the file could not be reached
	way     *reach.Request // in which it was reached, nil when it was not
	seen    reach.Stamp    // of the file, when the identity was read
	dev     uint64         // that has the file; 0 where a helper has it open
	proven  bool           // every frame is of the content that the identity was read from
	asked   int            // attempts to reach it
	tried   int            // those of them that are over
	// first is when the first of those mappings was made that nobody has looked at yet, of a file
	// that is known by its number alone; zero for none.
	first   time.Time
	doubted bool // offsets in it may be none: see stackmapSampler
	// layered says that it is on an overlay and known by its inode alone, which stays the
	// same when a file is copied up and changed: every mapping is looked at.
	layered bool
	mixed   bool            // its mappings were of different contents
	alone   bool            // it is of one mapping, and in no list
	exact   bool            // the file that was reached is certain to have what was mapped
	early   buildid.Content // of the file, if it was read at once
	// others are contents of further files under its identity and path, which is all that
	// is known of it; one may be unknown.
	others    []buildid.Content
	sightings []reach.Sighting // of these files
	unsure    bool             // a mapping may show another file that nobody saw: the content is unknown
	judged    bool             // trusted is set
	trusted   bool             // only root or this user can exchange the file
	vouched   atomic.Bool      // the same, if it is known: for who does not hold objects.mu
	// rewritten stands for the pages of the file that processes have rewritten in their memory,
	// nil while there are none.
	rewritten *object

	code *jitcode.Code // of generated code
}

type objectKind uint8

const (
	fileObject objectKind = iota
	generatedObject
	missingObject
	kernelObject
)

func (o *object) isFile() bool { return o.kind == fileObject }

// maxOpen bounds the files kept open, and so does half of what this process may
// open at all. Files beyond it are still identified, and found again by their path
// for symbols.
const maxOpen = 4096

func mayKeepOpen() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(maxOpen, limit.Cur/2))
}

// objects knows every object of a recording. Its methods may be called by
// several goroutines at once.
type objects struct {
	mu      sync.Mutex
	list    []*object // by index
	files   map[reach.Key]*object
	gone    map[reason.Reason]*object
	images  map[bool]*object // vdso of 64-bit (true) and 32-bit processes
	looks   patience.Shares  // that samples wait for
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
	rewrites  *rewrites      // which looks at copies of code; nil for nobody
	unsampled bool           // there are no samples yet
	stock     sync.WaitGroup // files that are worth to wait for before there are
	// reached is told of each object that was looked for, when that has ended; nil for nobody.
	reached func(*object)
}

func newObjects() *objects {
	o := &objects{
		files:  map[reach.Key]*object{},
		gone:   map[reason.Reason]*object{},
		images: map[bool]*object{},
		keep:   mayKeepOpen(),
		early:  earlyContent,
		media:  reach.CurrentMedia(),
		strict: os.Geteuid() == 0 || capability.Has(unix.CAP_PERFMON) || capability.Has(unix.CAP_SYS_ADMIN),
	}
	o.maps = jitcode.NewMaps(o.keep / 16)
	o.ctx, o.cancel = context.WithCancel(contentcache.WithBudgets(context.Background(), reach.Hashing))
	o.work = newResolver(o)
	return o
}

// add numbers a new object. The caller holds mu.
func (s *objects) add(o *object) *object {
	o.index = uint32(len(s.list))
	s.list = append(s.list, o)
	return o
}

// kernel returns a new object for all code of the kernel.
func (s *objects) kernel() *object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(&object{kind: kernelObject})
}

// missing returns the object of all frames that have no identity because of r.
func (s *objects) missing(r reason.Reason) *object {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.gone[r]
	if o == nil {
		o = s.add(&object{kind: missingObject, why: r})
		s.gone[r] = o
	}
	return o
}

// ofRecord returns the object of a mapping that a record reported.
func (s *objects) ofRecord(r *perfdata.Mmap2, p *process) *object {
	v := reach.VMAOfRecord(r)
	if o := s.nameless(v, p); o != nil {
		return o
	}
	return s.file(reach.KeyOfRecord(r), v)
}

// foresee starts to look for the file of a mapping, while its process lives and
// before the turn of its record has come.
func (s *objects) foresee(r *perfdata.Mmap2) {
	if v := reach.VMAOfRecord(r); r.Prot&protExec != 0 && r.Owner != noTask && !reach.IsMemory(v) {
		s.reach(job{Request: reach.Request{VMA: v, PID: r.Owner, Mapped: wallTime(r.Time)}, object: s.file(reach.KeyOfRecord(r), v)})
	}
}

// ofVMA returns the object of a mapping that an inventory found.
func (s *objects) ofVMA(v procmap.VMA, p *process) *object {
	if o := s.nameless(v, p); o != nil {
		return o
	}
	key := reach.Key{FromProc: true, Major: v.Dev.Major, Minor: v.Dev.Minor, Inode: v.Inode}
	j := job{Request: reach.Request{VMA: v, PID: p.pid, Mapped: time.Now()}}
	if key.Major == 0 {
		key.Of = reach.MappingKey{PID: p.pid, Start: v.Start, Since: perfring.Monotonic()}
		s.stock.Add(1)
		j.done = s.stock.Done
	}
	j.object = s.file(key, v)
	if !s.reach(j) && j.done != nil {
		j.done()
	}
	return j.object
}

// setUnsampled says whether there are no samples yet.
func (s *objects) setUnsampled(unsampled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsampled = unsampled
}

// wallTime turns the time of a record (ns, CLOCK_MONOTONIC) into one of the clock of files.
func wallTime(t uint64) time.Time { return time.Now().Add(-time.Duration(perfring.Monotonic() - t)) }

// file returns the object with this key.
func (s *objects) file(key reach.Key, v procmap.VMA) *object {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.files[key]
	if o == nil {
		o = s.add(&object{key: key, path: strings.TrimSuffix(v.Name, procfs.Deleted), want: key.ID, id: key.ID, why: reason.NotRead, proven: key.Content != bpf.Validity{}})
		s.files[key] = o
	}
	return o
}

// passing returns the object of a mapping that is reported once, which nobody else gets: a later
// mapping may show another file. The file may have changed in between, and in another mount namespace
// another one of that identity has the path.
func (s *objects) passing(key reach.Key, v procmap.VMA) *object {
	return &object{key: key, path: strings.TrimSuffix(v.Name, procfs.Deleted), want: key.ID, id: key.ID, why: reason.NotRead, alone: true}
}

// ofContent returns the object of a file that BPF reported. Mappings of a file whose times
// say nothing are of one content if the kernel read the same identity in them; where that is
// not known yet, each is an object of its own.
func (s *objects) ofContent(f *bpf.File, v procmap.VMA, id buildid.ID) *object {
	key := reach.Key{Content: f.Validity, Address: f.Key}
	if f.OfMapping() && !id.IsZero() {
		key = key.OfFile()
		key.ID = id
	}
	return s.file(key, v)
}

// learn takes the identity that the kernel read of a file from memory.
func (s *objects) learn(o *object, id buildid.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case o.id.IsZero():
		o.id, o.why = id, reason.None
	case o.id != id:
		s.disagreed++
	}
}

// unproven notes that no file that is opened can prove an object's identity, which is for the
// kernel to read. It is not opened either: who opens a file on FUSE can have the kernel mix
// pages of two contents, as each open file may be of another one.
func (s *objects) unproven(o *object, v *bpf.Validity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.id.IsZero() {
		o.why = whyUnproven(v)
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

// reach asks the resolver to look at a file, unless that is done already. It reports whether
// it did.
func (s *objects) reach(j job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := j.object
	j.Media = s.media
	o.mappedAt(j)
	if o.way != nil && o.isByClaim(j) {
		j.Want, j.recheck = o.want, true
		s.work.ask(j)
		return false
	}
	if !o.layered && (o.content != nil || o.asked >= reach.MaxAttempts && !o.isByNumber()) {
		return false
	}
	o.asked++
	j.Want = o.want
	s.work.ask(j)
	return true
}

// isByClaim reports whether identity and path, as the kernel read them, are all that is known of the
// file of a mapping: another mapping may show another file of the same ones. The caller holds mu.
func (o *object) isByClaim(j job) bool { return !o.layered && !o.want.IsZero() && j.Validity == nil }

// mappedAt notes when a mapping of an object was made. Whether it is looked at or not, an identity that
// was read after a later change of the file is not that of this mapping. The caller holds mu.
func (o *object) mappedAt(j job) {
	if j.Validity != nil || !o.want.IsZero() {
		return // the kernel tells contents apart
	}
	if o.first.IsZero() || j.Mapped.Before(o.first) {
		o.first = j.Mapped
	}
	if o.way != nil && o.seen.After(o.first) {
		o.mixed, o.id, o.why = true, buildid.ID{}, reason.FileChanged
	}
}

// isByNumber reports whether an object was identified, and its mappings are known to show the
// same file by the inode alone: another content may be in each of them. The caller holds mu.
func (o *object) isByNumber() bool {
	return o.way != nil && o.way.Validity == nil && o.want.IsZero()
}

// letGo closes a file that is wanted no more for now. It may be reached again.
func (s *objects) letGo(o *object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.content == nil {
		return
	}
	o.content.Close()
	o.content = nil
	o.asked--
	s.open--
}

// nameless returns the object of a mapping that shows no file: generated code,
// the vdso. For a mapped file it returns nil.
func (s *objects) nameless(v procmap.VMA, p *process) *object {
	switch {
	case v.Name == "[vdso]":
		return s.vdso(v, p)
	case reach.IsMemory(v):
		return s.generated(p)
	}
	return nil
}

// generated returns the object of the process's executable memory without a file.
func (s *objects) generated(p *process) *object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.generated == nil {
		p.generated = s.add(&object{kind: generatedObject, why: reason.Anonymous, code: s.maps.Of(int(p.pid), p.started)})
	}
	return p.generated
}

// vdso returns the object of the code that the kernel maps into every process,
// one for the 64-bit and one for the 32-bit ones.
func (s *objects) vdso(v procmap.VMA, p *process) *object {
	s.mu.Lock()
	defer s.mu.Unlock()
	wide := v.Start > 1<<32
	o := s.images[wide]
	if o == nil {
		o = s.add(&object{path: "[vdso]", why: reason.ProcessGone})
		s.images[wide] = o
	}
	if o.content == nil {
		pid := p.pid
		if own, ok := reach.OwnVDSO(); ok && wide {
			pid, v = uint32(os.Getpid()), own // it is the same one, and always there
		}
		o.content, o.id = reach.ReadImage(pid, v)
	}
	return o
}

// image returns the object of a vdso whose image was read, else nil.
func (s *objects) image(wide bool) *object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.images[wide]; o != nil && o.content != nil {
		return o
	}
	return nil
}

// inventory reads the mappings and the name of a process that runs already.
// Where that cannot be done, the process says why.
func (s *objects) inventory(p *process) {
	if name := procfs.NameOf(p.pid); name != "" {
		p.name = name
	}
	now := perfring.Monotonic()
	vmas, err := reach.Mappings(int(p.pid))
	switch {
	case err == nil:
		p.unknown, p.asOf = reason.None, now
	case errors.Is(err, os.ErrPermission):
		p.unknown = reason.NotPermitted
	case errors.Is(err, patience.ErrSilent):
		p.unknown = reason.FileUnresponsive
	case errors.Is(err, procmap.ErrNoMemory):
		p.unknown = reason.None // a kernel thread
	default:
		p.unknown = reason.ProcessGone
	}
	p.insert(s.executable(p, vmas))
}

// reread reads the mappings of a process again, and returns those that can be executed and when they
// were read (ns, CLOCK_MONOTONIC), 0 if they cannot be read.
func (s *objects) reread(p *process) (fresh []mapping, asOf uint64) {
	now := perfring.Monotonic()
	vmas, err := reach.Mappings(int(p.pid))
	if err != nil {
		return nil, 0
	}
	return s.executable(p, vmas), now
}

// executable returns those mappings of a process that can be executed.
func (s *objects) executable(p *process, vmas []procmap.VMA) []mapping {
	var code []mapping
	for _, v := range vmas {
		if v.Perm&procmap.Exec != 0 {
			code = append(code, mapping{Start: v.Start, End: v.End, Offset: v.Offset, Of: s.ofVMA(v, p)})
		}
	}
	return code
}

// close stops the resolver and closes every file.
func (s *objects) close() {
	s.work.stop()
	s.cancel()
	for _, o := range s.list {
		if o.code != nil {
			o.code.Release()
		}
		if o.isFile() && o.content != nil {
			o.content.Close()
		}
	}
}
