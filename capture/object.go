package capture

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/bpf"
	"hallmark/internal/perfmap"
	"hallmark/perfdata"
	"hallmark/procmap"
	"hallmark/reason"
	"hallmark/symbol"
)

// object is what a mapping shows: a file, or memory without one. What is known
// of a file comes in while the recording goes on; stacks only point to it.
type object struct {
	index uint32 // in objects.list
	path  string // to show
	kind  objectKind

	// Of a file. All under objects.mu until the resolver has stopped.
	want    buildid.ID // what the kernel read from the mapped pages, zero if it read none
	id      buildid.ID
	why     reason.Reason // id is zero because of it
	content content       // nil when the file could not be reached
	way     *job          // in which it was reached, nil when it was not
	seen    stamp         // of the file, when the identity was read
	proven  bool          // every frame is of the content that the identity was read from
	asked   int           // attempts to reach it
	tried   int           // those of them that are over
	doubted bool          // offsets in it may be none: see stackmapSampler
	// layered tells that it is on an overlay and known by its inode alone, which stays the
	// same when a file is copied up and changed: every mapping is looked at.
	layered bool
	mixed   bool // its mappings were of different contents

	// Of generated code.
	process *process // nil when it ended long ago
	sampled bool
	place   *perfmap.Place // of its map, nil when that cannot be reached any more
	jit     *symbol.PerfMap
}

type objectKind uint8

const (
	fileObject objectKind = iota
	generatedObject
	missingObject
	kernelObject
)

func (o *object) isFile() bool { return o.kind == fileObject }

// content is a file that is kept open, so that it can be read after its process
// and its name are gone.
type content interface {
	io.ReaderAt
	io.Closer
}

// inMemory is content that was copied, of the vdso for instance.
type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error { return nil }

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
	mu     sync.Mutex
	list   []*object // by index
	files  map[fileKey]*object
	gone   map[reason.Reason]*object
	images map[bool]*object // vdso of 64-bit (true) and 32-bit processes
	open   int              // files kept open, at most keep
	keep   int
	places int // of maps of generated code
	// disagreed counts files of which the kernel read another identity than they have.
	disagreed uint64
	work      *resolver
	// reached is told of each object that was looked for, when that has ended; nil for nobody.
	reached func(*object)
}

// fileKey is what the kernel says a mapped file is. Mapping records and
// /proc/PID/maps may number the devices of one file differently (overlayfs), so
// each has keys of its own; what is the same file has the same identity in the end.
type fileKey struct {
	id           buildid.ID // when the kernel read one, with
	path         string     // for there is nothing else to tell files of one identity apart
	fromProc     bool
	major, minor uint32
	inode        uint64
	generation   uint64
	content      bpf.Validity // when BPF told of it
}

func newObjects() *objects {
	o := &objects{
		files:  map[fileKey]*object{},
		gone:   map[reason.Reason]*object{},
		images: map[bool]*object{},
		keep:   mayKeepOpen(),
	}
	o.work = newResolver(o)
	return o
}

// add numbers a new object. The caller holds mu.
func (s *objects) add(o *object) *object {
	o.index = uint32(len(s.list))
	s.list = append(s.list, o)
	return o
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

// ofRecord returns the object of a mapping that a record told of.
func (s *objects) ofRecord(r *perfdata.Mmap2, p *process) *object {
	v := vmaOf(r)
	if o := s.nameless(v, p); o != nil {
		return o
	}
	return s.file(keyOf(r), v)
}

// foresee starts to look for the file of a mapping, while its process lives and
// before the turn of its record has come.
func (s *objects) foresee(r *perfdata.Mmap2) {
	if v := vmaOf(r); r.Prot&protExec != 0 && r.Owner != noTask && !isMemory(v) {
		s.reach(job{object: s.file(keyOf(r), v), vma: v, pid: r.Owner, mapped: wallTime(r.Time)})
	}
}

// ofVMA returns the object of a mapping that an inventory found.
func (s *objects) ofVMA(v procmap.VMA, p *process) *object {
	if o := s.nameless(v, p); o != nil {
		return o
	}
	o := s.file(fileKey{fromProc: true, major: v.Dev.Major, minor: v.Dev.Minor, inode: v.Inode}, v)
	s.reach(job{object: o, vma: v, pid: p.pid, mapped: time.Now()})
	return o
}

// wallTime turns the time of a record (ns, CLOCK_MONOTONIC) into one of the clock of files.
func wallTime(t uint64) time.Time { return time.Now().Add(-time.Duration(monotonic() - t)) }

// deleted is what the kernel puts behind the path of a file that was unlinked,
// fs/d_path.c.
const deleted = " (deleted)"

func keyOf(r *perfdata.Mmap2) fileKey {
	if id, err := buildid.New(buildid.GNU, r.BuildID); err == nil {
		return fileKey{id: id, path: r.Name}
	}
	return fileKey{major: r.Major, minor: r.Minor, inode: r.Inode, generation: r.Generation}
}

func vmaOf(r *perfdata.Mmap2) procmap.VMA {
	return procmap.VMA{
		Start:  r.Start,
		End:    r.Start + addr.Abs(r.Size),
		Perm:   procmap.Perm(r.Prot & 7),
		Offset: r.Offset,
		Dev:    procmap.Dev{Major: r.Major, Minor: r.Minor},
		Inode:  r.Inode,
		Name:   r.Name,
	}
}

// file returns the object with this key.
func (s *objects) file(key fileKey, v procmap.VMA) *object {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.files[key]
	if o == nil {
		o = s.add(&object{path: strings.TrimSuffix(v.Name, deleted), want: key.id, id: key.id, why: reason.FileGone, proven: key.content != bpf.Validity{}})
		s.files[key] = o
	}
	return o
}

// ofContent returns the object of a file that BPF told of.
func (s *objects) ofContent(f *bpf.File, v procmap.VMA) *object {
	return s.file(fileKey{content: f.Validity}, v)
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

// reach asks the resolver to look at a file, unless that is done already. It reports whether
// it did.
func (s *objects) reach(j job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := j.object
	if !o.layered && (o.content != nil || o.asked >= maxAttempts) {
		return false
	}
	o.asked++
	j.want = o.want
	s.work.ask(j)
	return true
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

// maxAttempts bounds how often a file is looked for that cannot be reached: each
// process that maps it is another chance, and another cost.
const maxAttempts = 8

// nameless returns the object of a mapping that shows no file: generated code,
// the vdso. For a mapped file it returns nil.
func (s *objects) nameless(v procmap.VMA, p *process) *object {
	switch {
	case v.Name == "[vdso]":
		return s.vdso(v, p)
	case isMemory(v):
		return s.generated(p)
	}
	return nil
}

// isMemory reports whether v shows no file, or one that is only memory by
// another name: shared anonymous memory, huge pages, System V shared memory.
func isMemory(v procmap.VMA) bool {
	if v.Name == "" || v.Name[0] == '[' || strings.HasPrefix(v.Name, "//anon") {
		return true
	}
	name := strings.TrimSuffix(v.Name, deleted)
	return name == "/dev/zero" || name == "/anon_hugepage" || name != v.Name && sysv.MatchString(name)
}

// sysv matches the names that ipc/shm.c gives to shared memory.
var sysv = regexp.MustCompile(`^/SYSV[0-9a-f]{8}$`)

// generated returns the object of the process's executable memory without a file.
func (s *objects) generated(p *process) *object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.generated == nil {
		p.generated = s.add(&object{kind: generatedObject, why: reason.Anonymous, process: p})
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
		if own, ok := ownVDSO(); ok && wide {
			pid, v = uint32(os.Getpid()), own // it is the same one, and always there
		}
		o.content, o.id = readImage(pid, v)
	}
	return o
}

// ownVDSO returns the mapping of the vdso of this process, a 64-bit one.
var ownVDSO = sync.OnceValues(func() (procmap.VMA, bool) {
	vmas, _ := readMappings(os.Getpid())
	i := slices.IndexFunc(vmas, func(v procmap.VMA) bool { return v.Name == "[vdso]" && v.Start > 1<<32 })
	if i < 0 {
		return procmap.VMA{}, false
	}
	return vmas[i], true
})

// maxImage bounds the vdso that is copied. It has two pages today.
const maxImage = 1 << 20

// readImage copies a mapping that is an ELF file as a whole out of a process.
func readImage(pid uint32, v procmap.VMA) (content, buildid.ID) {
	size := uint64(v.End - v.Start)
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil || size > maxImage {
		return nil, buildid.ID{}
	}
	defer mem.Close()
	image := make([]byte, size)
	if _, err := mem.ReadAt(image, int64(v.Start)); err != nil {
		return nil, buildid.ID{}
	}
	info, err := buildid.Read(bytes.NewReader(image))
	if err != nil {
		return nil, buildid.ID{}
	}
	return inMemory{bytes.NewReader(image)}, info.ID
}

// inventory reads the mappings and the name of a process that runs already.
// Where that cannot be done, the process says why.
func (s *objects) inventory(p *process) {
	if name := processName(p.pid); name != "" {
		p.name = name
	}
	now := monotonic()
	vmas, err := readMappings(int(p.pid))
	switch {
	case err == nil:
		p.unknown, p.asOf = reason.None, now
	case errors.Is(err, os.ErrPermission):
		p.unknown = reason.NotPermitted
	case errors.Is(err, procmap.ErrNoMemory):
		p.unknown = reason.None // a kernel thread
	default:
		p.unknown = reason.ProcessGone
	}
	s.insert(p, vmas)
}

// refresh reads the mappings again. What cannot be read changes nothing.
func (s *objects) refresh(p *process) {
	if vmas, err := readMappings(int(p.pid)); err == nil {
		s.insert(p, vmas)
	}
}

func (s *objects) insert(p *process, vmas []procmap.VMA) {
	for _, v := range vmas {
		if v.Perm&procmap.Exec != 0 {
			p.space.Insert(mapping{Start: v.Start, End: v.End, Offset: v.Offset, Of: s.ofVMA(v, p)})
		}
	}
}

// readMappings reads the VMAs of a process, through another of its threads when
// the first one has ended and has no memory any more.
func readMappings(pid int) ([]procmap.VMA, error) {
	vmas, err := readThreadMappings(pid)
	if !errors.Is(err, procmap.ErrNoMemory) {
		return vmas, err
	}
	tids, _ := threadsOf(pid)
	for _, tid := range tids {
		if vmas, err := readThreadMappings(tid); err == nil {
			return vmas, nil
		}
	}
	return nil, err
}

func readThreadMappings(tid int) ([]procmap.VMA, error) {
	proc, err := procmap.Open(tid)
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	return proc.All()
}

// close stops the resolver and closes every file.
func (s *objects) close() {
	s.work.stop()
	for _, o := range s.list {
		s.release(o)
	}
	for _, o := range s.files {
		if o.content != nil {
			o.content.Close()
		}
	}
}
