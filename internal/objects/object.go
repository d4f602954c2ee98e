// Package objects knows what the mappings of recorded processes show: files, and memory without one.
// A file is reached while a process that has it mapped lives, identified, compared with what other mappings
// of it show, and kept open within bounds. Facts of it come in while a recording goes on: who
// records only points to its [Object].
package objects

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/jitcode"
	"hallmark/internal/perfmap"
	"hallmark/internal/procfs"
	"hallmark/internal/reach"
	"hallmark/reason"
)

// Object is what a mapping shows: a file, or memory without one.
type Object struct {
	set   *Set
	Index uint32    // in Set.list
	Key   reach.Key // in Set.files
	Path  string    // to show
	Kind  Kind

	// Of a file. All under Set.mu until the resolver has stopped.
	want    buildid.ID // what the kernel read from the mapped pages, zero if it read none
	ID      buildid.ID
	Why     reason.Reason  // ID is zero because of it
	Content reach.Handle   // nil when the file could not be reached
	way     *reach.Request // in which it was reached, nil when it was not
	seen    reach.Stamp    // of the file, when the identity was read
	dev     uint64         // that has the file; 0 where a helper has it open
	proven  bool           // every frame is of the content that the identity was read from
	asked   int            // attempts to reach it
	tried   int            // those of them that are over
	// first is when the first of those mappings was made that nobody has looked at yet, of a file
	// that is known by its number alone; zero for none.
	first   time.Time
	Doubted bool // offsets in it may be none: see Set.OfClaim
	// layered says that it is on an overlay and known by its inode alone, which stays the
	// same when a file is copied up and changed: every mapping is looked at.
	layered bool
	mixed   bool            // its mappings were of different contents
	alone   bool            // it is of one mapping, and in no list
	image   bool            // it is the vdso, which the kernel alone writes
	exact   bool            // the file that was reached is certain to have what was mapped
	byWord  bool            // the same, by the word of those who can have changed it without a trace
	early   buildid.Content // of the file, if it was read at once
	glimpse buildid.Content // the same, though it need not be what was mapped
	// others are contents of further files under its identity and path, which is all that
	// is known of it; one may be unknown.
	others    []buildid.Content
	sightings []reach.Sighting // of these files
	// numbered says that the file is known by its number, which each of its mappings has, and that only root or
	// this user can have written it. since is when the first of them was made, where records have numbers.
	numbered  bool
	since     time.Time
	missed    bool // a mapping that has a number was not seen, and the object is not numbered so far
	unsure    bool // a mapping may show another file that nobody saw: the content is unknown
	unchecked int  // mappings that a recheck was asked for and has not looked at
	dropped   bool // a mapping was not looked at: too many of its user's waited for that
	// claimant is whose word the identity is, where nothing proves it.
	claimant Claimant
	judged   bool // trusted is set
	trusted  bool // only root or this user can exchange the file
	vouched  bool // the same, if it is known
	// rewritten stands for the pages of the file that processes have rewritten in their memory,
	// nil while there are none.
	rewritten *Object

	Code *jitcode.Code // of generated code
}

// Process is a process whose mappings show objects.
type Process struct {
	PID uint32
	// Since is when it was forked or execed (ns, CLOCK_MONOTONIC), 0 when not known.
	Since uint64
	// Account is the user who answers for it: see procfs.AccountOf.
	Account uint32
	// Generated stands for its executable memory without a file; nil while there is none.
	Generated *Object
}

// started returns when the process started, the zero time if no record has reported that.
func (p *Process) started() (time.Time, error) {
	if p.Since == 0 {
		return time.Time{}, nil
	}
	return perfmap.WallClock(time.Duration(p.Since), unix.CLOCK_MONOTONIC)
}

// Kind is a kind of object.
type Kind uint8

// The kinds.
const (
	File      Kind = iota // a file, or the vdso
	Generated             // executable memory of a process without a file
	Missing               // nobody knows what, for a reason
	Kernel                // all code of the kernel
)

// A Claimant is whose word an identity is: the owner of the file, as the kernel knows it, and the mount namespace of
// the process that had it mapped.
type Claimant struct {
	UID   int64  // -1 if not known
	Mount uint64 // inode number, 0 if not known
}

// claimantOf returns the claimant of a file that was found. It is known of the very file that was mapped.
func claimantOf(j Job, f reach.Found) Claimant {
	near, isNear := f.File.(*os.File)
	switch {
	case f.File == nil || f.Why != reason.None || f.ByName:
	case f.Name != "" && isNear:
		return Claimant{reach.OwnerOf(near), procfs.MountNamespace(int(j.PID))}
	case f.Name != "": // its file system may not answer, and says which owner it likes
		return Claimant{UID: -1, Mount: procfs.MountNamespace(int(j.PID))}
	case isNear && j.IsExact(f):
		return Claimant{UID: reach.OwnerOf(near)}
	}
	return Claimant{UID: -1}
}

// Claimant returns whose word the identity is, as far as that is known. Nobody else changes objects any more.
func (o *Object) Claimant() Claimant {
	if o.way == nil || o.unsure {
		return Claimant{UID: -1}
	}
	return o.claimant
}

// Glimpse returns the content of the file when it was reached, which need not be that which ran; zero where nobody
// read it then.
func (o *Object) Glimpse() buildid.Content { return o.glimpse }

// IsFile reports whether the object is a file.
func (o *Object) IsFile() bool { return o.Kind == File }

// isByClaim reports whether identity and path, as the kernel read them, are all that is known of the
// file of a mapping: another mapping may show another file of the same ones. The caller holds mu.
func (o *Object) isByClaim(j Job) bool {
	return !o.layered && !o.numbered && !o.want.IsZero() && j.Validity == nil
}

// isNumbered reports whether the file of an object is known by its number, which a mapping has. Then nothing is to be
// learned from the mapping. The caller holds mu.
func (o *Object) isNumbered(j Job) bool { return o.numbered && j.Number != (reach.Number{}) }

// mappedAt notes when a mapping of an object was made. Whether it is looked at or not, an identity that
// was read after a later change of the file is not that of this mapping. The caller holds mu.
func (o *Object) mappedAt(j Job) {
	if j.Number != (reach.Number{}) && (o.since.IsZero() || j.Mapped.Before(o.since)) {
		o.since = j.Mapped
		o.unsure = o.unsure || o.numbered && !o.seen.IsBefore(o.since)
	}
	if j.Validity != nil || !o.want.IsZero() {
		return // the kernel distinguishes contents
	}
	if o.first.IsZero() || j.Mapped.Before(o.first) {
		o.first = j.Mapped
	}
	if o.way != nil && o.seen.After(o.first) {
		o.mixed, o.ID, o.Why = true, buildid.ID{}, reason.FileChanged
	}
}

// isByNumber reports whether an object was identified, and its mappings are known to show the
// same file by the inode alone: another content may be in each of them. The caller holds mu.
func (o *Object) isByNumber() bool {
	return o.way != nil && o.way.Validity == nil && o.want.IsZero()
}

// Facts are what is known of an object at one time.
type Facts struct {
	IsFile  bool
	Key     reach.Key // of the file, in this state and in any of its mappings
	ID      buildid.ID
	Why     reason.Reason   // ID is zero because of it
	Seen    reach.Sighting  // of the file that was reached; zero if none was
	Content buildid.Content // zero while it is unknown
	Trusted bool            // only root or this user is known to be able to exchange it
	Settled bool            // the identity is known, or will not be
	// AwaitsContent says that the content is unknown, and the file is still to be reached.
	AwaitsContent bool
	// Several says that it may be several files, Differ that their contents are known to differ.
	Several, Differ bool
}

// Facts returns what is known of the file by now.
func (o *Object) Facts() Facts {
	o.set.mu.Lock()
	defer o.set.mu.Unlock()
	f := Facts{ID: o.ID, Why: o.Why, IsFile: o.IsFile(), Key: o.Key.OfFile(), Trusted: o.vouched, AwaitsContent: o.early.IsZero() && o.tried < o.asked}
	if o.way != nil {
		f.Seen = reach.Sighting{Stamp: o.seen, Dev: o.dev}
	}
	if f.Settled = !f.IsFile || !o.ID.IsZero(); o.alone {
		f.Settled = o.tried == o.asked
	}
	if !o.unsure && len(o.others) == 0 {
		f.Content = o.early
	}
	for _, c := range o.others {
		f.Several = f.Several || c != o.early
		f.Differ = f.Differ || c != o.early && !c.IsZero() && !o.early.IsZero()
	}
	return f
}
