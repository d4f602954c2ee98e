package objects

import (
	"context"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/aside"
	"hallmark/internal/bpf"
	"hallmark/internal/contested"
	"hallmark/internal/reach"
	"hallmark/internal/trust"
	"hallmark/reason"
)

// Reading is a file, and what was read of it.
type Reading struct {
	Object  *Object
	Content buildid.Content
	// Several are the contents of a file that is known by identity and path alone, if they
	// differ. One may be unknown. Then content is.
	Several []buildid.Content
}

// ReadContents reads the contents of files within limits, but of those that were read before.
func ReadContents(objects []*Object, limits contested.Limits) []Reading {
	all := make([]Reading, len(objects))
	var files []contested.File
	var missing []*Reading
	for i, o := range objects {
		r := &all[i]
		if r.Object = o; o.isReviewed() {
			r.Content = o.early
		}
		if r.Content.IsZero() {
			files = append(files, contested.File{Size: o.seen.Size, Ask: o.readNow})
			missing = append(missing, r)
		}
	}
	for i, c := range contested.Read(files, limits) {
		missing[i].Content = c
	}
	for i := range all {
		all[i].compare()
	}
	return all
}

// compare looks whether an object shows files of different content: then nobody knows which
// frames were of which.
func (r *Reading) compare() {
	others := r.Object.others
	if r.Object.unsure {
		r.Content = buildid.Content{}
	}
	if slices.ContainsFunc(others, func(c buildid.Content) bool { return c != r.Content }) {
		r.Several = append(others, r.Content)
		r.Content = buildid.Content{}
	}
}

// isReviewed reports whether the content that was read when the file was reached is still that which ran: BPF
// distinguishes contents, or nothing has changed since. A file that was not kept open may have been overwritten. One that
// may change without a trace may have done so while it was read, so it is read twice. Nobody else changes objects any
// more.
func (o *Object) isReviewed() bool {
	f, isNear := o.Content.(*os.File)
	return !o.byWord && (o.proven || o.trusted || isNear && o.isSame(f))
}

// earlyContent is how many bytes a file may have whose content is read at once, when it is
// reached. Its links may change afterwards: then only those are believed who would not deceive.
const earlyContent = 2 << 20

// open returns the file whose identity was read, if that is proven to be what was mapped: an
// *os.File, or an *aside.File. Nobody else changes objects any more.
func (o *Object) open() (f reach.Handle, done func()) {
	if !o.exact || o.mixed {
		return nil, nil
	}
	switch f := o.Content.(type) {
	case *os.File, *aside.File:
		return f, func() {}
	}
	if o.Content != nil || o.way == nil {
		return nil, nil
	}
	found := reach.File(context.Background(), *o.way, 0)
	if found.Why != reason.None || found.Seen != o.seen {
		found.Close()
		return nil, nil
	}
	return found.File, found.Close
}

// readNow reads the content of the file, the zero one if it cannot be read or is another by now, or was when it was
// read at once.
func (o *Object) readNow(ctx context.Context) (c buildid.Content) {
	f, done := o.open()
	if f == nil {
		return c
	}
	defer done()
	var err error
	switch f := f.(type) {
	case *os.File:
		c, err = reach.ContentOf(ctx, f, o.ID)
		if err != nil || !o.isSame(f) || o.byWord && !o.early.IsZero() && c != o.early {
			return buildid.Content{}
		}
	case *aside.File:
		return reach.ContentInHelper(f, o.seen)
	}
	return c
}

// isSame reports whether a file still has the content that it had when its identity was
// read. Its owner can put back the time of the last change of the content, and not that of
// the inode; which changes with links and permissions as well, so those are believed who
// could not wish to deceive.
func (o *Object) isSame(f *os.File) bool {
	now := reach.StampOf(f)
	if now == o.seen {
		return true
	}
	return now.Size == o.seen.Size && now.Mtime == o.seen.Mtime && trust.LevelOf(f, "") != trust.Others
}

// IsOtherState reports whether BPF reported r and other as two files, or as one before and after a
// change. Where only root or this user can write, a new time of the inode alone is no change.
func (r *Reading) IsOtherState(other *Reading) bool {
	a, b := r.Object.Key.Content, other.Object.Key.Content
	if a == (bpf.Validity{}) || b == (bpf.Validity{}) {
		return false
	}
	a.Pinned, b.Pinned = 0, 0
	if r.IsVouched() && other.IsVouched() {
		a.Ctime, b.Ctime = bpf.Time{}, bpf.Time{}
	}
	return a != b
}

// IsVouched reports whether only root or this user can have written the file, or exchanged it
// for another one. The vdso is the kernel's own.
func (r *Reading) IsVouched() bool {
	o := r.Object
	if o.unsure || len(r.Several) > 0 {
		return false
	}
	if o.image {
		return true
	}
	if level, _ := o.Level(); level != trust.Others {
		return true
	}
	f, isNear := o.Content.(*os.File)
	return o.trusted || isNear && trust.LevelOf(f, "") != trust.Others
}

// Level returns how far the file is trusted, and whose it is: a number of its own for one
// that cannot be reached, or whose server can say any owner.
func (o *Object) Level() (trust.Level, int64) {
	f, done := o.open()
	if f == nil {
		return trust.Others, -1 - int64(o.Index)
	}
	defer done()
	var st unix.Stat_t
	switch f := f.(type) {
	case *os.File:
		if unix.Fstat(int(f.Fd()), &st) == nil {
			return trust.LevelOf(f, ""), int64(st.Uid)
		}
	case *aside.File:
		if owner, err := aside.Serves(f, reach.OwnerInHelper, f.Number()); err == nil && owner >= 0 {
			return trust.Others, owner
		}
	}
	return trust.Others, -1 - int64(o.Index)
}

// changeOf reports whether the content of a file that was kept open is another one than that
// whose identity was read. Names, links and permissions may have changed.
func changeOf(ctx context.Context, content reach.Handle, seen reach.Stamp, id buildid.ID) reach.Change {
	switch f := content.(type) {
	case *os.File:
		switch {
		case !reach.IsChanged(ctx, f, seen, id):
			return reach.Unchanged
		case reach.StampOf(f) != seen:
			return reach.ChangeShown
		}
		return reach.ChangeHidden
	case *aside.File:
		return reach.ChangeInHelper(f, seen, id)
	}
	return reach.Unchanged
}

// Review looks at the files that were kept open once more. One that was overwritten
// cannot have symbols any more; and where its identity was taken for that of all that
// was ever mapped of it, nobody knows which frames were of which content. Where the times do
// not show it, the identity that the kernel read when it was mapped counts, as it does for
// changes that nobody can see.
func (s *Set) Review() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.list {
		if o.Content == nil && o.isByNumber() && o.tried < o.asked { // a mapping was not looked at
			o.ID, o.Why = buildid.ID{}, reason.FileUnresponsive
		}
		if o.Content == nil && o.isByNumber() && o.dropped {
			o.ID, o.Why = buildid.ID{}, reason.NotRead
		}
		if o.unchecked > 0 || !o.proven && !o.numbered && !o.want.IsZero() && (o.dropped || o.tried < o.asked) {
			o.unsure = true // one of its mappings was not looked at in time
		}
		c := changeOf(s.ctx, o.Content, o.seen, o.ID)
		if f, isNear := o.Content.(*os.File); isNear && o.isByNumber() && o.seen.IsTouched(reach.StampOf(f)) {
			c = reach.ChangeShown // it may have had another content for a while, and its owner put the time back
		}
		if c == reach.Unchanged {
			continue
		}
		o.Content.Close()
		o.Content = nil
		if o.proven || c != reach.ChangeShown && !o.want.IsZero() {
			continue
		}
		o.ID, o.Why = buildid.ID{}, reason.FileChanged
		if c == reach.ChangeUnknown {
			o.Why = reason.FileUnresponsive
		}
	}
}
