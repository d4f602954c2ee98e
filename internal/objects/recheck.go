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
	switch r.look(j) {
	case showsAnother:
		found := reach.File(r.set.ctx, j.Request, maxRechecked)
		defer found.Close()
		r.addOther(j, found)
	case showsUnknown:
		r.set.mu.Lock()
		defer r.set.mu.Unlock()
		j.Object.unsure = j.Object.unsure || !r.over
	}
}

// compare is recheck for a mapping whose file was found, while another one settled the object.
func (r *resolver) compare(j Job, found reach.Found) {
	defer found.Close()
	f, isNear := found.File.(*os.File)
	switch {
	case !isNear || found.Why != reason.None || found.ByName:
		r.recheck(j)
	case r.note(j.Object, reach.SightingOf(f), func() bool { return trust.LevelOf(f, "") != trust.Others }) == showsAnother:
		r.addOther(j, found)
	}
}

// addOther adds the content of another file that an object shows.
func (r *resolver) addOther(j Job, found reach.Found) {
	o := j.Object
	found.ReadContent(r.set.ctx, maxRechecked, &r.set.reading)
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	switch {
	case r.over || slices.Contains(o.others, found.Content):
	case found.Why != reason.None || found.ID != j.Want || found.Content.IsZero() && found.IsTrusted() || len(o.others) >= maxOthers:
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
// it.
func (r *resolver) look(j Job) shows {
	if !r.set.strict && r.isTrusted(j.Object) {
		seen, err := reach.StampBelow(int(j.PID), j.VMA.Name)
		switch {
		case err == nil:
			return r.note(j.Object, reach.Sighting{Stamp: seen}, func() bool { return true })
		case !errors.Is(err, mounts.ErrForeign): // else somebody mounted something on the way
			return showsKnown
		}
	}
	p, err := procmap.Open(int(j.PID))
	if err != nil {
		return showsUnknown
	}
	defer p.Close()
	v, ok, err := p.Find(j.VMA.Start)
	if err != nil || !ok || r.set.strict && v.Name != j.VMA.Name {
		return showsUnknown
	}
	f, why, err := p.OpenFile(v)
	switch {
	case err == nil && why == reason.FileUnresponsive && aside.Available():
		found := reach.Aside(j.Request, j.About(), 0)
		defer found.Close()
		if found.Why != reason.None {
			return showsUnknown
		}
		return r.note(j.Object, reach.Sighting{Stamp: found.Seen}, func() bool { return false })
	case err != nil || f == nil:
		return showsUnknown
	}
	defer f.Close()
	return r.note(j.Object, reach.SightingOf(f.File), func() bool { return trust.LevelOf(f.File, "") != trust.Others })
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
