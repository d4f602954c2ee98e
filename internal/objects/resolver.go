package objects

import (
	"os"
	"strings"
	"time"

	"hallmark/buildid"
	"hallmark/internal/patience"
	"hallmark/internal/procfs"
	"hallmark/internal/reach"
	"hallmark/internal/turns"
	"hallmark/reason"
)

// resolver opens mapped files while their processes live, and reads their
// identities, beside the recording: opening a file may wait for a disk or a
// network, and a ring buffer does not.
type resolver struct {
	set     *Set
	workers *turns.Workers[Job]
	queue   func(user uint32, j Job) bool // for the workers
	most    time.Duration                 // that stop waits while jobs end
	over    bool                          // what is found comes too late. Under Set.mu
}

// Job has a resolver reach for an object.
type Job struct {
	reach.Request
	Object *Object
	// recheck says that the object was reached before, and may show another file here.
	recheck bool
	// Again is called when the file could not be reached, nil for no call.
	Again func()
	// done is called when the job is over, nil for no call.
	done func()
	// claimant is that of the file that was found.
	claimant Claimant
}

func newResolver(o *Set) *resolver {
	r := &resolver{set: o, most: patience.Long}
	r.workers = turns.New(r.do)
	r.queue = r.workers.Ask
	return r
}

// ask queues a job, unless too many of its user wait.
func (r *resolver) ask(j Job) bool { return r.queue(procfs.AccountOf(j.PID), j) }

// stop returns when every job that was asked for is done. A file system that does not answer
// is not waited for: then the objects do not change any more all the same.
func (r *resolver) stop() {
	if !r.workers.Stop(r.most) {
		return
	}
	r.set.mu.Lock()
	r.over = true
	r.set.mu.Unlock()
}

// do does a job. It returns what is left to be done by a helper, nil for nothing.
func (r *resolver) do(j Job) (helped func()) {
	if j.recheck {
		r.recheck(j)
		r.noteChecked(j.Object)
		return nil
	}
	return r.resolve(j)
}

// resolve reaches for the file behind a mapping and settles its object. It returns the part that a
// helper does, nil for none.
func (r *resolver) resolve(j Job) (helped func()) {
	if isSettled, isByClaim := r.settled(j); isSettled {
		if isByClaim { // it was settled by another mapping, after this one was asked for
			r.recheck(j)
		}
		r.end(j)
		return nil
	}
	found, about := reach.Here(r.set.ctx, j.Request)
	if !found.MayAnswerAside() {
		r.set.foretell(j, found)
		found.ReadContent(r.set.ctx, r.set.early, &r.set.reading)
		found.Judge(!r.set.isRoomOpen())
		r.accept(j, found)
		return nil
	}
	r.set.noteSilent(j.Object)
	return func() { r.accept(j, reach.Aside(j.Request, about, r.set.early)) }
}

// end says that a job is over.
func (r *resolver) end(j Job) {
	if j.done != nil {
		j.done()
	}
	if told := r.set.Reached; told != nil {
		told(j.Object)
	}
}

// noteSilent gives the reason of a file that a helper is asked for, until it answers.
func (s *Set) noteSilent(o *Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.ID.IsZero() {
		o.Why = reason.FileUnresponsive
	}
}

// accept takes what was found.
func (r *resolver) accept(j Job, found reach.Found) {
	defer r.end(j)
	j.claimant = claimantOf(j, found)
	r.set.mu.Lock()
	if r.over {
		r.set.mu.Unlock()
		found.Close()
		return
	}
	o := j.Object
	o.tried++
	if o.isNumbered(j) { // by another mapping meanwhile
		r.set.mu.Unlock()
		found.Close()
		return
	}
	if o.way != nil && o.isByClaim(j) { // another mapping has settled it meanwhile
		r.set.mu.Unlock()
		r.compare(j, found)
		return
	}
	why := r.set.settle(j, found)
	r.set.mu.Unlock()
	if why != reason.None && j.Again != nil && !j.Validity.OfMapping() {
		j.Again()
	}
}

// settle gives the object of a job what was found of its file, if it is believed.
// The caller holds mu.
func (s *Set) settle(j Job, f reach.Found) reason.Reason {
	o := j.Object
	if f.Why == reason.None {
		f.Why = s.judge(j.Request, o.ID, f)
	}
	if o.doubt(j, f); o.mixed {
		o.ID, f.Why = buildid.ID{}, reason.FileChanged
	}
	if f.Why != reason.None {
		o.Why = f.Why
		o.miss(j)
		f.Close()
		return f.Why
	}
	o.ID, o.Why, o.first = f.ID, reason.None, time.Time{}
	if j.Validity != nil && f.Layered && f.Name != "" {
		o.Path = f.Name // BPF reports the path in the layer
	} else if f.Path != "" {
		o.Path = f.Path
	}
	if f.Fickle && j.Validity == nil && j.Want.IsZero() {
		delete(s.files, o.Key) // another mapping may be of another content
	}
	if o.Content != nil {
		f.Close()
		return reason.None
	}
	o.way, o.seen, o.exact, o.early = &j.Request, f.Seen, j.IsExact(f), buildid.Content{}
	o.byWord, o.claimant, o.glimpse = j.IsByWord(f), j.claimant, f.Content
	o.number(j, f)
	if near, isNear := f.File.(*os.File); isNear {
		o.dev = reach.SightingOf(near).Dev
	}
	if o.exact {
		o.early = f.Content
	}
	if f.ByName && s.strict {
		o.unsure, f.Judged, f.Trusted = true, true, false
	}
	if f.Judged {
		o.judged, o.trusted = true, f.Trusted
		o.vouched = f.Trusted
	}
	if s.open >= s.keep {
		f.Close()
		return reason.None
	}
	o.Content = f.File
	s.open++
	return reason.None
}

// miss notes that a mapping was not seen: it may show another file than the next one. The caller holds mu.
func (o *Object) miss(j Job) {
	if j.Number != (reach.Number{}) {
		o.missed = true
		return
	}
	o.unsure = o.unsure || o.isByClaim(j)
}

// number notes whether the file that was found is that of every mapping of the object. The caller holds mu.
func (o *Object) number(j Job, f reach.Found) {
	if o.numbered = f.Numbered; o.numbered {
		o.exact = o.exact && (!o.since.Before(j.Mapped) || f.Seen.IsBefore(o.since))
		return
	}
	o.unsure = o.unsure || o.missed
}

// foretell gives an object that is reported once its identity, before the content of its file is
// read: an event does not wait for the content as long as that may take.
func (s *Set) foretell(j Job, f reach.Found) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := j.Object
	if s.work.over || !o.alone || !o.ID.IsZero() || f.Why != reason.None || s.judge(j.Request, o.ID, f) != reason.None {
		return
	}
	if o.doubt(j, f); !o.mixed {
		o.ID, o.Why = f.ID, reason.None
	}
}

// doubt notes when nothing says which of two contents of a file a mapping shows: the file
// changed after it was mapped, or mappings of one inode were of different contents.
func (o *Object) doubt(j Job, f reach.Found) {
	if j.Validity != nil || o.alone && !j.Want.IsZero() {
		return // BPF distinguishes contents; and one mapping has the identity that the kernel read when it was made
	}
	if !j.Want.IsZero() && f.ID != j.Want && f.Name != "" && f.Name != strings.TrimSuffix(j.VMA.Name, procfs.Deleted) {
		return // another file altogether, which the process has at that address by now
	}
	o.layered = o.layered || j.Want.IsZero() && f.Layered
	another := f.File != nil && !o.ID.IsZero() && (f.ID != o.ID || !f.Content.IsZero() && !o.early.IsZero() && f.Content != o.early)
	mapped := j.Mapped
	if !o.first.IsZero() && o.first.Before(mapped) {
		mapped = o.first
	}
	if f.Seen.After(mapped) || f.Young && j.Want.IsZero() || another || j.Want.IsZero() && f.Why == reason.FileChanged {
		o.mixed = true
	}
}

// judge says whether what was found is the file that was mapped, of which the identity known was
// read from memory or from another opening of the file, zero for none. The caller holds mu.
func (s *Set) judge(q reach.Request, known buildid.ID, f reach.Found) reason.Reason {
	if f.Why == reason.None && f.File != nil && f.Seen.Size == 0 {
		return reason.FileChanged // nobody executes an empty file: it was cut since
	}
	if q.Validity == nil {
		return s.judgeRecord(q, f)
	}
	if f.Proven && !known.IsZero() && f.ID != known {
		s.disagreed++
	}
	switch {
	case f.Proven || f.ID == known && q.IsLookalike(f):
		return reason.None
	case known.IsZero() && q.Validity.OfMapping():
		return whyUnproven(q.Validity)
	}
	return reason.FileChanged
}

// judgeRecord is judge for a mapping that a record or /proc reported. Where times say nothing, the
// file is believed to be what was mapped only by an identity that the kernel read, or if it
// was read before there were samples. The caller holds mu.
func (s *Set) judgeRecord(q reach.Request, f reach.Found) reason.Reason {
	switch {
	case !q.Want.IsZero() && f.ID != q.Want:
		return reason.FileChanged
	case q.Want.IsZero() && f.Fickle && !s.unsampled:
		return reason.FileTimes
	}
	return reason.None
}

// settled reports whether the object of a job is settled, and whether that was by the mapping of
// another job, which may have shown another file.
func (r *resolver) settled(j Job) (isSettled, isByClaim bool) {
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	o := j.Object
	if !o.isNumbered(j) && (o.Content == nil || o.layered) {
		return false, false
	}
	o.tried++
	return true, o.isByClaim(j)
}
