package objects

import (
	"errors"
	"os"
	"slices"

	"hallmark/internal/aside"
	"hallmark/internal/mounts"
	"hallmark/internal/reach"
	"hallmark/internal/trust"
	"hallmark/procmap"
	"hallmark/reason"
)

// maxOthers bounds the contents that are remembered of the files that one object shows, and
// maxSightings the files.
const maxOthers, maxSightings = 4, 16

// recheck looks at one more mapping of an object that is known by identity and path alone.
// A file that was put in the place of another has the same ones if it was built so.
func (r *resolver) recheck(j Job) {
	switch shown, now := r.look(j); shown {
	case showsAnother:
		found := reach.File(r.set.ctx, j.Request, maxRechecked)
		defer found.Close()
		r.addOther(j, found, now)
	case showsUnknown:
		r.set.mu.Lock()
		defer r.set.mu.Unlock()
		j.Object.unsure = j.Object.unsure || !r.over
	}
}

// noteChecked notes that a recheck has looked at one more mapping of an object.
func (r *resolver) noteChecked(o *Object) {
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	if !r.over {
		o.unchecked--
	}
}

// compare is recheck for a mapping whose file was found, while another one settled the object.
func (r *resolver) compare(j Job, found reach.Found) {
	defer found.Close()
	f, isNear := found.File.(*os.File)
	if !isNear || found.Why != reason.None || found.ByName {
		r.recheck(j)
		return
	}
	now := reach.SightingOf(f)
	if r.note(j.Object, now, func() bool { return trust.LevelOf(f, "") != trust.Others }) == showsAnother {
		r.addOther(j, found, now)
	}
}

// addOther adds the content of another file that an object shows, which was seen as now. The process may
// have ended since: what its path leads to here is that file or a third one.
func (r *resolver) addOther(j Job, found reach.Found, now reach.Sighting) {
	o := j.Object
	found.ReadContent(r.set.ctx, maxRechecked, &r.set.reading)
	isSeen := found.Why == reason.None && found.ID == j.Want && found.IsSighted(now)
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	switch {
	case r.over || isSeen && slices.Contains(o.others, found.Content):
	case !isSeen || found.Content.IsZero() && found.IsTrusted() || len(o.others) >= maxOthers:
		o.unsure = true
	default:
		o.others = append(o.others, found.Content)
	}
}

// shows is what a mapping shows.
type shows uint8

const (
	showsKnown   shows = iota // a file that is known, or one that nobody can have exchanged who would deceive
	showsAnother              // a file that is not known
	showsUnknown
)

// look finds out which file a mapping shows: by the mapping itself, while the process has it. Where only
// this user's processes are recorded, a file is found by its path if only trusted users can exchange
// it. It returns how it saw a file that is not known.
func (r *resolver) look(j Job) (shows, reach.Sighting) {
	if !r.set.strict && r.isTrusted(j.Object) {
		seen, err := reach.StampBelow(int(j.PID), j.VMA.Name)
		switch {
		case err == nil:
			now := reach.Sighting{Stamp: seen}
			return r.note(j.Object, now, func() bool { return true }), now
		case !errors.Is(err, mounts.ErrForeign): // else somebody mounted something on the way
			return showsKnown, reach.Sighting{}
		}
	}
	p, err := procmap.Open(int(j.PID))
	if err != nil {
		return showsUnknown, reach.Sighting{}
	}
	defer p.Close()
	v, ok, err := p.Find(j.VMA.Start)
	if err != nil || !ok || r.set.strict && v.Name != j.VMA.Name {
		return showsUnknown, reach.Sighting{}
	}
	f, err := p.OpenFile(v)
	switch {
	case errors.Is(err, reason.FileUnresponsive) && aside.Available():
		found := reach.Aside(j.Request, j.About(), 0)
		defer found.Close()
		if found.Why != reason.None {
			return showsUnknown, reach.Sighting{}
		}
		now := reach.Sighting{Stamp: found.Seen}
		return r.note(j.Object, now, func() bool { return false }), now
	case err != nil:
		return showsUnknown, reach.Sighting{}
	}
	defer f.Close()
	now := reach.SightingOf(f.File)
	return r.note(j.Object, now, func() bool { return trust.LevelOf(f.File, "") != trust.Others }), now
}

// note notes a file that a mapping of an object shows, unless it is known. One that seems to be known, but
// for its device, is known where isTrusted reports that only root or this user can have written it.
func (r *resolver) note(o *Object, now reach.Sighting, isTrusted func() bool) shows {
	isKnown, isLookalike := false, false
	r.set.mu.Lock()
	for _, s := range append(o.sightings, reach.Sighting{Stamp: o.seen, Dev: o.dev}) {
		isKnown, isLookalike = isKnown || now.Is(s), isLookalike || now.Stamp.IsFile(s.Stamp)
	}
	isOver := r.over || o.unsure
	r.set.mu.Unlock()
	if isOver || isKnown || isLookalike && isTrusted() {
		return showsKnown
	}
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	if len(o.sightings) == maxSightings { // the oldest one is looked at again, if it comes again
		o.sightings = o.sightings[1:]
	}
	o.sightings = append(o.sightings, now)
	return showsAnother
}

// isTrusted reports whether the file that an object was first seen to show is one that only
// root or this user can exchange.
func (r *resolver) isTrusted(o *Object) bool {
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	if !o.judged {
		o.judged = true
		if f, ok := o.Content.(*os.File); ok {
			o.trusted = trust.LevelOf(f, "") != trust.Others
		}
	}
	return o.trusted
}

// maxRechecked is how many bytes a file may have whose content is read because another one
// was in its place.
const maxRechecked = 256 << 20
