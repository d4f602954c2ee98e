// Package inventory lists the processes that run on this machine at one moment. Each has its
// executable mappings, with the identities of their files. Each mapping can be compared with the
// file that is at the same path now.
//
// [Take] lists the processes, by the cheapest of three sources: a BPF iterator, PROCMAP_QUERY or
// the text in /proc. [Inventory.LookAtDisk] compares each mapped file with the file that is at its
// path now, as the process itself sees paths. [Inventory.FindContested] marks the code whose
// identity is claimed by files of different content.
//
// A helper process looks at files whose file system is served by a process or a network. A program
// has one if it calls [hallmark/launch.ExecWhenReady] first in main; without it such files have the
// reason [reason.FileUnresponsive].
package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/bpf"
	"hallmark/internal/patience"
	"hallmark/internal/procfs"
	"hallmark/internal/reach"
	"hallmark/procmap"
	"hallmark/reason"
)

// Inventory is what runs on this machine at one moment, or nearly so: a process that
// ran all the while is there once, with what it had mapped when it was looked at.
type Inventory struct {
	Source    Source    // how it was taken
	Processes []Process // by their numbers
	Unseen    []Unseen
	// ctx bounds how files without build IDs are hashed.
	ctx context.Context
	// shares are what is left to be listed and read; nil where there is no bound.
	shares *shares
	// Hidden reports that /proc is that of a PID namespace, and shows no others' processes.
	Hidden bool
}

// Running is a process with code of its own: no kernel thread.
type Process struct {
	PID  int
	Name string // of the first thread
	Code []Code // executable mappings of files, by their addresses
	// Program is the index in Code of the file that was executed, -1 where it is not
	// known. It means something after LookAtDisk, as do the next two.
	Program int
	Ended   bool // since its code was looked at
	// Container is the number that Docker and others give to a container, of a process
	// some of whose files are elsewhere.
	Container string
}

// Code is an executable mapping of a file.
type Code struct {
	Start, End addr.Abs
	Offset     addr.Offset // of Start in the file
	Path       string      // to show; the file there may be another one
	ID         buildid.ID
	Reason     reason.Reason // why ID is zero
	// Contested is set by FindContested where the content is another one than that of
	// a file which claims the same identity, or is not known beside such a file. Content
	// is known of the files that were compared.
	Contested bool
	Content   buildid.Content
	// LookAtDisk sets the fields from here on.
	Disk     Disk     // what is at Path now
	DirEntry DirEntry // that Path is for the process
	// Elsewhere reports that Path is another entry for this process than for the one that
	// has it mapped, which is in a container for instance.
	Elsewhere bool

	file fileKey
}

// Unseen is a process whose mappings could not be read, and why.
type Unseen struct {
	PID    int
	Reason reason.Reason
}

// Source is a way of taking an inventory.
type Source uint8

// The sources. They see the same.
const (
	// AnySource is the one that costs least here.
	AnySource Source = iota
	// Iterator is a BPF program that the kernel runs for each of its tasks (Linux 6.13), or
	// for each of their VMAs (Linux 6.1). It needs root. A process costs least, but the
	// program must be loaded first.
	Iterator
	// Query asks for the mappings one by one: PROCMAP_QUERY (Linux 6.11).
	Query
	// Text reads /proc/PID/maps.
	Text
)

var sourceNames = [...]string{AnySource: "any", Iterator: "iterator", Query: "query", Text: "text"}

// String returns the source as one word.
func (s Source) String() string { return sourceNames[s] }

// Options say of which processes an inventory is taken, and how. The zero value is right.
type Options struct {
	PIDs   []int  // these processes only; all when empty
	Source Source // demands one
}

// Take looks at the processes that run. An error means that there is no
// inventory; a process that could not be looked at is in Unseen.
func Take(opts Options) (*Inventory, error) {
	pids := opts.PIDs
	if len(pids) == 0 {
		var err error
		if pids, err = procfs.Processes(); err != nil {
			return nil, err
		}
	}
	inv, err := newFromProc(opts.Source)
	if err != nil {
		return nil, err
	}
	inv.ctx, inv.shares = buildid.WithBudget(context.Background(), reach.Hashing), newShares()
	// Only the PID namespace of the machine has kernel threads: the father of all others is number 2.
	inv.Hidden = procfs.CheckPIDNamespace() != nil && !procfs.IsKernelThread(2)
	if opts.Source == Iterator || opts.Source == AnySource && (inv.Source == Text || len(pids) > manyProcesses) {
		inv, err := byBPF(opts.PIDs)
		if err == nil || opts.Source == Iterator {
			return inv, err
		}
	}
	most := patience.ProcessTime
	if len(opts.PIDs) > 0 {
		most = askedTime
	}
	inv.takeFromProc(pids, most)
	return inv, nil
}

// askedTime is how long a process is waited for that was asked for by its number, and has very many files.
const askedTime = 5 * patience.ProcessTime

// manyProcesses is from how many processes on loading a program costs less than
// queries: bench/README.md.
const manyProcesses = 400

// byBPF has the kernel run through its tasks, and reads the identity of each file
// once.
func byBPF(pids []int) (*Inventory, error) {
	if err := procfs.CheckPIDNamespace(); err != nil {
		return nil, err
	}
	taken, err := takeList()
	if err != nil {
		return nil, err
	}
	if len(pids) > 0 {
		taken = slices.DeleteFunc(taken, func(p *bpf.Process) bool { return !slices.Contains(pids, int(p.PID)) })
	} else if pids, err = procfs.Processes(); err != nil {
		return nil, err
	}
	inv := inventoryOf(taken)
	inv.addMissing(pids)
	return inv, nil
}

// takeList has the kernel list what is mapped, which takes the lock of each process's mappings.
func takeList() ([]*bpf.Process, error) {
	list, err := bpf.NewList()
	if err != nil {
		return nil, err
	}
	return patience.InTime(patience.EveryProcess, patience.ProcessTime, func() ([]*bpf.Process, error) {
		defer list.Close()
		return list.Take()
	})
}

// addMissing looks at processes that the kernel did not run through: sandboxes hide some,
// number 1 for instance, and others have started since. Kernel threads have no program.
func (inv *Inventory) addMissing(pids []int) {
	listed := map[int]bool{}
	for _, p := range inv.Processes {
		listed[p.PID] = true
	}
	for _, pid := range pids {
		if listed[pid] {
			continue
		}
		if _, err := procfs.Readlink(pid, "exe"); !errors.Is(err, fs.ErrNotExist) {
			inv.add(inv.lookPatiently(pid, patience.ProcessTime, procmap.Options{Context: inv.context()}))
		}
	}
	inv.sort()
}

// inventoryOf makes an inventory of what BPF reported, in the order of the numbers of processes.
func inventoryOf(taken []*bpf.Process) *Inventory {
	inv := &Inventory{Source: Iterator, Processes: make([]Process, len(taken)), ctx: buildid.WithBudget(context.Background(), reach.Hashing), shares: newShares()}
	files := map[listedFile]*unread{}
	for i, p := range taken {
		user := procfs.AccountOf(p.PID)
		isExempt := inv.shares.isExempt(user)
		r := &inv.Processes[i]
		*r = Process{PID: int(p.PID), Name: p.Name, Code: make([]Code, len(p.Code))}
		for j := range p.Code {
			c := &p.Code[j]
			key := listedFile{c.Validity, c.Key}
			u := files[key]
			if u == nil {
				u = &unread{user: user, key: keyOf(&c.Validity)}
				files[key] = u
			}
			if isExempt {
				u.user = user // who pays for it
			}
			r.Code[j] = Code{Start: c.Start, End: c.End, Offset: c.Offset, Path: c.Path, file: u.key}
			u.code = append(u.code, &r.Code[j])
			u.files = append(u.files, &c.File)
		}
	}
	procfs.EachInParallel(slices.Collect(maps.Values(files)), func(u *unread) {
		if !inv.shares.spend(u.user, func() { u.read(inv.ctx) }) {
			u.leave()
		}
	})
	return inv
}

// context is what all reading for the inventory keeps to.
func (inv *Inventory) context() context.Context {
	if inv.ctx == nil {
		return context.Background()
	}
	return inv.ctx
}

// listedFile names a file of a list: subvolumes may have two of one validity.
type listedFile struct {
	bpf.Validity
	key uint64
}

// unread is a file whose identity is not known yet, and where it is mapped.
type unread struct {
	user  uint32 // whose share of the time it takes
	key   fileKey
	code  []*Code
	files []*bpf.File
}

func (u *unread) read(ctx context.Context) {
	id, why := buildid.ID{}, reason.None
	for i := range min(len(u.files), reach.MaxAttempts) {
		if id, why = readPatiently(ctx, u.files[i]); why == reason.None || why == reason.Anonymous {
			break
		}
	}
	for i, c := range u.code {
		c.ID, c.Reason = id, why
		if why != reason.None && why != reason.Anonymous && why != reason.FileUnresponsive {
			c.askProcess(ctx, int(u.files[i].PID))
		}
	}
}

// leave has no more time for the file.
func (u *unread) leave() {
	for _, c := range u.code {
		c.Reason = reason.NotRead
	}
}

// askProcess asks a process for the identity of what it has mapped there, if it is as it
// was: where no file can be proven to be the one that BPF saw, on layers for instance,
// there may be other proofs.
func (c *Code) askProcess(ctx context.Context, pid int) {
	seen := *c
	var id procmap.Identity
	var is bool
	switch o := patience.Try(pid, patience.ProcessTime, func() { id, is = seen.ask(ctx, pid) }); {
	case o != patience.Ended:
		c.Reason = whyNot(o)
	case is && (!id.ID.IsZero() || c.Reason == reason.FileTimes):
		c.ID, c.Reason = id.ID, id.Reason
	}
}

// whyNot returns why a look that did not end in time has no answer.
func whyNot(o patience.Outcome) reason.Reason {
	if o == patience.Silent {
		return reason.FileUnresponsive
	}
	return reason.NotRead
}

// ask returns what a process says, unless it has something else there by now.
func (c *Code) ask(ctx context.Context, pid int) (id procmap.Identity, is bool) {
	p, err := procmap.OpenOptions(pid, procmap.Options{Context: ctx})
	if err != nil {
		return id, false
	}
	defer p.Close()
	v, ok, err := p.Find(c.Start)
	if !ok || err != nil || v.Start != c.Start || v.End != c.End || v.Offset != c.Offset || p.PathOf(v) != c.Path {
		return id, false
	}
	id, err = p.Identity(v)
	return id, err == nil
}

// readPatiently is readMapped for a process that may not let anybody look at it.
func readPatiently(ctx context.Context, f *bpf.File) (buildid.ID, reason.Reason) {
	var id buildid.ID
	var why reason.Reason
	if o := patience.Try(int(f.PID), patience.ProcessTime, func() { id, why = readMapped(ctx, f) }); o != patience.Ended {
		return buildid.ID{}, whyNot(o)
	}
	return id, why
}

// readMapped reads the identity of a file that BPF reported.
func readMapped(ctx context.Context, f *bpf.File) (buildid.ID, reason.Reason) {
	if reach.IsMemoryByBPF(f) {
		return buildid.ID{}, reason.Anonymous
	}
	if f.OfMapping() {
		return buildid.ID{}, reason.FileTimes // each process has to be asked
	}
	found := reach.File(ctx, reach.Request{VMA: reach.VMAOf(f), PID: f.PID, Validity: &f.Validity}, 0)
	found.Close()
	if found.Why == reason.None && !found.Proven {
		return buildid.ID{}, reason.FileChanged
	}
	return found.ID, found.Why
}

// newFromProc asks this process how others can be asked.
func newFromProc(source Source) (*Inventory, error) {
	p, err := procmap.OpenOptions(procfs.OwnPID(), procmap.Options{Method: source.method()})
	if err != nil {
		return nil, fmt.Errorf("taking an inventory: %w", err)
	}
	defer p.Close()
	if p.Method() == procmap.Query {
		return &Inventory{Source: Query}, nil
	}
	return &Inventory{Source: Text}, nil
}

// method returns how /proc is asked.
func (s Source) method() procmap.Method {
	return map[Source]procmap.Method{Query: procmap.Query, Text: procmap.Text}[s] // else Auto
}

// takeFromProc looks at each process in /proc, several at a time. One that starts
// meanwhile may be missing, one that ends is not unseen.
func (inv *Inventory) takeFromProc(pids []int, most time.Duration) {
	var mu sync.Mutex
	var files procmap.Files
	defer files.Close()
	procfs.EachInParallel(pids, func(pid int) {
		r, why := inv.lookPatiently(pid, most, procmap.Options{Method: inv.Source.method(), Files: &files, Context: inv.context()})
		mu.Lock()
		defer mu.Unlock()
		inv.add(r, why)
	})
	inv.sort()
}

func (inv *Inventory) add(r Process, why reason.Reason) {
	switch why {
	case reason.None:
		inv.Processes = append(inv.Processes, r)
	case reason.ProcessGone: // it ended, or is a kernel thread
	default:
		inv.Unseen = append(inv.Unseen, Unseen{r.PID, why})
	}
}

func (inv *Inventory) sort() {
	slices.SortFunc(inv.Processes, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
	slices.SortFunc(inv.Unseen, func(a, b Unseen) int { return cmp.Compare(a.PID, b.PID) })
}

// lookPatiently is lookAt for a process that may not let anybody look at it. While the look makes
// progress it is waited for until most has passed. A process of a user who has no share left is not looked at.
func (inv *Inventory) lookPatiently(pid int, most time.Duration, opts procmap.Options) (r Process, why reason.Reason) {
	l := look{pid: pid, opts: opts, meter: inv.shares.meterOf(pid)}
	r, why = Process{PID: pid}, reason.NotRead
	inv.shares.spend(l.meter.user, func() {
		var seen Process
		var seenWhy reason.Reason
		switch patience.TryMoving(pid, patience.ProcessTime, most, &l.steps, func() { seen, seenWhy = l.at() }) {
		case patience.Ended:
			r, why = seen, seenWhy
		case patience.Silent:
			why = reason.FileUnresponsive
		}
	})
	return r, why
}

// look is one at a process.
type look struct {
	pid   int
	opts  procmap.Options
	meter *meter
	steps atomic.Int64
}

// at looks at one process through /proc, again when it executed another program
// meanwhile. Without memory of its own it is gone, or never had code.
func (l *look) at() (Process, reason.Reason) {
	r := Process{PID: l.pid}
	for range reach.MaxAttempts {
		code, err := l.code()
		switch {
		case err == nil:
			r.Code, r.Name = code, procfs.NameOf(uint32(l.pid))
			return r, reason.None
		case errors.Is(err, procmap.ErrStopped):
			return r, reason.NotRead
		case errors.Is(err, os.ErrPermission):
			return r, reason.NotPermitted
		case errors.Is(err, procmap.ErrNoMemory):
			return r, reason.ProcessGone
		case !errors.Is(err, os.ErrProcessDone):
			return r, reason.Unstable
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", l.pid)); err != nil {
			return r, reason.ProcessGone
		}
	}
	return r, reason.Unstable
}

// code returns the code of the process.
func (l *look) code() ([]Code, error) {
	p, err := procmap.OpenOptions(l.pid, l.opts)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	l.meter.count = 0
	vmas, err := p.ExecutableWhile(func(v procmap.VMA) bool {
		l.steps.Add(1)
		return l.meter.add(v)
	})
	if err == nil && !l.meter.settle() {
		err = procmap.ErrStopped
	}
	if err != nil {
		return nil, err
	}
	code := make([]Code, 0, len(vmas))
	paths := map[string]string{} // of names with the mark of deleted files
	for _, v := range vmas {
		path, isKnown := paths[v.Name]
		if !isKnown {
			if path = p.PathOf(v); v.Deleted() {
				paths[v.Name] = path
			}
		}
		id, err := p.Identity(v)
		if err != nil {
			return nil, err
		}
		l.steps.Add(1)
		code = append(code, Code{Start: v.Start, End: v.End, Offset: v.Offset, Path: path, ID: id.ID, Reason: id.Reason, file: keyOfVMA(v)})
	}
	return code, nil
}
