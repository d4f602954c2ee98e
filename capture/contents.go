package capture

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/aside"
	"hallmark/internal/bpf"
	"hallmark/internal/contentcache"
	"hallmark/internal/contested"
	"hallmark/internal/mounts"
	"hallmark/internal/reach"
	"hallmark/internal/trust"
	"hallmark/procmap"
	"hallmark/profile"
	"hallmark/reason"
)

// A build ID is a claim. What a recording knows of one file and of another is put together
// only if their contents are the same. They are read when the samples have ended, and only
// of files that samples are in.

// distinct tells files apart. One of unknown content is the same as another only if it has
// its path, too.
type distinct struct {
	id      buildid.ID // that it claims
	content buildid.Content
	path    string // of a file of unknown content
	unkept  bool   // see judgeUnknown
}

func distinctOf(id buildid.ID, content buildid.Content, path string) distinct {
	if !content.IsZero() {
		path = ""
	}
	return distinct{id: id, content: content, path: path}
}

// read is a file that frames are in, and what was read of it.
type read struct {
	object  *object
	content buildid.Content
	// several are the contents of a file that is known by identity and path alone, if they
	// differ. One may be unknown. Then content is.
	several []buildid.Content
	unkept  bool // see judgeUnknown
}

// contentLimits bound what is read of files at the end of a recording.
var contentLimits = contested.Limits{Time: 3 * time.Second, Bytes: 8 << 30}

// readContents reads the contents of files, but of those that were read before.
func readContents(objects []*object) []read {
	all := make([]read, len(objects))
	var files []contested.File
	var missing []*read
	for i, o := range objects {
		r := &all[i]
		r.object, r.content = o, o.early
		if r.content.IsZero() {
			files = append(files, contested.File{Size: o.seen.Size, Ask: o.readNow})
			missing = append(missing, r)
		}
	}
	for i, c := range contested.Read(files, contentLimits) {
		missing[i].content = c
	}
	for i := range all {
		all[i].compare()
	}
	return all
}

// compare looks whether an object shows files of different content: then nobody knows which
// frames were of which.
func (r *read) compare() {
	others := r.object.others
	if r.object.unsure {
		r.content = buildid.Content{}
	}
	if slices.ContainsFunc(others, func(c buildid.Content) bool { return c != r.content }) {
		r.several = append(others, r.content)
		r.content = buildid.Content{}
	}
}

// earlyContent is how many bytes a file may have whose content is read at once, when it is
// reached. Its links may change afterwards, and then nobody knows whether the bytes have.
const earlyContent = 2 << 20

// open returns the file whose identity was read, if that is proven to be what was mapped: an
// *os.File, or an *aside.File. Nobody else changes objects any more.
func (o *object) open() (f reach.Handle, done func()) {
	if !o.exact || o.mixed {
		return nil, nil
	}
	switch f := o.content.(type) {
	case *os.File, *aside.File:
		return f, func() {}
	}
	if o.content != nil || o.way == nil {
		return nil, nil
	}
	found := reach.File(context.Background(), *o.way, 0)
	if found.Why != reason.None || found.Seen != o.seen {
		found.Close()
		return nil, nil
	}
	return found.File, found.Close
}

// readNow reads the content of the file, the zero one if it cannot be read or is another by now.
func (o *object) readNow(ctx context.Context) (c buildid.Content) {
	f, done := o.open()
	if f == nil {
		return c
	}
	defer done()
	var err error
	switch f := f.(type) {
	case *os.File:
		if c, err = contentcache.OfMapped(ctx, f); err != nil || !o.isSame(f) {
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
func (o *object) isSame(f *os.File) bool {
	now := reach.StampOf(f)
	if now == o.seen {
		return true
	}
	return now.Size == o.seen.Size && now.Mtime == o.seen.Mtime && trust.LevelOf(f, "") != trust.Others
}

// maxOthers bounds the contents that are remembered of the files that one object shows, and
// maxSightings the files.
const maxOthers, maxSightings = 4, 16

// recheck looks at one more mapping of an object that is known by identity and path alone.
// A file that was put in the place of another has the same ones if it was built so.
func (r *resolver) recheck(j job) {
	switch r.look(j) {
	case showsAnother:
		found := reach.File(r.objects.ctx, j.Request, maxRechecked)
		defer found.Close()
		r.addOther(j, found)
	case showsUnknown:
		r.objects.mu.Lock()
		defer r.objects.mu.Unlock()
		j.object.unsure = j.object.unsure || !r.over
	}
}

// compare is recheck for a mapping whose file was found, while another one settled the object.
func (r *resolver) compare(j job, found reach.Found) {
	defer found.Close()
	f, isNear := found.File.(*os.File)
	switch {
	case !isNear || found.Why != reason.None || found.ByName:
		r.recheck(j)
	case r.note(j.object, reach.SightingOf(f), func() bool { return trust.LevelOf(f, "") != trust.Others }) == showsAnother:
		r.addOther(j, found)
	}
}

// addOther adds the content of another file that an object shows.
func (r *resolver) addOther(j job, found reach.Found) {
	o := j.object
	found.ReadContent(r.objects.ctx, maxRechecked, &r.objects.reading)
	r.objects.mu.Lock()
	defer r.objects.mu.Unlock()
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
func (r *resolver) look(j job) shows {
	if !r.objects.strict && r.isTrusted(j.object) {
		seen, err := reach.StampBelow(int(j.PID), j.VMA.Name)
		switch {
		case err == nil:
			return r.note(j.object, reach.Sighting{Stamp: seen}, func() bool { return true })
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
	if err != nil || !ok || r.objects.strict && v.Name != j.VMA.Name {
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
		return r.note(j.object, reach.Sighting{Stamp: found.Seen}, func() bool { return false })
	case err != nil || f == nil:
		return showsUnknown
	}
	defer f.Close()
	return r.note(j.object, reach.SightingOf(f.File), func() bool { return trust.LevelOf(f.File, "") != trust.Others })
}

// note notes a file that a mapping of an object shows, unless it is known. One that seems to be known, but
// for its device, is known where isTrusted reports that only root or this user can have written it.
func (r *resolver) note(o *object, now reach.Sighting, isTrusted func() bool) shows {
	isKnown, isLookalike := false, false
	r.objects.mu.Lock()
	for _, s := range append(o.sightings, reach.Sighting{Stamp: o.seen, Dev: o.dev}) {
		isKnown, isLookalike = isKnown || now.Is(s), isLookalike || now.Stamp.IsFile(s.Stamp)
	}
	isOver := r.over || o.unsure
	r.objects.mu.Unlock()
	if isOver || isKnown || isLookalike && isTrusted() {
		return showsKnown
	}
	r.objects.mu.Lock()
	defer r.objects.mu.Unlock()
	if len(o.sightings) == maxSightings { // the oldest one is looked at again, if it comes again
		o.sightings = o.sightings[1:]
	}
	o.sightings = append(o.sightings, now)
	return showsAnother
}

// isTrusted reports whether the file that an object was first seen to show is one that only
// root or this user can exchange.
func (r *resolver) isTrusted(o *object) bool {
	r.objects.mu.Lock()
	defer r.objects.mu.Unlock()
	if !o.judged {
		o.judged = true
		if f, ok := o.content.(*os.File); ok {
			o.trusted = trust.LevelOf(f, "") != trust.Others
		}
	}
	return o.trusted
}

// maxRechecked is how many bytes a file may have whose content is read because another one
// was in its place.
const maxRechecked = 256 << 20

// distinguish gives each file its identity, content and path. Where files of different
// content claim one identity, it stays with the one that is trusted most, and the others
// have their content for an identity, as has one that others can have written if the content of
// another file is unknown. One of unknown content has none, if another file is
// known better: its owner may have seen to it that nobody can tell them apart.
func (f *finisher) distinguish(all []read) {
	claims, copies := map[buildid.ID][]*read{}, map[distinct][]*read{}
	var order []distinct
	for i := range all {
		r := &all[i]
		claims[r.object.id] = append(claims[r.object.id], r)
	}
	for _, claimants := range claims {
		judgeUnknown(claimants)
	}
	for i := range all {
		r := &all[i]
		o := r.object
		key := distinctOf(o.id, r.content, o.path)
		key.unkept = r.unkept
		if copies[key] == nil {
			order = append(order, key)
		}
		copies[key] = append(copies[key], r)
	}
	for _, key := range order {
		shown := profile.Binary{ID: key.id, Content: key.content, Unkept: key.unkept}
		if keeper, is := keeperOf(claims[key.id]); !key.content.IsZero() && (is && key.content != keeper || isDubious(copies[key], claims[key.id])) {
			shown.ID, shown.Claim = key.content.ID(), key.id
		}
		groups := believed(copies[key])
		for _, group := range groups {
			b := f.identify(shown, group, len(groups) > 1)
			f.noteGuests(group)
			if key.content.IsZero() && len(claims[key.id]) > len(group) && !group[0].object.doubted {
				b.Segments = nil // or pprof takes it for another one of the same layout
			}
		}
	}
}

// identify makes one file of objects. The first one gives it its path and, if it could be
// reached, its symbols.
func (f *finisher) identify(shown profile.Binary, group []*read, apart bool) *identified {
	shown.Path, shown.Apart = group[0].object.path, apart
	b := &identified{Binary: shown}
	key := distinctOf(shown.Claimed(), shown.Content, shown.Path)
	key.unkept = shown.Unkept
	if apart {
		key.path = shown.Path
	}
	if known := f.files[key]; known != nil {
		b = known
	}
	f.files[key] = b
	for _, r := range group {
		if key.content.IsZero() && r.isOtherState(group[0]) {
			r.several = append(r.several, buildid.Content{})
		}
		f.ofObject[r.object] = b
		b.add(r.object, len(r.several) > 0)
	}
	return b
}

// isOtherState reports whether BPF reported r and other as two files, or as one before and after a
// change. Where only root or this user can write, a new time of the inode alone is no change.
func (r *read) isOtherState(other *read) bool {
	a, b := r.object.key.Content, other.object.key.Content
	if a == (bpf.Validity{}) || b == (bpf.Validity{}) {
		return false
	}
	a.Pinned, b.Pinned = 0, 0
	if r.isVouched() && other.isVouched() {
		a.Ctime, b.Ctime = bpf.Time{}, bpf.Time{}
	}
	return a != b
}

// noteGuests notes the copies of a trusted file that others can have written. A content is of the
// code: what is executed beyond it may be other bytes than those of the trusted file.
func (f *finisher) noteGuests(group []*read) {
	if len(group) < 2 || group[0].content.IsZero() || !group[0].isVouched() {
		return
	}
	for _, r := range group[1:] {
		if r.isVouched() {
			continue
		}
		if f.guests == nil {
			f.guests = map[*object]*profile.Binary{}
		}
		f.guests[r.object] = &profile.Binary{ID: r.object.id, Path: r.object.path, Unkept: true}
	}
}

// believed groups copies, of which each says itself what its functions are called. A file
// that root or this user wrote is believed for all of them, and comes first. Without one, a
// user's file is believed for that user's copies alone.
func believed(copies []*read) [][]*read {
	if len(copies) == 1 || copies[0].content.IsZero() {
		return [][]*read{copies}
	}
	best, top := trust.Others, 0
	owners := map[int64][]*read{}
	var order []int64
	for i, r := range copies {
		level, owner := r.object.level()
		if level > best {
			best = level
			top = i
		}
		if owners[owner] == nil {
			order = append(order, owner)
		}
		owners[owner] = append(owners[owner], r)
	}
	if best > trust.Others {
		copies[0], copies[top] = copies[top], copies[0]
		return [][]*read{copies}
	}
	groups := make([][]*read, len(order))
	for i, owner := range order {
		groups[i] = owners[owner]
	}
	return groups
}

// judgeUnknown notes which files of unknown content may not have the identity that they and
// others claim.
func judgeUnknown(claimants []*read) {
	isKept := false
	var unknown []*read
	for _, r := range claimants {
		if len(claimants) > 1 && r.content.IsZero() && !r.isVouched() {
			unknown = append(unknown, r)
			continue
		}
		isKept = true
	}
	for _, r := range unknown {
		r.unkept = isKept
	}
}

// isVouched reports whether only root or this user can have written the file, or exchanged it
// for another one.
func (r *read) isVouched() bool {
	o := r.object
	if o.unsure || len(r.several) > 0 {
		return false
	}
	if level, _ := o.level(); level != trust.Others {
		return true
	}
	f, isNear := o.content.(*os.File)
	return o.trusted || isNear && trust.LevelOf(f, "") != trust.Others
}

// isDubious reports whether copies of known content may not have the identity that they claim: others
// can have written all of them, and another file claims it whose content is unknown. An earlier
// state of the same file is none of others: its owner has nothing from it.
func isDubious(copies, claimants []*read) bool {
	isOther := func(r *read) bool {
		return r.content.IsZero() && !slices.ContainsFunc(copies, func(c *read) bool { return c.object.isFileOf(r.object) })
	}
	return slices.ContainsFunc(claimants, isOther) && !slices.ContainsFunc(copies, (*read).isVouched)
}

// isFileOf reports whether BPF reported both objects as states of one file. Each of two files that
// had an inode after each other has a generation of its own.
func (o *object) isFileOf(other *object) bool {
	a, b := o.key.Content, other.key.Content
	return a.Generation != 0 && a.Inode == b.Inode && a.Dev == b.Dev && a.Medium == b.Medium && a.Generation == b.Generation
}

// keeperOf returns the content that keeps an identity, zero for none, and whether files of
// different content claim it.
func keeperOf(claimants []*read) (keeper buildid.Content, isContested bool) {
	var contents []buildid.Content
	for _, r := range claimants {
		if !r.content.IsZero() {
			contents = append(contents, r.content)
		}
	}
	if contested.Judge(contents) != contested.Different {
		return buildid.Content{}, false
	}
	best, alone := trust.Others, false
	for _, r := range claimants {
		if r.content.IsZero() {
			continue
		}
		switch level, _ := r.object.level(); {
		case level > best:
			best, keeper, alone = level, r.content, true
		case level == best && r.content != keeper:
			alone = false
		}
	}
	if !alone {
		keeper = buildid.Content{}
	}
	return keeper, true
}

// level returns how far the file is trusted, and whose it is: a number of its own for one
// that cannot be reached, or whose server can say any owner.
func (o *object) level() (trust.Level, int64) {
	f, done := o.open()
	if f == nil {
		return trust.Others, -1 - int64(o.index)
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
	return trust.Others, -1 - int64(o.index)
}

// add takes what is known of one of the objects that show the file. The first one whose file
// could be reached gives it its content. Of two files of unknown content, nobody knows which
// is the right one.
func (b *identified) add(o *object, isSeveral bool) {
	switch {
	case b.Content.IsZero() && (isSeveral || b.content != nil && o.content != nil):
		b.content, b.file, b.Segments, b.doubtful = nil, nil, nil, true
	case b.content == nil && o.content != nil && !b.doubtful:
		b.content = o.content
		b.readSegments()
	}
}

// doubt has the profile say of which files one object shows several.
func (f *finisher) doubt(b *profile.Builder, all []read) {
	for _, r := range all {
		if len(r.several) > 0 {
			b.Doubt(&f.ofObject[r.object].Binary, r.several)
		}
	}
}

// change reports whether the content of a file that was kept open is another one than that
// whose identity was read. Names, links and permissions may have changed.
func (o *object) change(ctx context.Context) reach.Change {
	switch f := o.content.(type) {
	case *os.File:
		switch {
		case !reach.IsChanged(ctx, f, o.seen, o.id):
			return reach.Unchanged
		case reach.StampOf(f) != o.seen:
			return reach.ChangeShown
		}
		return reach.ChangeHidden
	case *aside.File:
		return reach.ChangeInHelper(f, o.seen, o.id)
	}
	return reach.Unchanged
}

// review looks at the files that were kept open once more. One that was overwritten
// cannot tell symbols any more; and where its identity was taken for that of all that
// was ever mapped of it, nobody knows which frames were of which content. Where the times do
// not show it, the identity that the kernel read when it was mapped counts, as it does for
// changes that nobody can see.
func (s *objects) review() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.list {
		if o.content == nil && o.isByNumber() && o.tried < o.asked { // a mapping was not looked at
			o.id, o.why = buildid.ID{}, reason.FileUnresponsive
		}
		c := o.change(s.ctx)
		if c == reach.Unchanged {
			continue
		}
		o.content.Close()
		o.content = nil
		if o.proven || c != reach.ChangeShown && !o.want.IsZero() {
			continue
		}
		o.id, o.why = buildid.ID{}, reason.FileChanged
		if c == reach.ChangeUnknown {
			o.why = reason.FileUnresponsive
		}
	}
}
